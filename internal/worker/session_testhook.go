package worker

import (
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/testhook"
)

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
func (t testSession) Activity(run uuid.UUID, wakeups int64, cancelling bool) testhook.Activity {
	h := t.s.of(run)
	if h == nil {
		return testhook.Activity{}
	}
	return h.Activity(t.s.Now(), wakeups, cancelling)
}
