package worker

import (
	"maps"
	"slices"
	"time"
)

// mayLinger reports whether a slot is free. If so, the run lingers for d: it stays in memory although it could be
// suspended. The caller holds the run's mutex. See doc_wakeups.go.
func (s *Session) mayLinger(h *held, d time.Duration) bool {
	s.lock()
	defer s.unlock()
	if s.claims.FreeSlots() <= 0 {
		return false
	}
	s.lingering[h] = true
	time.AfterFunc(d, func() { s.endLingering(h) })
	return true
}

// endLingering suspends the given runs, or all that linger if none is given, unless a branch is busy again.
func (s *Session) endLingering(some ...*held) {
	s.lock()
	if some == nil {
		some = slices.Collect(maps.Keys(s.lingering))
	}
	for _, h := range some {
		delete(s.lingering, h)
	}
	s.unlock()
	for _, h := range some {
		h.run.TrySuspend()
	}
}
