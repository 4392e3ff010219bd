package worker

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/kagzi/kagzi/internal/claims"
)

// A lingering has the executions in memory that could be suspended. See doc_wakeups.go.
type lingering struct {
	claims *claims.Policy

	mu   *sync.Mutex    // the session's
	runs map[*held]bool // Set by mayLinger, reset by endLingering.
}

// mayLinger reports whether a slot is free. If so, the run lingers for d: it stays in memory although it could be
// suspended. The caller holds the run's mutex.
func (l *lingering) mayLinger(h *held, d time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.claims.FreeSlots() <= 0 {
		return false
	}
	l.runs[h] = true
	time.AfterFunc(d, func() { l.endLingering(h) })
	return true
}

// endLingering suspends the given runs, or all that linger if none is given, unless a branch is busy again.
func (l *lingering) endLingering(some ...*held) {
	l.mu.Lock()
	if some == nil {
		some = slices.Collect(maps.Keys(l.runs))
	}
	for _, h := range some {
		delete(l.runs, h)
	}
	l.mu.Unlock()
	for _, h := range some {
		h.TrySuspend()
	}
}
