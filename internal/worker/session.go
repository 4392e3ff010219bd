package worker

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/claims"
	"github.com/kagzi/kagzi/internal/limits"
	"github.com/kagzi/kagzi/internal/outage"
	"github.com/kagzi/kagzi/internal/replay"
	"github.com/kagzi/kagzi/internal/standing"
	"github.com/kagzi/kagzi/store"
)

// A Session is one call of Worker.Run: its claim loop and its executions.
type Session struct {
	*standing.Worker
	env    *replay.Env
	limits *limits.Limits
	tally  tally
	cfg    Config

	writes *flusher // what the runs record
	loads  *loader  // reads the histories of claimed runs

	wake       chan struct{}      // the claim loop shall look which queue wants a claim
	freed      chan struct{}      // a slot is free, or an execution was removed
	refreshes  chan struct{}      // the refresh loop shall read the stale runs now
	stopClaims context.CancelFunc // begins the drain
	drains     chan struct{}      // closed by drain when it begins
	// claims and reservations under way, and the resolving of those without an answer
	unfinished sync.WaitGroup
	freedKeys  *freedKeys
	leftOut    leftOut // of the claims

	// the claim loop shall subscribe to notifications of other queues. Set by SetQueues, reset by the claim loop.
	changed atomic.Bool

	// guards the fields below. It is locked after an execution's mutex, never before one.
	mu     sync.Mutex
	claims *claims.Policy // what the claim loop claims next, and when
	// by queue: ends the subscription to its notifications; nil: there is none. Set by subscribe.
	subscriptions map[string]func()
	executing     map[uuid.UUID]*held // by run ID
	stops         int                 // how often all runs were stopped. Tests read it.
	slots         slots               // the executions that wait for one
	// runs that have a reservation, and whether their rows have changed since. Added by Reserve, removed by adopt and
	// Free.
	reserved map[uuid.UUID]bool
	orphans  []orphan // runs to yield. Added by disown, taken by yieldOrphans.
	yielding bool     // yieldOrphans is running, or about to.
	strays   strays   // what the search for orphans knows
	// executions in memory that could be suspended. Set by mayLinger, reset by endLingering.
	lingering map[*held]bool
	// their runs were given up, and their code has not returned. Added by abandon, removed by the watchdog.
	abandoned map[*held]bool
	hung      *store.Hung // of the watchdog's last pass, for the heartbeat; nil: none
	suspects  suspects    // the crash-loop suspects under way
	// others may take the worker for dead, so it claims nothing. Set by fence and reregister, reset by alive.
	fenced bool
	// the worker claims nothing any more. Set by drain, the heartbeater and poolIsClosed, for good.
	draining   bool
	poolClosed bool // the application has closed the pool. Set by poolIsClosed, for good.
	// a claim is under way: its runs are not in executing yet. Set by claim, reset by claimedAll.
	claiming bool
	claimed  time.Time // when that claim began. Set by claim.
	// runs in executing whose rows have changed. Added by Refresh, cleared by the refresh loop.
	stale map[uuid.UUID]bool
	// runs whose rows have changed while claiming; uuid.Nil stands for any. Added by Refresh, cleared by claimedAll.
	staleEarly map[uuid.UUID]bool
}

// held returns the runs of all executions, with their leases.
func (s *Session) held() []store.HeldRun {
	s.lock()
	defer s.unlock()
	out := make([]store.HeldRun, 0, len(s.executing))
	for _, h := range s.executing {
		out = append(out, h.lease())
	}
	return out
}

func (s *Session) isFenced() bool {
	s.lock()
	defer s.unlock()
	return s.fenced
}

// stopAll makes the session give back all of its runs, with that cause.
func (s *Session) stopAll(cause error) {
	for _, h := range s.all() {
		h.run.Stop(cause)
	}
}

// all returns the runs that the session holds, of which all are about to be stopped.
func (s *Session) all() []*held {
	s.lock()
	defer s.unlock()
	s.stops++
	return slices.Collect(maps.Values(s.executing))
}

// setClock updates the estimate of the database's clock: an answer that has just arrived, to a statement sent at sent,
// said now. If the clock was set forward, all timers are computed again: setClock resets deadlines
// and wakes the claim loop, whose next claim may be overdue; waits notice it by themselves.
func (s *Session) setClock(now, sent time.Time) {
	if !s.Clock.Set(now, sent, time.Now()) {
		return
	}
	s.lock()
	all := slices.Collect(maps.Values(s.executing))
	s.unlock()
	for _, h := range all {
		h.run.ClockSet()
	}
	s.hintAll()
}

// Stuck returns for how long the database has given neither answer nor error, and whether that is too long to be
// explained: heartbeats are sent all the time, and each of them ends soon.
func (s *Session) Stuck() (silence time.Duration, stuck bool) {
	last := s.Clock.Heard()
	if troubled := s.Troubled(); troubled.After(last) {
		last = troubled
	}
	silence = time.Since(last)
	// three times the longest might overflow
	return silence, silence/3 > max(20*time.Second, s.cfg.StaleAfter, s.cfg.Heartbeat)
}

// Queues returns the queues from which the session claims.
func (s *Session) Queues() []string {
	s.lock()
	defer s.unlock()
	active, _ := s.claims.Names()
	return active
}

// Outage returns the state of the database's outage, as the session sees it.
func (s *Session) Outage() *outage.Outage { return s.Away }

// Failures returns the operations that fail now although the database answers.
func (s *Session) Failures() []outage.Failure { return s.Failing.Now() }

func (s *Session) lock()   { s.mu.Lock() }
func (s *Session) unlock() { s.mu.Unlock() }
