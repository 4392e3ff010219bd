package replay

import (
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/store"
	"github.com/kagzi/kagzi/waits"
)

// settle lets the outcome be written, once. It does not wait for the write. With interceptors that begins when these
// have returned.
func (e *Run) settle() {
	e.settleOnce.Do(func() { e.concludeWith(e.conclude) })
}

// conclude makes the end of the execution, which has settled: its goroutines have ended, or are no longer waited for.
// The watchdog goes on watching the goroutines left behind.
func (e *Run) conclude() {
	e.Lock()
	e.stopTimersLocked()
	e.stopWritingLateLocked()
	behind := e.hasBegunLocked() && e.isLiveLocked()
	e.abandoned = behind
	e.Unlock()
	if !e.writesRecords() {
		e.host.Ended(false)
		return
	}
	if behind {
		e.host.Abandoned()
	}
	e.makeEnd()
}

// Yield gives up a run, whose history is not read, for the pause: because of what it waits for.
func (e *Run) Yield(waitsFor waits.Kind, pause time.Duration) {
	e.yield(waitsFor, pause, store.HistoryUntried)
}

// yield gives up a run for the pause: because another crash-loop suspect is under way, or because its history could not
// be read. Neither a cancel nor its deadline makes it due earlier, because no worker could act on them. If its function
// has begun, the run is yielded when the goroutines are gone.
func (e *Run) yield(waitsFor waits.Kind, pause time.Duration, history store.HistoryRead) {
	e.Lock()
	begun := e.hasBegunLocked()
	if e.reason == underWay {
		p := e.newSuspension(store.Pending, waits.List{{Kind: waitsFor}})
		p.Wake, p.WakeAt, p.History, p.NotBefore = pause, time.Time{}, history, true
		e.suspendWithLocked(e.suspending(p))
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

// endToMake returns how the execution is to end: why it has stopped, the write that suspends it, if it is suspended or
// yielded, and with what the run fails.
func (e *Run) endToMake() (reason stopReason, last *write, cause error) {
	e.Lock()
	defer e.Unlock()
	e.made, last = e.reason, e.suspension
	if e.reason == stopShutdown {
		last = e.suspending(e.newSuspension(store.Pending, waits.List{{Kind: waits.Worker}}))
	}
	return e.reason, last, e.failure
}
