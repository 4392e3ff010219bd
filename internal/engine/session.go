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

// A Session is one Worker.Run: the claim loop and what it has claimed.
type Session struct {
	*environment
	cfg Config

	// Executions that have something to write. One is in a single batcher at a time.
	writer  *batch.Batcher[*execution] // all but those of the other two
	retries *batch.Batcher[*execution] // those that met somebody's open transaction: the others do not wait with them
	alone   *batch.Batcher[*execution] // of those, the ones that may wait for a stranger's transaction: each by itself
	loads   *loader                    // of the histories of claimed runs

	wake       chan struct{}      // claim now
	freed      chan struct{}      // a slot is free, or an execution was removed
	refreshes  chan struct{}      // refresh executions now
	stopClaims context.CancelFunc // begins the drain
	drains     chan struct{}      // closed by drain when it begins
	unfinished sync.WaitGroup     // claims under way, the resolving of those without an answer, and steps of compensations

	// Only the claim loop uses these.
	claims int // so far
	most   int // runs of the next claim. It halves when a claim fails, and doubles when one succeeds.

	mu               sync.Mutex // of what follows. It is locked after an execution's mutex, never before one.
	executing        map[uuid.UUID]*execution
	stops            int                 // how often all executions were stopped. Tests ask for it.
	slots            int                 // free ones. begin takes, freeSlot gives
	lingering        map[*execution]bool // they could be suspended: see lingersLocked
	crashLoopSuspect bool                // a crash-loop suspect is under way: no other begins. Set by dispatch, reset by remove.
	fenced           bool                // others may take the worker for dead: nothing is claimed. Set by fence and reregister, reset by alive.
	nextClaim        time.Time           // when the claim loop claims, unless it is woken
	draining         bool                // nothing is claimed any more. Set by drain, the heartbeater and poolIsClosed, for good.
	poolClosed       bool                // the application has closed the pool. Set by poolIsClosed, for good.
	claiming         bool                // a claim is under way: its runs are not in executing yet. Set by claim, reset by claimedAll.
	stale            map[uuid.UUID]bool  // runs in executing whose rows have changed: the refresh loop takes them
	staleEarly       map[uuid.UUID]bool  // runs whose rows have changed while claiming; uuid.Nil for any

	completed, failed atomic.Int64 // runs that ended so, for the registry
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

// Stuck reports for how long nothing has come from the database, neither answer nor error, and whether that is longer
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
