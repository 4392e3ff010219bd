package replay

import (
	"time"

	"github.com/kagzi/kagzi/internal/failure"
)

// setDeadline sets the timer of the run's deadline.
func (e *Run) setDeadline() {
	e.Lock()
	e.deadline = time.AfterFunc(e.DeadlineAt.Sub(e.Now()), e.timeOver)
	e.Unlock()
	e.ClockSet() // a call of it may have come meanwhile, and did not find the timer
}

// timeOver fails the run at its deadline. If the estimate of the database's clock was corrected backwards since the
// timer was set, it sets the timer again.
func (e *Run) timeOver() {
	if e.Now().Before(e.DeadlineAt) {
		e.ClockSet()
		return
	}
	e.fail(failure.ErrDeadline)
}

// ClockSet sets the timer of the deadline again, by the present estimate of the database's clock.
func (e *Run) ClockSet() {
	e.Lock()
	defer e.Unlock()
	if e.deadline != nil && e.underWayLocked() {
		e.deadline.Reset(e.DeadlineAt.Sub(e.Now()))
	}
}
