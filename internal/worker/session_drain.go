package worker

import (
	"context"
	"time"

	"github.com/kagzi/kagzi/internal/standing"
)

// drain lets the runs under way finish, and yields those that take longer than DrainTimeout. See doc_drain.go.
func (s *Session) drain(hb *heartbeater) {
	s.beginDrain()
	n, _ := s.count()
	defer s.loads.end()
	log := s.Logger(s.ID())
	log.Info("kagzi: draining", "runs", n, "for_at_most", s.cfg.DrainTimeout.String())
	if s.cfg.Room == nil { // else the worker of all namespaces searches
		// The runs that this worker has suspended become due without it: other workers must query when.
		for _, q := range s.Queues() {
			s.cfg.Hints.Queue(context.Background(), q)
		}
	}
	s.giveBack(time.Now())
	hb.draining()
	deadline := time.NewTimer(s.cfg.DrainTimeout)
	defer deadline.Stop()
	if s.emptied(deadline.C) {
		return
	}
	log.Warn("kagzi: drain timeout: giving back what is under way", "runs", len(s.held()))
	s.stopAll(standing.ErrShutdown)
	last := time.NewTimer(longestExit + s.cfg.DrainTimeout/10)
	defer last.Stop()
	if s.emptied(last.C) {
		return
	}
	s.giveUp() // the database is away: the leases end by themselves
	s.writes.wait()
}

// longestExit is a little longer than the end of a run waits for its goroutines.
const longestExit = 2 * time.Second

// giveUp gives up writes that cannot be made, from now on. It ends all pauses, because writes that
// wait for a retry are given up, too.
func (s *Session) giveUp() {
	s.lock()
	s.GiveUp()
	s.unlock()
	for _, h := range s.all() {
		s.writes.endPause(h)
	}
}

// emptied waits until no execution is left and the batchers are empty. It returns false if the timer fires first.
func (s *Session) emptied(timer <-chan time.Time) bool {
	for {
		if executing, inserting := s.count(); executing+inserting == 0 {
			s.giveUp() // no execution waits for the remaining writes
			s.writes.wait()
			return true
		}
		if !s.awaitFreed(timer) {
			return false
		}
	}
}

// poolIsClosed ends the worker: the application has closed the pool, so no query can succeed again.
func (s *Session) poolIsClosed() {
	s.lock()
	s.poolClosed = true
	s.unlock()
	s.shut()
	s.giveUp()
	for _, h := range s.stopping() {
		h.Abandon(standing.ErrShutdown)
	}
	s.stopClaims()
	s.signalFreed()
}

// askedToDrain begins the drain that is requested in the worker's row.
func (s *Session) askedToDrain() {
	if s.shut() {
		s.cfg.Logger.Info("kagzi: worker was asked to drain", "worker", s.ID(), "queues", s.Queues())
		s.stopClaims()
	}
}
