package replay

import (
	"runtime"
	"slices"
	"strings"
	"time"
)

// LingerLong makes the branch's run stay in memory for an hour when it waits for its children, if it may stay at all.
func LingerLong(b *Branch) {
	b.e.Lock()
	defer b.e.Unlock()
	b.e.inbox.lastEnd = time.Now().Add(time.Hour)
}

// Lingers reports whether the branch's run is in memory although it could be suspended: all of its branches wait.
func Lingers(b *Branch) bool {
	b.e.Lock()
	defer b.e.Unlock()
	return b.e.underWayLocked() && b.e.waitsLocked()
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
	s := &stepCall{e: b.e, b: b, id: step, attempt: 1, first: 1}
	b.shows(s.underWay(b.ctx), time.Now(), b)
	defer b.hides()
	for !over() {
		s.attempt = 2
		runtime.Gosched()
	}
}

// CorrectClock moves the session's estimate of the database's clock forward, as a reply does that is ahead of it.
func CorrectClock(b *Branch, ahead time.Duration) {
	now := time.Now()
	b.e.Clock.Set(b.e.Now().Add(ahead), now, now)
}
