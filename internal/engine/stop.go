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

// An execution ends in four steps. It stops, once and for a reason: stopLocked. It is settled when its goroutines are gone, or
// were waited for long enough: settle. Then its host has a suspension written, or a finish of the run: ending.go. When that is
// written, the session removes it.

// stop stops the execution from outside of it.
func (e *execution) stop(reason stopReason, cause error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stopLocked(reason, cause)
}

// fail stops the execution and ends the run with it, whatever the function would say.
func (e *execution) fail(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.reason == underWay {
		e.failure = err
		e.stopLocked(stopFailed, err)
	}
}

// supersede stops an execution whose run this worker has claimed again. Nothing that it has still to write may share a
// flush with what the new one writes.
func (e *execution) supersede() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.superseded = true
	e.stopLocked(stopLost, ErrLeaseLost)
}

// nondeterministic quarantines the run and ends the goroutine.
func (e *execution) nondeterministic(format string, args ...any) {
	if !e.mode.writes() {
		e.mu.Lock()
		if e.reason == underWay {
			step, _ := args[0].(string)
			e.verifier.contradictedLocked(step)
		}
		e.mu.Unlock()
		e.fail(failure.Of(kind.Nondeterminism, fmt.Errorf(format, args...)))
		runtime.Goexit()
	}
	e.fail(failure.Quarantine(kind.Nondeterminism, fmt.Errorf(format+"; roll the code back or repair it, then Resume the run", args...)))
	runtime.Goexit()
}

func (b *Branch) Nondeterministic(format string, args ...any) { b.e.nondeterministic(format, args...) }

// stopLocked sets why the execution stops, and stops it for everybody. It returns false if it has stopped before.
func (e *execution) stopLocked(reason stopReason, cause error) bool {
	if e.reason != underWay {
		return false
	}
	e.reason = reason
	close(e.done)
	if reason != stopReturned {
		e.cancel(cause)
		switch {
		case e.loading: // nothing of it has begun
			e.grace = time.AfterFunc(0, e.settle)
		case e.live > 0: // code that does not return must not hold the run
			e.grace = time.AfterFunc(e.graceLocked(), e.settle)
		}
	} else {
		e.cancel(nil)
	}
	return true
}

// graceLocked is how long the end of the execution waits for its goroutines. What user code does until the run ends may
// register a compensation, so a run that has such gets the time that its cancel gave it.
func (e *execution) graceLocked() time.Duration {
	switch {
	case !e.registers || failure.IsQuarantine(e.failure):
		return exitGrace
	case e.reason == stopCancelling && !e.cancelBy.IsZero():
		return max(exitGrace, e.cancelBy.Sub(e.env.now()))
	case e.reason == stopCancelling || e.reason == stopFailed:
		goroutine.Signal(e.env.heartbeats) // a lease ends soon after the deadline, and is extended after it
		return store.CancelGrace
	}
	return exitGrace
}

// settle has the host write the outcome, once. It does not wait for the write.
func (e *execution) settle() { e.settleOnce.Do(func() { e.host.settled(e) }) }

// stopUnbegun ends an execution that was never begun.
func (e *execution) stopUnbegun(reason stopReason, err error) {
	e.mu.Lock()
	e.live, e.busy, e.failure = 0, 0, err
	e.stopLocked(reason, err)
	e.mu.Unlock()
	e.settle()
}

// yield gives up a run for a while: because another crash-loop suspect is under way, or because of its history. A
// cancel, or its deadline, does not make it due before: no worker could act on that. If its function has begun, the run is
// yielded when that has ended.
func (e *execution) yield(waitingOn string, pause time.Duration, history store.HistoryRead) {
	e.mu.Lock()
	begun := e.begun
	if e.reason == underWay {
		p := e.newSuspension(store.Pending, waitingOn)
		p.Wake, p.History, p.NotBefore = pause, history, true
		e.suspension = &write{suspension: p}
	}
	if !begun {
		e.live, e.busy = 0, 0
	}
	e.stopLocked(stopSuspended, nil)
	e.mu.Unlock()
	if !begun {
		e.settle()
	}
}

// cancelRequested stops what is under way, by the deadline at the latest that the cancel has set.
func (e *execution) cancelRequested(deadline time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.reason == stopCancelling && e.grace != nil && deadline.Before(e.cancelBy) { // by another cancel
		e.cancelBy = deadline
		e.grace.Reset(e.graceLocked())
	}
	if e.reason != underWay {
		return
	}
	e.run.CancelRequested, e.cancelBy = true, deadline
	if !e.loading { // else it does not begin
		e.stopLocked(stopCancelling, errCancelled)
	}
}

// isToEnd returns why the run ends without its function: it was cancelled, or its time is over. It is underWay if neither
// is so.
func (e *execution) isToEnd() stopReason {
	switch {
	case e.run.CancelRequested:
		return stopCancelling
	case !e.run.DeadlineAt.IsZero() && !e.run.DeadlineAt.After(e.env.now()):
		return stopFailed
	}
	return underWay
}

// newSuspension prepares the end of this execution: without a time, and waiting for nothing, the run is due at once.
func (e *execution) newSuspension(status, waitingOn string) *store.Suspension {
	p := &store.Suspension{RunID: e.run.RunID, Lease: e.run.Lease, Status: status, WaitingOn: waitingOn}
	if e.loading {
		p.History = store.HistoryUntried
	}
	return p
}
