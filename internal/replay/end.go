package replay

import (
	"context"
	"runtime"
	"sync"
	"time"

	"github.com/kagzi/kagzi/store"
	"github.com/kagzi/kagzi/waits"
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
	// the server has lost a row on which the run builds: it is given back, and executed from the rest
	stopUnfounded
	stopVerified // mode verify: no branch has anything left to do
)

// How long waits stay in memory, and how long the end of an execution waits for its goroutines.
const (
	memoryWait = 200 * time.Millisecond
	exitGrace  = time.Second
)

// An ending says how an execution stops. The execution's mutex guards the fields from verdict on. The ending's files
// lock it, and a method ending in Locked is called with it. The context and done need no lock.
type ending struct {
	mu     *sync.Mutex // the execution's
	env    *Env
	run    *store.ClaimedRun // CancelRequested may change
	crew   *crew             // the execution's, whose goroutines the end waits for
	by     ender
	host   Host
	ctx    context.Context // step contexts descend from it
	cancel context.CancelCauseFunc
	done   chan struct{} // closed by stopLocked when it sets reason

	verdict
	patience
	deadline *time.Timer // of the run; set by setDeadline, nil if the run has none
	// settle is called by the last goroutine, and by grace
	settleOnce sync.Once
	superseded bool // set by Abandon: its writes are given up
	abandoned  bool // set by conclude: its goroutines were not waited for
}

// A verdict says why an execution has stopped, and how the run goes on.
type verdict struct {
	// underWay until stopLocked sets it, once. A refused write may change it to stopFailed: see refuseLocked.
	reason    stopReason
	made      stopReason // reason as endToMake read it for the end that is made
	failure   error      // with which the run fails, if reason is stopFailed; set together with reason
	stoppedAt time.Time  // set together with reason, unless that is stopReturned
	// to be written if the execution stops to be suspended; set together with that reason
	suspension *write
}

// A patience says how long the end waits for the goroutines.
type patience struct {
	grace    *time.Timer // set by stopLocked: settles the execution if its goroutines do not end in time
	cancelBy time.Time   // set by cancelRequested: the deadline that the cancel gave to the run's code; zero: none
	// the run has registered a compensation, or is about to: a step with UndoneBy has begun. Never reset.
	registers bool
}

// A Host is the worker that holds a run, or a verification. MayLinger is called with the run's mutex held, the others
// without it.
type Host interface {
	// Enqueued is called when the run's outbox gets its first write.
	Enqueued()
	// Released is called when the run needs its slot no longer: its last write is enqueued, or is not to be made. It
	// may be called again.
	Released()
	// Ended is called once, when the last write is written, or is given up. A run that writes nothing ends when its
	// execution has settled. over says that the run is over, by this write.
	Ended(over bool)
	// Abandoned is called when the run has stopped, and was not waited for any longer: some of its code has not
	// returned.
	Abandoned()
	// MayLinger reports whether a run that could be suspended may stay in memory for d. If so, the host calls
	// TrySuspend then.
	MayLinger(d time.Duration) bool
	// HasNews is called when the answer to a record says that the run was cancelled or paused. The host reads the run's
	// row, and passes it to Update.
	HasNews()
	// Stepped is called when the ends of so many steps are written.
	Stepped(steps int)
}

// An ender lets the outcome of an execution be written that has stopped: it is the execution. Only the first call of
// settle counts.
type ender interface {
	settle()
	written(o store.Outcome) // of the write that ends the execution
}

func newEnding(mu *sync.Mutex, env *Env, run *store.ClaimedRun, c *crew, by ender, host Host) ending {
	ctx, cancel := context.WithCancelCause(context.Background())
	return ending{
		mu: mu, env: env, run: run, crew: c, by: by, host: host, ctx: ctx, cancel: cancel, done: make(chan struct{}),
	}
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
func (v *verdict) underWayLocked() bool { return v.reason == underWay }

// whyLocked returns why the execution has stopped, and with what the run fails if that is stopFailed.
func (v *verdict) whyLocked() (stopReason, error) { return v.reason, v.failure }

// suspendWithLocked sets the write with which the execution is suspended.
func (v *verdict) suspendWithLocked(w *write) { v.suspension = w }

// waitsForLocked returns what the run waits for, if the execution was suspended.
func (v *verdict) waitsForLocked() waits.List { return v.suspension.waitsFor() }

// mayHearLocked reports whether the execution goes on, and would change that if its run were cancelled or paused.
func (x *ending) mayHearLocked() bool { return x.underWayLocked() && !x.crew.isPausedLocked() }

// lost reports whether the execution's writes may no longer be made.
func (x *ending) lost() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.lostLocked()
}

func (x *ending) lostLocked() bool { return x.reason == stopLost || x.superseded }

// refusedLocked lets the run fail with cause, although its execution has stopped, and would complete or go on.
func (v *verdict) refusedLocked(cause error) {
	switch v.reason {
	case stopReturned, stopSuspended, stopShutdown:
		v.reason, v.failure = stopFailed, cause
	}
}

// endsInOrderLocked reports whether the execution has stopped and may write how: neither lease nor rows are lost.
func (v *verdict) endsInOrderLocked() bool {
	switch v.reason {
	case stopReturned, stopSuspended, stopShutdown, stopCancelling, stopFailed:
		return true
	}
	return false
}

// isMadeLocked reports whether the end that was made last is the one that the execution is to have.
func (v *verdict) isMadeLocked() bool { return v.made == v.reason }

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

// registerLocked notes that the run is about to register a compensation.
func (p *patience) registerLocked() { p.registers = true }

// registersLocked reports whether the run has registered a compensation, or is about to.
func (p *patience) registersLocked() bool { return p.registers }
