package worker

import (
	"maps"
	"slices"
	"time"

	"github.com/kagzi/kagzi/internal/goroutine"
	"github.com/kagzi/kagzi/internal/replay"
	"github.com/kagzi/kagzi/store"
)

// watch looks for code that hangs until stop is closed, and then once more: what goes on after the drain does not obey
// its context. See doc_hung.go.
func (s *Session) watch(stop chan struct{}) {
	look := replay.Watch(s.env, s.cfg.HungAfter)
	ticker := time.NewTicker(max(s.cfg.HungAfter/4, time.Millisecond))
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			s.lookForHung(look, false)
		case <-stop:
			s.lookForHung(look, true)
			return
		}
	}
}

// lookForHung makes a pass of the watchdog over the runs that the session holds or has given up. A heartbeat is sent at
// once if there is more or less to report than before.
func (s *Session) lookForHung(look func(map[*replay.Run]bool, int, bool) *store.Hung, last bool) {
	slots, free, _ := s.Slots()
	if free > 0 {
		slots = 0
	}
	s.lock()
	held, abandoned := slices.Collect(maps.Values(s.executing)), maps.Clone(s.abandoned)
	s.unlock()
	runs := make(map[*replay.Run]bool, len(held)+len(abandoned))
	for h := range abandoned {
		runs[&h.run] = false
	}
	for _, h := range held {
		runs[&h.run] = h.holdsSlot()
	}
	hung := look(runs, slots, last)
	s.lock()
	for h := range abandoned {
		if _, goesOn := runs[&h.run]; !goesOn {
			delete(s.abandoned, h)
		}
	}
	s.unlock()
	if s.setHung(hung) {
		goroutine.Signal(s.Heartbeats)
	}
}

// abandon makes the watchdog go on watching the run, which is given up although its code has not returned.
func (s *Session) abandon(h *held) {
	s.lock()
	defer s.unlock()
	s.abandoned[h] = true
}

// setHung replaces the report. It reports whether there is more or less of it than before.
func (s *Session) setHung(h *store.Hung) (changed bool) {
	s.lock()
	defer s.unlock()
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
	s.lock()
	defer s.unlock()
	if s.hung == nil {
		return 0
	}
	return s.hung.Functions
}
