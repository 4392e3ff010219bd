package engine

import (
	"runtime"
	"slices"
	"strings"
	"time"
)

// Limits that tests come to.
const (
	MaxRecoveries = maxRecoveries
	SharedEach    = sharedEach
)

// LingerLong makes the branch's run stay in memory for an hour when it waits for its children, if it may stay at all.
func LingerLong(b *Branch) {
	b.e.Lock()
	defer b.e.Unlock()
	b.e.inbox.lastEnd = time.Now().Add(time.Hour)
}

// Lingers reports whether the branch's run is in memory although it could be suspended.
func Lingers(b *Branch) bool {
	s := b.e.host.(*Session)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lingering[b.e]
}

// DeadlineFires calls the function that the timer of the run's deadline calls.
func DeadlineFires(b *Branch) { b.e.timeOver() }

// HasFailedBranch reports whether a branch of b's run has failed whose name ends in name.
func HasFailedBranch(b *Branch, name string) bool {
	b.e.Lock()
	defer b.e.Unlock()
	return slices.ContainsFunc(b.e.branches, func(r *branchResult) bool {
		return strings.HasSuffix(r.name, name) && r.done.fired > 0 && r.err != nil
	})
}

// ShowFirstAttempt begins to show a step's first attempt while the step goes on to its second. It returns when over
// returns true.
func ShowFirstAttempt(b *Branch, step string, over func() bool) {
	s := &stepCall{b: b, id: step, attempt: 1, first: 1}
	s.display(b.ctx, time.Now())
	defer b.display.end()
	for !over() {
		s.attempt = 2
		runtime.Gosched()
	}
}

// HardHistories returns how many runs the session remembers as too large or too slow for the shared queries.
func HardHistories(s *Session) int {
	s.loads.mu.Lock()
	defer s.loads.mu.Unlock()
	return len(s.loads.hard)
}

// LoadPause returns the pause of a run whose history could not be read that many times.
func LoadPause(failures int) time.Duration { return loadPause(failures) }
