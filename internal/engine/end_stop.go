package engine

import (
	"fmt"
	"runtime"
	"time"

	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/goroutine"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/store"
)

// An execution ends in four steps. It stops once, for one reason: stopLocked. It settles when its goroutines are gone
// or have had enough time: settle. Then its host lets it enqueue a suspension or a finish of the run: makeEnd. When
// that is written, the session forgets the execution. See doc_ends.go.

// stop stops the execution, unless it has stopped already.
func (e *execution) stop(reason stopReason, cause error) {
	e.Lock()
	defer e.Unlock()
	e.stopLocked(reason, cause)
}

// fail stops the execution. The run fails with err, whatever the function returns.
func (e *execution) fail(err error) {
	e.Lock()
	defer e.Unlock()
	e.failLocked(err)
}

func (e *execution) failLocked(err error) {
	if e.reason == underWay {
		e.failure = err
		e.stopLocked(stopFailed, err)
	}
}

// supersede stops an execution whose run this worker has claimed again. Its remaining writes never share a flush with
// those of the new execution.
func (e *execution) supersede() {
	e.Lock()
	defer e.Unlock()
	e.superseded = true
	e.stopLocked(stopLost, ErrLeaseLost)
}

// nondeterministic quarantines the run, because code and history contradict each other at the step, and exits the
// goroutine. In mode verify it only stops the execution.
func (e *execution) nondeterministic(step, format string, args ...any) {
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
func (e *execution) stopLocked(reason stopReason, cause error) bool {
	if e.reason != underWay {
		return false
	}
	e.reason = reason
	close(e.done)
	if reason != stopReturned {
		e.stoppedAt = time.Now()
		e.cancel(cause)
		switch {
		case e.isWaitingLocked(): // its function has not begun
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
func (e *execution) graceLocked() time.Duration {
	switch {
	case !e.registersLocked() || failure.IsQuarantine(e.failure):
		return exitGrace
	case e.reason == stopCancelling && !e.cancelBy.IsZero():
		return max(exitGrace, e.cancelBy.Sub(e.now()))
	case e.reason == stopCancelling || e.reason == stopFailed:
		// the lease ends soon after the run's deadline, so a heartbeat must extend it
		goroutine.Signal(e.heartbeats)
		return store.CancelGrace
	}
	return exitGrace
}

// settle calls the host to let the outcome be written, once. It does not wait for the write. With interceptors the host
// is called when these have returned.
func (e *execution) settle() {
	e.settleOnce.Do(func() {
		if e.interception == nil {
			e.conclude()
			return
		}
		e.interception.settle(e.conclude)
	})
}

// conclude tells the host that the execution has settled.
func (e *execution) conclude() { e.host.settled(e, e.leave()) }

// stopUnbegun stops and settles an execution whose function has not begun.
func (e *execution) stopUnbegun(reason stopReason, err error) {
	e.Lock()
	e.dismissLocked()
	e.failure = err
	e.stopLocked(reason, err)
	e.Unlock()
	e.settle()
}

// yield gives up a run for the pause: because another crash-loop suspect is under way, or because its history could not
// be read. Neither a cancel nor its deadline makes it due earlier, because no worker could act on them. If its function
// has begun, the run is yielded when the goroutines are gone.
func (e *execution) yield(waitingOn string, pause time.Duration, history store.HistoryRead) {
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
func (e *execution) cancelRequested(deadline time.Time) {
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
	if !e.isWaitingLocked() { // otherwise dispatch ends it
		e.stopLocked(stopCancelling, errCancelled)
	}
}

// giveBack yields the run, whose function has not begun. It keeps its place in the queue.
func (e *execution) giveBack() {
	e.Lock()
	if e.reason == underWay {
		e.suspendWithLocked(&write{suspension: e.newSuspension(store.Pending, "worker")})
		e.dismissLocked()
		e.stopLocked(stopSuspended, nil)
	}
	e.Unlock()
	e.settle()
}

// isToEnd returns why the run ends without a call of its function: it was cancelled, or its deadline has passed. It
// returns underWay if neither is so.
func (e *execution) isToEnd() stopReason {
	e.Lock()
	defer e.Unlock()
	switch {
	case e.CancelRequested:
		return stopCancelling
	case !e.DeadlineAt.IsZero() && !e.DeadlineAt.After(e.now()):
		return stopFailed
	}
	return underWay
}

// newSuspension returns a suspension of the run. Without a time and a needed wake-up, the run is due at once. A run
// that has not begun is given back as it was before the claim.
func (e *execution) newSuspension(status, waitingOn string) *store.Suspension {
	p := &store.Suspension{
		RunID: e.RunID, Lease: e.Lease, Status: status, WaitingOn: waitingOn,
		Unbegun: !e.hasBegunLocked(),
	}
	if p.Unbegun {
		p.WakeAt = e.DueAt // its place in the queue
	}
	if e.isWaitingLocked() {
		p.History = store.HistoryUntried
	}
	return p
}

// stopAfter stops the execution because of the outcome of a write, if that is Lost or Unfounded. It has no effect if
// the execution has stopped for another reason.
func (e *execution) stopAfter(o store.Outcome) {
	e.Lock()
	defer e.Unlock()
	e.stopAfterLocked(o)
}

func (e *execution) stopAfterLocked(o store.Outcome) {
	switch o {
	case store.Done:
	case store.Unfounded:
		e.stopLocked(stopUnfounded, ErrLeaseLost)
	default:
		e.stopLocked(stopLost, ErrLeaseLost)
	}
}

// lost reports whether the execution's writes may no longer be made.
func (x *ending) lost() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.reason == stopLost || x.superseded
}

// leave is called once, when the execution has settled: it stops the timers. It reports whether goroutines are left
// behind, which are no longer waited for.
func (e *execution) leave() (behind bool) {
	e.Lock()
	defer e.Unlock()
	e.stopTimersLocked()
	e.stopWritingLateLocked()
	e.abandoned = e.hasBegunLocked() && e.isLiveLocked()
	return e.abandoned
}

// endToMake returns how the execution is to end: why it has stopped, the write that suspends it, if it is suspended or
// yielded, and with what the run fails.
func (e *execution) endToMake() (reason stopReason, last *write, cause error) {
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
