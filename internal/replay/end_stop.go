package replay

import (
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/goroutine"
	"github.com/kagzi/kagzi/internal/outage"
	"github.com/kagzi/kagzi/internal/standing"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/store"
	"github.com/kagzi/kagzi/waits"
)

// An execution ends in four steps. It stops once, for one reason: stopLocked. It settles when its goroutines are gone
// or have had enough time: settle. Then it enqueues a suspension or a finish of the run: makeEnd. When that is written,
// the host forgets the execution. See doc_ends.go.

// stop stops the execution, unless it has stopped already.
func (x *ending) stop(reason stopReason, cause error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.stopLocked(reason, cause)
}

// fail stops the execution. The run fails with err, whatever the function returns.
func (x *ending) fail(err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.failLocked(err)
}

func (x *ending) failLocked(err error) {
	if x.reason == underWay {
		x.failure = err
		x.stopLocked(stopFailed, err)
	}
}

// nondeterministic quarantines the run, because code and history contradict each other at the step, and exits the
// goroutine. In mode verify it only stops the execution.
func (x *ending) nondeterministic(step, format string, args ...any) {
	if !x.env.writesRecords() {
		x.fail(failure.Of(kind.Nondeterminism, &contradiction{fmt.Errorf(format, args...), step}))
		runtime.Goexit()
	}
	x.fail(failure.Quarantine(kind.Nondeterminism, fmt.Errorf(format+"; roll the code back or repair it, then Resume "+
		"the run", args...)))
	runtime.Goexit()
}

// Stop stops the execution because the worker gives the run back. cause is what its steps are told.
func (x *ending) Stop(cause error) { x.stopAnyway(stopShutdown, cause) }

// Abandon stops the execution, and gives up its writes: none of them shares a flush with those of a later execution of
// the run. cause is what its steps are told.
func (x *ending) Abandon(cause error) {
	x.mu.Lock()
	x.superseded = true
	x.mu.Unlock()
	x.stopAnyway(stopLost, cause)
}

// stopAnyway stops the execution, whether or not its function has begun.
func (x *ending) stopAnyway(reason stopReason, cause error) {
	x.mu.Lock()
	begun := x.crew.hasBegunLocked()
	if begun {
		x.stopLocked(reason, cause)
	} else {
		x.stopUnbegunLocked(reason, cause)
	}
	x.mu.Unlock()
	if !begun {
		x.by.settle()
	}
}

// stopLocked sets the reason of the stop and cancels the execution's context with cause. It returns false if the
// execution has stopped before.
func (x *ending) stopLocked(reason stopReason, cause error) bool {
	if x.reason != underWay {
		return false
	}
	x.reason = reason
	close(x.done)
	if reason != stopReturned {
		x.stoppedAt = time.Now()
		x.cancel(cause)
		switch {
		case !x.crew.hasBegunLocked():
			x.grace = time.AfterFunc(0, x.by.settle)
		case x.crew.isLiveLocked(): // code that does not return must not hold the run
			x.grace = time.AfterFunc(x.graceLocked(), x.by.settle)
		}
	} else {
		x.cancel(nil)
	}
	return true
}

// graceLocked returns how long the end of the execution waits for its goroutines. A run that registers compensations
// gets the time that its cancel allows: its code may register one until the run ends.
func (x *ending) graceLocked() time.Duration {
	switch {
	case !x.registers || failure.IsQuarantine(x.failure):
		return exitGrace
	case x.reason == stopCancelling && !x.cancelBy.IsZero():
		return max(exitGrace, x.cancelBy.Sub(x.env.Now()))
	case x.reason == stopCancelling || x.reason == stopFailed:
		// the lease ends soon after the run's deadline, so a heartbeat must extend it
		goroutine.Signal(x.env.Heartbeats)
		return store.CancelGrace
	}
	return exitGrace
}

// stopUnbegun stops and settles an execution whose function has not begun.
func (x *ending) stopUnbegun(reason stopReason, err error) {
	x.mu.Lock()
	x.stopUnbegunLocked(reason, err)
	x.mu.Unlock()
	x.by.settle()
}

func (x *ending) stopUnbegunLocked(reason stopReason, err error) {
	x.crew.dismissLocked()
	if x.reason == underWay {
		x.failure = err
	}
	x.stopLocked(reason, err)
}

// cancelRequested stops the execution because of a cancel. deadline is the cancel's: the end waits for the goroutines
// no longer.
func (x *ending) cancelRequested(deadline time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.reason == stopCancelling && x.grace != nil && deadline.Before(x.cancelBy) { // another cancel allows less time
		x.cancelBy = deadline
		x.grace.Reset(x.graceLocked())
	}
	if x.reason != underWay {
		return
	}
	x.run.CancelRequested, x.cancelBy = true, deadline
	if x.crew.hasBegunLocked() { // otherwise Begin ends it
		x.stopLocked(stopCancelling, errCancelled)
	}
}

// giveUp fails the run with err, whether or not its execution has begun.
func (x *ending) giveUp(err error) {
	x.mu.Lock()
	begun := x.crew.hasBegunLocked()
	x.mu.Unlock()
	if begun {
		x.fail(err)
	} else {
		x.stopUnbegun(stopFailed, err)
	}
}

// toEndLocked returns why the run ends without a call of its function: it was cancelled, or its deadline has passed. It
// returns underWay if neither is so.
func (x *ending) toEndLocked() stopReason {
	switch {
	case x.run.CancelRequested:
		return stopCancelling
	case !x.run.DeadlineAt.IsZero() && !x.run.DeadlineAt.After(x.env.Now()):
		return stopFailed
	}
	return underWay
}

// newSuspension returns a suspension of the run. Without a time and a needed wake-up, the run is due at once. A run
// that has not begun is given back as it was before the claim.
func (x *ending) newSuspension(status string, waitingOn waits.List) *store.Suspension {
	p := &store.Suspension{
		RunID: x.run.RunID, Lease: x.run.Lease, Status: status, WaitingOn: waitingOn,
		Unbegun: !x.crew.hasBegunLocked(),
	}
	if p.Unbegun {
		p.WakeAt = x.run.DueAt // its place in the queue
	}
	if x.crew.isUnreadLocked() {
		p.History = store.HistoryUntried
	}
	return p
}

// register notes that the run is about to register a compensation.
func (x *ending) register() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.registerLocked()
}

// newFinish prepares the run's end.
func (x *ending) newFinish(status string, k kind.Kind, message string) *store.Finish {
	return &store.Finish{
		RunID: x.run.RunID, Lease: x.run.Lease, Parent: x.run.ParentRunID, Publishes: x.run.Publishes,
		Status: status, ErrorKind: string(k), Error: message,
	}
}

// stopAfter stops the execution because of the outcome of a write, if that is Lost or Unfounded. It has no effect if
// the execution has stopped for another reason.
func (x *ending) stopAfter(o store.Outcome) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.stopAfterLocked(o)
}

func (x *ending) stopAfterLocked(o store.Outcome) {
	switch o {
	case store.Done:
	case store.Unfounded:
		x.stopLocked(stopUnfounded, standing.ErrLeaseLost)
	default:
		x.stopLocked(stopLost, standing.ErrLeaseLost)
	}
}

// whenStopped returns when the execution stopped, zero if it is under way, and whether it was given up.
func (x *ending) whenStopped() (at time.Time, abandoned bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.stoppedAt, x.abandoned
}

func (x *ending) reasonOf() stopReason {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.reason
}

// untilAnswered calls f, which asks the database, until the database answers. The outcome is Lost if the run is no
// longer held, or if the session gives up its writes.
func (x *ending) untilAnswered(f func() error) store.Outcome {
	for failures := 0; ; failures++ {
		err := f()
		switch {
		case err == nil:
			return store.Done
		case errors.Is(err, store.ErrUnfounded):
			return store.Unfounded
		case errors.Is(err, store.ErrLeaseLost) || x.env.GivesUp() || x.lost():
			return store.Lost
		}
		x.env.Trouble(err)
		x.env.Pause(outage.PauseAfter(err, failures))
	}
}
