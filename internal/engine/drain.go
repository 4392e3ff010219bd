package engine

import (
	"time"

	"github.com/kagzi/kagzi/internal/goroutine"
)

// drain lets the runs under way finish, and yields those that take longer than DrainTimeout. See doc_drain.go.
func (s *Session) drain(hb *heartbeater) {
	s.mu.Lock()
	s.draining = true
	n := len(s.executing)
	s.freedKeys.leaveLocked()
	s.mu.Unlock()
	close(s.drains)
	defer s.loads.end()
	log := s.logger(s.ID())
	log.Info("kagzi: draining", "runs", n, "for_at_most", s.cfg.DrainTimeout.String())
	// The runs that this worker has suspended become due without it: other workers must query when.
	for _, q := range s.Queues() {
		s.cfg.Hints.Queue(s.background, q)
	}
	s.giveBack(time.Now())
	hb.draining()
	deadline := time.NewTimer(s.cfg.DrainTimeout)
	defer deadline.Stop()
	if s.emptied(deadline.C) {
		return
	}
	log.Warn("kagzi: drain timeout: giving back what is under way", "runs", len(s.held()))
	s.stopAll(stopShutdown, ErrShutdown)
	last := time.NewTimer(exitGrace + time.Second + s.cfg.DrainTimeout/10)
	defer last.Stop()
	if s.emptied(last.C) {
		return
	}
	s.giveUp() // the database is away: the leases end by themselves
	s.waitForWrites()
}

// waitForWrites waits until the batchers are empty. It is called after giveUp: from then on a requeued write goes to
// the writer.
func (s *Session) waitForWrites() {
	s.alone.Wait()
	s.retries.Wait()
	s.writer.Wait()
}

// emptied waits until no execution is left and the batchers are empty. It returns false if the timer fires first.
func (s *Session) emptied(timer <-chan time.Time) bool {
	for {
		s.mu.Lock()
		n := len(s.executing) + len(s.reserved)
		s.mu.Unlock()
		if n == 0 {
			s.giveUp() // no execution waits for the remaining writes
			s.waitForWrites()
			return true
		}
		select {
		case <-s.freed:
		case <-timer:
			return false
		}
	}
}

// poolIsClosed ends the worker: the application has closed the pool, so no query can succeed again.
func (s *Session) poolIsClosed() {
	s.mu.Lock()
	s.draining, s.poolClosed = true, true
	s.mu.Unlock()
	s.giveUp()
	s.stopAll(stopLost, ErrShutdown)
	s.stopClaims()
	goroutine.Signal(s.freed)
}
