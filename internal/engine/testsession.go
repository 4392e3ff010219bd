package engine

import (
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
	h.s.hintAll()
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
	return e.activity(s.Now(), wakeups, cancelling)
}
