package engine

import (
	"maps"
	"slices"
	"time"

	"github.com/kagzi/kagzi/internal/goroutine"
	"github.com/kagzi/kagzi/store"
)

// watch looks for code that hangs until stop is closed, and then once more: what goes on after the drain does not obey
// its context. See docs/architecture.md, Code that hangs.
func (s *Session) watch(stop chan struct{}) {
	ticker := time.NewTicker(max(s.cfg.HungAfter/4, time.Millisecond))
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			s.lookForHung(false)
		case <-stop:
			s.lookForHung(true)
			return
		}
	}
}

// lookForHung makes a pass of the watchdog over the runs that the session holds. A heartbeat is sent at once if there
// is more or less to report than before.
func (s *Session) lookForHung(last bool) {
	slots, free, _ := s.Slots()
	if free > 0 {
		slots = 0
	}
	if s.setHung(s.env.Watch(s.runs(), slots, s.cfg.HungAfter, last)) {
		goroutine.Signal(s.Heartbeats)
	}
}

// runs returns the runs that the session holds, and whether they have slots.
func (s *Session) runs() map[*execution]bool {
	s.mu.Lock()
	all := slices.Collect(maps.Values(s.executing))
	s.mu.Unlock()
	runs := make(map[*execution]bool, len(all))
	for _, h := range all {
		runs[&h.run] = h.holdsSlot()
	}
	return runs
}

// setHung replaces the report. It reports whether there is more or less of it than before.
func (s *Session) setHung(h *store.Hung) (changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.hung
	s.hung = h
	switch {
	case old == nil || h == nil:
		return old != h
	case old.Functions != h.Functions || old.Slots != h.Slots:
		return true
	}
	return !slices.Equal(old.Codes, h.Codes)
}

// Hung returns how many functions hang.
func (s *Session) Hung() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hung == nil {
		return 0
	}
	return s.hung.Functions
}
