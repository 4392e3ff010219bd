package engine

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/batch"
	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/goroutine"
	"github.com/kagzi/kagzi/internal/outage"
	"github.com/kagzi/kagzi/store"
)

// flushesApart is how many flushes that may wait for strangers are under way at once: each has a connection for as long as
// it waits.
const flushesApart = 2

// A session is one Worker.Run: the claim loop and what it has claimed.
type Session struct {
	*environment
	cfg        Config
	writer     *batch.Batcher[*execution] // that have something to write. An execution is in one batcher at a time.
	retries    *batch.Batcher[*execution] // of which somebody's open transaction keeps something from being written: the others do not wait with them
	alone      *batch.Batcher[*execution] // of them, those that may wait for a stranger's transaction: each by itself
	loads      *loader                    // of the histories of what is claimed
	wake       chan struct{}              // look at the queue now
	freed      chan struct{}              // a slot is free, or an execution has left
	looks      chan struct{}              // look at executions' rows now
	stopClaims context.CancelFunc         // begins the drain
	unfinished sync.WaitGroup             // claims under way, what looks for what they took, and steps of compensations
	claims     int
	most       int // runs of the next claim

	mu         sync.Mutex
	executing  map[uuid.UUID]*execution
	stops      int // how often all executions were stopped; the last time:
	stopReason stopReason
	stopCause  error
	slots      int                 // free ones
	lingering  map[*execution]bool // they could be suspended: see lingersLocked
	suspect    bool                // an execution that may kill the worker is under way
	fenced     bool                // no heartbeat for too long: nothing is claimed
	nextLook   time.Time           // of the claim loop, unless it is woken
	draining   bool                // nothing is claimed any more
	poolClosed bool                // by the application
	claiming   bool                // what is claimed is not in executing yet
	moved      map[uuid.UUID]bool  // executions whose rows are to be looked at
	early      map[uuid.UUID]bool  // runs that moved while claiming; uuid.Nil for any

	completed, failed atomic.Int64
	drains            chan struct{} // closed when the session drains
}

func New(cfg Config) *Session {
	s := &Session{
		cfg: cfg, stopClaims: func() {},
		wake: make(chan struct{}, 1), freed: make(chan struct{}, 1), looks: make(chan struct{}, 1),
		most: mostClaimed, executing: map[uuid.UUID]*execution{}, lingering: map[*execution]bool{}, slots: cfg.MaxConcurrent, moved: map[uuid.UUID]bool{}, early: map[uuid.UUID]bool{},
		drains: make(chan struct{}),
	}
	s.environment = newEnvironment(&cfg, s.poolIsClosed)
	s.writer = batch.New(batch.Config[*execution]{Flush: s.flush})
	s.retries = batch.New(batch.Config[*execution]{Flush: s.flush})
	s.alone = batch.New(batch.Config[*execution]{Flush: s.flush, MaxItems: 1, Flushes: flushesApart})
	s.loads = newLoader(s.environment, s.drains, s.dispatch)
	if cfg.FixedLease { // a lease that is not extended must outlast the query
		s.loads.longest = min(s.loads.longest, cfg.LeaseTimeout/2)
	}
	return s
}

// run works until ctx ends, and then drains.
func (s *Session) Run(ctx context.Context) error {
	ctx, s.stopClaims = context.WithCancel(ctx)
	defer s.stopClaims()
	beat := newHeartbeater(s)
	if err := beat.begin(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return failure.Prefixed(err)
	}
	s.cfg.Logger.Info("kagzi: worker started", "worker", s.ID(), "namespace", s.store.Namespace(), "queue", s.cfg.Queue, "workflows", s.cfg.Registration(s.ID()).Handlers)
	release := s.cfg.Hints.Listen()
	stopWork := s.cfg.Hints.OnWork(s.cfg.Queue, func() { goroutine.Signal(s.wake) })
	leaveHints := s.cfg.Hints.JoinWorker(s)
	if s.cfg.Hooks != nil && s.cfg.Hooks.Begun != nil {
		s.cfg.Hooks.Begun(hooked{s})
	}

	var loops sync.WaitGroup
	stop := make(chan struct{})
	loops.Go(func() { beat.run(stop) })
	loops.Go(func() { s.refreshLoop(stop) })
	if s.cfg.Beside != nil {
		beside, leave := context.WithCancel(s.background) // until the worker has drained
		defer leave()
		loops.Go(func() { s.cfg.Beside(beside) })
		loops.Go(func() {
			<-stop
			leave()
		})
	}
	s.claimLoop(ctx)
	s.drain(beat)
	s.unfinished.Wait()

	leaveHints()
	close(stop)
	loops.Wait()
	stopWork()
	release()
	beat.end()
	published := make(chan struct{})
	go func() {
		defer close(published)
		s.cfg.Hints.Flush()
	}()
	select {
	case <-published:
	case <-time.After(time.Second): // the process goes on starting runs: its hints never cease
	}
	s.cfg.Logger.Info("kagzi: worker stopped", "worker", s.ID(), "queue", s.cfg.Queue, "completed", s.completed.Load(), "failed", s.failed.Load())
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.poolClosed {
		return errors.New("kagzi: the pool was closed while the worker was running: close it once Run has returned")
	}
	return nil
}

// held lists what the session believes to hold.
func (s *Session) held() []store.HeldRun {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]store.HeldRun, 0, len(s.executing))
	for _, e := range s.executing {
		out = append(out, e.held())
	}
	return out
}

func (s *Session) isFenced() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fenced
}

// ---- the end ----

// drain lets what is under way finish, then gives it back.
func (s *Session) drain(beat *heartbeater) {
	s.mu.Lock()
	s.draining = true
	n := len(s.executing)
	s.mu.Unlock()
	close(s.drains)
	defer s.loads.end()
	log := s.logger(s.ID())
	log.Info("kagzi: draining", "runs", n, "for_at_most", s.cfg.DrainTimeout)
	// What this worker has suspended becomes due without it: others must look when.
	s.cfg.Hints.Queue(s.background, s.cfg.Queue)
	beat.draining()
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

// waitForWrites waits for what is being written. It is called when the session is closing: what comes again then comes to
// the writer.
func (s *Session) waitForWrites() {
	s.alone.Wait()
	s.retries.Wait()
	s.writer.Wait()
}

// giveUp gives up what cannot be written, also what waits to be tried again.
func (s *Session) giveUp() {
	s.mu.Lock()
	first := !s.closing.Swap(true)
	all := slices.Collect(maps.Values(s.executing))
	s.mu.Unlock()
	if first {
		close(s.closed)
	}
	for _, e := range all {
		s.endPause(e)
	}
}

// emptied waits until nothing is being executed; it returns false if the timer comes first.
func (s *Session) emptied(timer <-chan time.Time) bool {
	for {
		s.mu.Lock()
		n := len(s.executing)
		s.mu.Unlock()
		if n == 0 {
			s.giveUp() // what is left, nobody waits for
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

func (s *Session) stopAll(reason stopReason, cause error) {
	s.mu.Lock()
	s.stops++
	s.stopReason, s.stopCause = reason, cause
	all := make([]*execution, 0, len(s.executing))
	for _, e := range s.executing {
		all = append(all, e)
	}
	s.mu.Unlock()
	for _, e := range all {
		e.stop(reason, cause)
	}
}

// ---- what executions ask of the session ----

// setClock notes what the database's clock said in a reply that has just come to what was sent then. If somebody has set
// it forward, what waits for a time looks again: the deadlines here, waits by themselves, and the claim loop, whose next
// look may be long past.
func (s *Session) setClock(now, sent time.Time) {
	if !s.clock.set(now, sent, time.Now()) {
		return
	}
	s.mu.Lock()
	all := slices.Collect(maps.Values(s.executing))
	s.mu.Unlock()
	for _, e := range all {
		e.resetDeadline()
	}
	goroutine.Signal(s.wake)
}

// poolIsClosed ends the worker: the application has closed the pool, and the database will never answer again.
func (s *Session) poolIsClosed() {
	s.mu.Lock()
	s.draining, s.poolClosed = true, true
	s.mu.Unlock()
	s.giveUp()
	s.stopAll(stopLost, ErrShutdown)
	s.stopClaims()
	goroutine.Signal(s.freed)
}

// stuck reports for how long nothing has come from the database, neither answer nor error, and whether that is longer
// than can be explained: heartbeats go out all the time, and each of them ends soon.
func (s *Session) Stuck() (silence time.Duration, stuck bool) {
	s.clock.mu.Lock()
	last := s.clock.heard
	s.clock.mu.Unlock()
	if troubled := *s.troubled.Load(); troubled.After(last) {
		last = troubled
	}
	silence = time.Since(last)
	return silence, silence > max(time.Minute, 3*s.cfg.StaleAfter, 3*s.cfg.Heartbeat)
}

// Queue is the queue that the session claims from.
func (s *Session) Queue() string { return s.cfg.Queue }

// Outage is what the session knows of the database being away.
func (s *Session) Outage() *outage.Outage { return s.outage }

// Failures are the kinds of statements that fail now although the database answers.
func (s *Session) Failures() []outage.Failure { return s.failures.Now() }
