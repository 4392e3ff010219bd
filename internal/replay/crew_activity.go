package replay

import (
	"math"
	"time"

	"github.com/kagzi/kagzi/internal/testhook"
)

// Activity is for tests: see testhook.Session. It suspends an execution that lingers. wakeups are those of the run's
// row, and cancelling says that the row asks for the run's end.
func (e *Run) Activity(now time.Time, wakeups int64, cancelling bool) testhook.Activity {
	e.Lock()
	defer e.Unlock()
	if e.underWayLocked() && e.waitsLocked() {
		e.lingerNoMoreLocked()
		e.trySuspendLocked()
	}
	activity := testhook.Activity{Here: true, Busy: e.busy}
	stale := e.isBehindLocked(wakeups) || cancelling
	if !e.underWayLocked() || stale || e.hasWritesLocked() { // an outcome, a notification or a record is pending
		activity.Busy = math.MaxInt
		return activity
	}
	due := func(t time.Time) {
		switch {
		case !t.After(now): // the wait is about to end
			activity.Busy++
		case activity.Next.IsZero() || t.Before(activity.Next):
			activity.Next = t
		}
	}
	if e.hasDeadlineLocked() {
		due(e.DeadlineAt)
	}
	for _, w := range e.waits {
		switch {
		case w.inMemory, w.ctx.Err() != nil: // in the latter case its branch was cancelled, and has not gone on yet
			activity.Busy++
		case !w.until.IsZero():
			due(w.until)
		}
	}
	return activity
}
