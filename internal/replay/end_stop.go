package replay

import (
	"fmt"
	"runtime"
	"time"

	"github.com/google/uuid"
	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/goroutine"
	"github.com/kagzi/kagzi/internal/standing"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/store"
)

// An execution ends in four steps. It stops once, for one reason: stopLocked. It settles when its goroutines are gone
// or have had enough time: settle. Then it enqueues a suspension or a finish of the run: makeEnd. When that is written,
// the host forgets the execution. See doc_ends.go.

// stop stops the execution, unless it has stopped already.
func (e *Run) stop(reason stopReason, cause error) {
	e.Lock()
	defer e.Unlock()
	e.stopLocked(reason, cause)
}

// fail stops the execution. The run fails with err, whatever the function returns.
func (e *Run) fail(err error) {
	e.Lock()
	defer e.Unlock()
	e.failLocked(err)
}

func (e *Run) failLocked(err error) {
	if e.reason == underWay {
		e.failure = err
		e.stopLocked(stopFailed, err)
	}
}

// Stop stops the execution because the worker gives the run back. cause is what its steps are told.
func (e *Run) Stop(cause error) { e.stopAnyway(stopShutdown, cause) }

// Abandon stops the execution, and gives up its writes: none of them shares a flush with those of a later execution of
// the run. cause is what its steps are told.
func (e *Run) Abandon(cause error) {
	e.Lock()
	e.superseded = true
	e.Unlock()
	e.stopAnyway(stopLost, cause)
}

// stopAnyway stops the execution, whether or not its function has begun.
func (e *Run) stopAnyway(reason stopReason, cause error) {
	e.Lock()
	begun := e.hasBegunLocked()
	if begun {
		e.stopLocked(reason, cause)
	} else {
		e.stopUnbegunLocked(reason, cause)
	}
	e.Unlock()
	if !begun {
		e.settle()
	}
}

// nondeterministic quarantines the run, because code and history contradict each other at the step, and exits the
// goroutine. In mode verify it only stops the execution.
func (e *Run) nondeterministic(step, format string, args ...any) {
	if !e.writesRecords() {
		e.Lock()
		if e.reason == underWay {
			e.verifier.contradictedLocked(step)
		}
		e.Unlock()
		e.fail(failure.Of(kind.Nondeterminism, fmt.Errorf(format, args...)))
		runtime.Goexit()
	}
	e.fail(failure.Quarantine(kind.Nondeterminism, fmt.Errorf(format+"; roll the code back or repair it, then Resume "+
		"the run", args...)))
	runtime.Goexit()
}

// Nondeterministic quarantines the branch's run, because code and history contradict each other at the step, and exits
// the goroutine.
func (b *Branch) Nondeterministic(step, format string, args ...any) {
	b.e.nondeterministic(step, format, args...)
}

// stopLocked sets the reason of the stop and cancels the execution's context with cause. It returns false if the
// execution has stopped before.
func (e *Run) stopLocked(reason stopReason, cause error) bool {
	if e.reason != underWay {
		return false
	}
	e.reason = reason
	close(e.done)
	if reason != stopReturned {
		e.stoppedAt = time.Now()
		e.cancel(cause)
		switch {
		case !e.hasBegunLocked():
			e.grace = time.AfterFunc(0, e.settle)
		case e.isLiveLocked(): // code that does not return must not hold the run
			e.grace = time.AfterFunc(e.graceLocked(), e.settle)
		}
	} else {
		e.cancel(nil)
	}
	return true
}

// graceLocked returns how long the end of the execution waits for its goroutines. A run that registers compensations
// gets the time that its cancel allows: its code may register one until the run ends.
func (e *Run) graceLocked() time.Duration {
	switch {
	case !e.registersLocked() || failure.IsQuarantine(e.failure):
		return exitGrace
	case e.reason == stopCancelling && !e.cancelBy.IsZero():
		return max(exitGrace, e.cancelBy.Sub(e.Now()))
	case e.reason == stopCancelling || e.reason == stopFailed:
		// the lease ends soon after the run's deadline, so a heartbeat must extend it
		goroutine.Signal(e.Heartbeats)
		return store.CancelGrace
	}
	return exitGrace
}

// settle lets the outcome be written, once. It does not wait for the write. With interceptors that begins when these
// have returned.
func (e *Run) settle() {
	e.settleOnce.Do(func() {
		if e.interception == nil {
			e.conclude()
			return
		}
		e.interception.settle(e.conclude)
	})
}

// conclude makes the end of the execution, which has settled. The watchdog goes on watching what is left behind.
func (e *Run) conclude() {
	behind := e.leave()
	if !e.writesRecords() {
		e.verifier.settled()
		return
	}
	if behind {
		e.host.Abandoned()
	}
	e.by.makeEnd()
}

// stopUnbegun stops and settles an execution whose function has not begun.
func (e *Run) stopUnbegun(reason stopReason, err error) {
	e.Lock()
	e.stopUnbegunLocked(reason, err)
	e.Unlock()
	e.settle()
}

func (e *Run) stopUnbegunLocked(reason stopReason, err error) {
	e.dismissLocked()
	if e.reason == underWay {
		e.failure = err
	}
	e.stopLocked(reason, err)
}

// Yield gives up a run, whose history is not read, for the pause: because of what it waits for.
func (e *Run) Yield(waitingOn string, pause time.Duration) {
	e.yield(waitingOn, pause, store.HistoryUntried)
}

// yield gives up a run for the pause: because another crash-loop suspect is under way, or because its history could not
// be read. Neither a cancel nor its deadline makes it due earlier, because no worker could act on them. If its function
// has begun, the run is yielded when the goroutines are gone.
func (e *Run) yield(waitingOn string, pause time.Duration, history store.HistoryRead) {
	e.Lock()
	begun := e.hasBegunLocked()
	if e.reason == underWay {
		p := e.newSuspension(store.Pending, waitingOn)
		p.Wake, p.WakeAt, p.History, p.NotBefore = pause, time.Time{}, history, true
		e.suspendWithLocked(&write{suspension: p})
	}
	if !begun {
		e.dismissLocked()
	}
	e.stopLocked(stopSuspended, nil)
	e.Unlock()
	if !begun {
		e.settle()
	}
}

// cancelRequested stops the execution because of a cancel. deadline is the cancel's: the end waits for the goroutines
// no longer.
func (e *Run) cancelRequested(deadline time.Time) {
	e.Lock()
	defer e.Unlock()
	if e.reason == stopCancelling && e.grace != nil && deadline.Before(e.cancelBy) { // another cancel allows less time
		e.cancelBy = deadline
		e.grace.Reset(e.graceLocked())
	}
	if e.reason != underWay {
		return
	}
	e.CancelRequested, e.cancelBy = true, deadline
	if e.hasBegunLocked() { // otherwise Begin ends it
		e.stopLocked(stopCancelling, errCancelled)
	}
}

// FailUnread ends a run whose history is not to be read. It ends as cancelled, or at its deadline, if that is so, and
// else it fails with cause. children says that it may have active children.
func (e *Run) FailUnread(cause error, children bool) {
	e.Lock()
	if children {
		e.expectLocked(uuid.Nil) // stands for all of them
	}
	why := e.toEndLocked()
	e.Unlock()
	if why == underWay {
		e.stopUnbegun(stopFailed, cause)
	} else {
		e.stopUnbegun(why, failure.ErrDeadline)
	}
}

// toEndLocked returns why the run ends without a call of its function: it was cancelled, or its deadline has passed. It
// returns underWay if neither is so.
func (e *Run) toEndLocked() stopReason {
	switch {
	case e.CancelRequested:
		return stopCancelling
	case !e.DeadlineAt.IsZero() && !e.DeadlineAt.After(e.Now()):
		return stopFailed
	}
	return underWay
}

// newSuspension returns a suspension of the run. Without a time and a needed wake-up, the run is due at once. A run
// that has not begun is given back as it was before the claim.
func (e *Run) newSuspension(status, waitingOn string) *store.Suspension {
	p := &store.Suspension{
		RunID: e.RunID, Lease: e.Lease, Status: status, WaitingOn: waitingOn,
		Unbegun: !e.hasBegunLocked(),
	}
	if p.Unbegun {
		p.WakeAt = e.DueAt // its place in the queue
	}
	if e.isUnreadLocked() {
		p.History = store.HistoryUntried
	}
	return p
}

// stopAfter stops the execution because of the outcome of a write, if that is Lost or Unfounded. It has no effect if
// the execution has stopped for another reason.
func (e *Run) stopAfter(o store.Outcome) {
	e.Lock()
	defer e.Unlock()
	e.stopAfterLocked(o)
}

func (e *Run) stopAfterLocked(o store.Outcome) {
	switch o {
	case store.Done:
	case store.Unfounded:
		e.stopLocked(stopUnfounded, standing.ErrLeaseLost)
	default:
		e.stopLocked(stopLost, standing.ErrLeaseLost)
	}
}

// leave is called once, when the execution has settled: it stops the timers. It reports whether goroutines are left
// behind, which are no longer waited for.
func (e *Run) leave() (behind bool) {
	e.Lock()
	defer e.Unlock()
	e.stopTimersLocked()
	e.stopWritingLateLocked()
	e.abandoned = e.hasBegunLocked() && e.isLiveLocked()
	return e.abandoned
}

// endToMake returns how the execution is to end: why it has stopped, the write that suspends it, if it is suspended or
// yielded, and with what the run fails.
func (e *Run) endToMake() (reason stopReason, last *write, cause error) {
	e.Lock()
	defer e.Unlock()
	e.made, last = e.reason, e.suspensionLocked()
	if e.reason == stopShutdown {
		last = &write{suspension: e.newSuspension(store.Pending, "worker")}
	}
	return e.reason, last, e.failure
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
