package engine

import (
	"math"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/testhook"
)

// Lease is for tests: see testhook.Branch.
func (b *Branch) Lease() uuid.UUID { return b.e.Lease }

// Closed is for tests: see testhook.Branch.
func (b *Branch) Closed() bool { return b.closed }

// Goroutine is for tests: see testhook.Branch.
func (b *Branch) Goroutine() uintptr { return b.goid.Load() }

// A testSession implements testhook.Session.
type testSession struct{ s *Session }

func (h testSession) SetClock(now, asked time.Time) { h.s.setClock(now, asked) }

func (h testSession) Wake() {
	h.s.wantClaims()
	h.s.cfg.Hints.WakeCoordinators()
}

func (h testSession) Handles(workflow string, version int) bool {
	return h.s.cfg.Handlers[workflow][version] != nil
}

func (h testSession) Worker() uuid.UUID { return h.s.ID() }

func (h testSession) Leases() (leases []uuid.UUID) {
	for _, held := range h.s.held() {
		leases = append(leases, held.Lease)
	}
	return leases
}

// Activity suspends an execution that lingers for more ends of children: lingering is a matter of real time, which
// kagzitest does not move.
func (h testSession) Activity(run uuid.UUID, wakeups int64, cancelling bool) testhook.Activity {
	s := h.s
	s.mu.Lock()
	e := s.executing[run]
	s.mu.Unlock()
	if e == nil {
		return testhook.Activity{}
	}
	now := s.now()
	e.Lock()
	defer e.Unlock()
	if e.reason == underWay && e.live > 0 && e.busy == 0 {
		e.inbox.lastEnd = time.Time{}
		e.trySuspendLocked()
	}
	activity := testhook.Activity{Here: true, Busy: e.busy}
	stale := wakeups > e.seen || cancelling
	if e.reason != underWay || stale || len(e.outbox.writes) > 0 { // an outcome, a notification or a record is pending
		activity.Busy = math.MaxInt
		return activity
	}
	due := func(t time.Time) {
		switch {
		case !t.After(now): // the wait is about to end
			activity.Busy++
		case activity.Next.IsZero() || t.Before(activity.Next):
			activity.Next = t
		}
	}
	if e.deadline != nil {
		due(e.DeadlineAt)
	}
	for _, w := range e.waits {
		switch {
		case w.inMemory, w.ctx.Err() != nil: // in the latter case its branch was cancelled, and has not gone on yet
			activity.Busy++
		case !w.until.IsZero():
			due(w.until)
		}
	}
	return activity
}
