package engine

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/batch"
	"github.com/kagzi/kagzi/internal/goroutine"
	"github.com/kagzi/kagzi/internal/outage"
	"github.com/kagzi/kagzi/store"
)

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

func (s *Session) freeSlot() {
	s.mu.Lock()
	s.slots++
	s.mu.Unlock()
	goroutine.Signal(s.freed)
}
