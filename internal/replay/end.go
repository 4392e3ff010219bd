package replay

import (
	"context"
	"runtime"
	"sync"
	"time"
)

// A stopReason says why an execution has stopped. Once it is set, every durable operation of the execution ends its
// goroutine by Goexit, so that no workflow code mistakes it for a failure.
type stopReason int

const (
	underWay       stopReason = iota
	stopReturned              // the function and its branches returned
	stopSuspended             // every branch waits for long
	stopLost                  // the lease is lost
	stopShutdown              // the worker yields the run
	stopCancelled             // the run was cancelled, as the table says
	stopCancelling            // the run is to end as cancelled
	stopFailed                // the run fails with ending.failure, whatever the function returns
	// the server has lost a row on which the run builds: it is given back, and executed from what is left
	stopUnfounded
	stopVerified // mode verify: no branch has anything left to do
)

// An ending says how an execution stops. The execution's mutex guards the fields from reason on. The ending's files
// lock it, and a method ending in Locked is called with it. The context and done need no lock.
type ending struct {
	mu     *sync.Mutex // the execution's
	by     ender
	ctx    context.Context // step contexts descend from it
	cancel context.CancelCauseFunc
	done   chan struct{} // closed by stopLocked when it sets reason

	// underWay until stopLocked sets it, once. A refused write may change it to stopFailed: see refuseLocked.
	reason    stopReason
	made      stopReason  // reason as endToMake read it for the end that is made
	failure   error       // with which the run fails, if reason is stopFailed; set together with reason
	stoppedAt time.Time   // set together with reason, unless that is stopReturned
	cancelBy  time.Time   // set by cancelRequested: the deadline that the cancel gave to the run's code; zero: none
	deadline  *time.Timer // of the run; set by setDeadline, nil if the run has none
	grace     *time.Timer // set by stopLocked: settles the execution if its goroutines do not end in time
	// settle is called by the last goroutine, and by grace
	settleOnce sync.Once
	superseded bool // set by Abandon: its writes are given up
	abandoned  bool // set by leave: its goroutines were not waited for
}

// An ender makes the end of the execution, which has settled: it is the execution.
type ender interface{ makeEnd() }

func newEnding(mu *sync.Mutex, by ender) ending {
	ctx, cancel := context.WithCancelCause(context.Background())
	return ending{mu: mu, by: by, ctx: ctx, cancel: cancel, done: make(chan struct{})}
}

// context returns the context from which those of steps descend. It ends when the execution stops.
func (x *ending) context() context.Context { return x.ctx }

// stopContext ends the context with cause.
func (x *ending) stopContext(cause error) { x.cancel(cause) }

func (x *ending) stopped() bool {
	select {
	case <-x.done:
		return true
	default:
		return false
	}
}

// Stopped returns a channel that is closed when the execution stops.
func (x *ending) Stopped() <-chan struct{} { return x.done }

func (x *ending) exitIfStopped() {
	if x.stopped() {
		runtime.Goexit()
	}
}

// underWayLocked reports whether the execution has not stopped.
func (x *ending) underWayLocked() bool { return x.reason == underWay }

// whyLocked returns why the execution has stopped, and with what the run fails if that is stopFailed.
func (x *ending) whyLocked() (stopReason, error) { return x.reason, x.failure }

// lost reports whether the execution's writes may no longer be made.
func (x *ending) lost() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.lostLocked()
}

func (x *ending) lostLocked() bool { return x.reason == stopLost || x.superseded }

// refusedLocked lets the run fail with cause, although its execution has stopped, and would complete or go on.
func (x *ending) refusedLocked(cause error) {
	switch x.reason {
	case stopReturned, stopSuspended, stopShutdown:
		x.reason, x.failure = stopFailed, cause
	}
}

// isMadeLocked reports whether the end that was made last is the one that the execution is to have.
func (x *ending) isMadeLocked() bool { return x.made == x.reason }

// stopTimersLocked stops the timers of the run's deadline and of the goroutines' time.
func (x *ending) stopTimersLocked() {
	for _, t := range []*time.Timer{x.grace, x.deadline} {
		if t != nil {
			t.Stop()
		}
	}
}

// hasDeadlineLocked reports whether the run ends by itself at its deadline.
func (x *ending) hasDeadlineLocked() bool { return x.deadline != nil }
