package replay

import (
	"context"
	"runtime/debug"

	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/standing"
)

// A Handler is a worker's code for one version of a workflow. It works on bytes.
type Handler func(b *Branch, input []byte) (output []byte, err error)

// execute calls the workflow function, if the run is still this worker's. See doc_replay.go.
func (e *Run) execute(h Handler) {
	switch {
	case !e.mayBegin():
	case e.isIntercepted():
		intercept(e, h)
	default:
		e.call(h, e.context())
	}
}

// Begin lets the run's function begin, on a goroutine of its own. A run that was cancelled, or whose deadline has
// passed, ends instead. h is nil if the worker is not to execute the run: then it gives the run back.
func (e *Run) Begin(h Handler) {
	e.Lock()
	why := e.toEndLocked()
	begins := h != nil && why == underWay && e.underWayLocked()
	if begins {
		e.beginLocked(h)
	}
	e.Unlock()
	switch {
	case begins:
	case why != underWay:
		e.stopUnbegun(why, failure.ErrDeadline)
	default: // if it has stopped, it keeps that reason
		e.stopUnbegun(stopShutdown, standing.ErrShutdown)
	}
}

func (e *Run) beginLocked(h Handler) {
	e.begun = true
	go e.execute(h)
}

// call calls the workflow function on this goroutine. Contexts of steps descend from ctx.
func (e *Run) call(h Handler, ctx context.Context) {
	b := e.newRoot(ctx)
	e.setDeadline()
	var output []byte
	e.guard(b, func() (err error) {
		output, err = h(b, e.Input)
		return err
	}, func() { e.output = output })
}

// mayBegin reports whether the run is still this worker's. If another may hold it, mayBegin yields the run.
func (e *Run) mayBegin() bool {
	why := e.notHeld()
	if why != "" {
		e.log().Warn("kagzi: a run is given back before it begins: another worker may hold it", "because", why)
		e.stopUnbegun(stopShutdown, standing.ErrLeaseLost)
	}
	return why == ""
}

// guard calls f as the body of b and settles b, whether f returns, panics or exits. keep is called with the mutex held
// if f succeeded.
func (e *Run) guard(b *Branch, f func() error, keep func()) {
	err, panicked := error(failure.OfGoexit()), false // unless f returns or panics
	defer func() {
		if v := recover(); v != nil {
			err, panicked = failure.OfPanic(v, debug.Stack()), true
		}
		e.settleBranch(b, err, panicked, keep)
	}()
	b.begin()
	err = b.asRecorded(e, f())
	// The watchdog knows the goroutine by the arguments of guard in its stack, so f must not be the last to need them.
	if name, failed := b.failedName(); err == nil && failed {
		e.nondeterministic(name, "branch %[1]q failed, and succeeds in a replay (to try again what failed, Resume the "+
			"run with admin.Forget(%[1]q))", name)
	}
}

// settleBranch notes the result of b, whose goroutine ends. The last goroutine settles the execution.
func (e *Run) settleBranch(b *Branch, err error, panicked bool, keep func()) {
	b.ends(err)
	e.Lock()
	e.guardsNoMoreLocked(b)
	e.live--
	last, stopped := e.live == 0, !e.underWayLocked()
	if !stopped {
		e.takeEndLocked(b, err, keep)
	}
	e.Unlock()
	if stopped && panicked {
		e.log().Warn("kagzi: a deferred function of a workflow panicked after its run had stopped", "error",
			failure.Text(err))
	}
	if last {
		e.settle()
	}
}

// takeEndLocked takes over the end of a branch. That of a branch which reached, in mode verify, an unrecorded operation
// is none.
func (e *Run) takeEndLocked(b *Branch, err error, keep func()) {
	reason := stopReturned
	if b.endLocked(err) {
		if err == nil {
			keep()
		}
		if b.isRoot() {
			e.err, e.returned = err, true
		}
	} else {
		reason = stopVerified
	}
	e.busy--
	if e.live == 0 {
		e.stopLocked(reason, nil)
	} else if e.busy == 0 {
		e.trySuspendLocked()
	}
}
