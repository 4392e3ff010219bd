package engine

import (
	"maps"
	"slices"
	"time"
)

// mayLinger reports whether a slot is free, and notes that e lingers. The caller holds e's mutex.
func (s *Session) mayLinger(e *execution, d time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.slots <= 0 {
		return false
	}
	s.lingering[e] = true
	time.AfterFunc(d, func() { s.endLingering(e) })
	return true
}

// endLingering suspends executions that linger, if they still can be: those given; if none is given, all of them.
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
		e.mu.Lock()
		if e.reason == underWay && e.busy == 0 {
			e.trySuspendLocked()
		}
		e.mu.Unlock()
	}
}
