package replay

import (
	"time"

	"github.com/kagzi/kagzi/internal/failure"
)

// setDeadline sets the timer of the run's deadline, if it has one.
func (x *ending) setDeadline() {
	if x.run.DeadlineAt.IsZero() || !x.env.cancelsOthers() {
		return
	}
	x.mu.Lock()
	x.deadline = time.AfterFunc(x.run.DeadlineAt.Sub(x.env.Now()), x.timeOver)
	x.mu.Unlock()
	x.ClockSet() // a call of it may have come meanwhile, and did not find the timer
}

// timeOver fails the run at its deadline. If the estimate of the database's clock was corrected backwards since the
// timer was set, it sets the timer again.
func (x *ending) timeOver() {
	if x.env.Now().Before(x.run.DeadlineAt) {
		x.ClockSet()
		return
	}
	x.fail(failure.ErrDeadline)
}

// ClockSet sets the timer of the deadline again, by the present estimate of the database's clock.
func (x *ending) ClockSet() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.deadline != nil && x.underWayLocked() {
		x.deadline.Reset(x.run.DeadlineAt.Sub(x.env.Now()))
	}
}
