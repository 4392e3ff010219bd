package engine

import (
	"maps"
	"slices"
	"time"
)

// mayLinger reports whether a slot is free. If so, e lingers for d: it stays in memory although it could be suspended.
// The caller holds e's mutex. See doc_wakeups.go.
func (s *Session) mayLinger(e *execution, d time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.claims.FreeSlots() <= 0 {
		return false
	}
	s.lingering[e] = true
	time.AfterFunc(d, func() { s.endLingering(e) })
	return true
}

// endLingering suspends the given executions, or all that linger if none is given, unless a branch is busy again.
func (s *Session) endLingering(some ...*execution) {
	s.mu.Lock()
	if some == nil {
		some = slices.Collect(maps.Keys(s.lingering))
	}
	for _, e := range some {
		delete(s.lingering, e)
	}
	s.mu.Unlock()
	for _, e := range some {
		e.trySuspend()
	}
}
