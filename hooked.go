package kagzi

import (
	"math"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/testhook"
)

// hooked is a session as package kagzitest sees it.
type hooked struct{ s *session }

func (h hooked) SetClock(now time.Time) { h.s.setClock(now) }

func (h hooked) Wake() {
	signal(h.s.wake)
	c := h.s.w.client
	c.mu.Lock()
	defer c.mu.Unlock()
	for k := range c.coordinators {
		signal(k.wake)
	}
}

func (h hooked) Handles(workflow string, version int) bool {
	return h.s.w.handlers[workflow][version] != nil
}

func (h hooked) Worker() uuid.UUID { return h.s.workerID() }

func (h hooked) Look(run uuid.UUID) testhook.Look {
	s := h.s
	s.mu.Lock()
	e := s.executing[run]
	s.mu.Unlock()
	if e == nil {
		return testhook.Look{}
	}
	now := s.now()
	e.mu.Lock()
	defer e.mu.Unlock()
	look := testhook.Look{Here: true, Busy: e.busy}
	if e.reason != underWay { // its end is about to be written
		look.Busy = math.MaxInt
		return look
	}
	due := func(t time.Time) {
		switch {
		case !t.After(now): // it is about to end
			look.Busy++
		case look.Next.IsZero() || t.Before(look.Next):
			look.Next = t
		}
	}
	if e.deadline != nil {
		due(e.run.DeadlineAt)
	}
	for _, w := range e.waits {
		if !w.until.IsZero() {
			due(w.until)
		}
	}
	return look
}
