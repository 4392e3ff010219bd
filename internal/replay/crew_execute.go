package replay

import (
	"context"
	"runtime/debug"

	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/goroutine"
	"github.com/kagzi/kagzi/internal/standing"
)

// A Handler is a worker's code for one version of a workflow. It works on bytes.
type Handler func(b *Branch, input []byte) (output []byte, err error)

// execute calls the workflow function, if the run is still this worker's. See doc_replay.go.
func (e *Run) execute(h Handler) {
	switch {
	case !e.mayBegin():
	case e.interception != nil:
		e.intercept(h)
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

// newRoot returns the run's own branch.
func newRoot(ctx context.Context, e *Run) *Branch {
	return &Branch{
		e: e, ctx: ctx, cancel: e.stopContext, result: &branchResult{}, passage: passage{now: e.StartedAt},
	}
}

// call calls the workflow function on this goroutine. Contexts of steps descend from ctx.
func (e *Run) call(h Handler, ctx context.Context) {
	b := newRoot(ctx, e)
	if !e.DeadlineAt.IsZero() && e.cancelsOthers() {
		e.setDeadline()
	}
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
	b.init()
	if err = b.asRecorded(f()); err == nil && b.row != nil {
		e.nondeterministic(b.result.name, "branch %[1]q failed, and succeeds in a replay (to try again what failed, "+
			"Resume the run with admin.Forget(%[1]q))", b.result.name)
	}
}

// init prepares the branch on its own goroutine.
func (b *Branch) init() {
	b.goid.Store(goroutine.ID())
	b.own = b.e.directlyUnder(b.prefix)
	b.live.Store(b.own == 0 && !b.closed)
	b.e.Lock()
	defer b.e.Unlock()
	b.place = len(b.e.guarded)
	b.e.guarded = append(b.e.guarded, b)
}

// leaveGuardLocked removes b from the execution's guarded branches, if it is among them.
func (b *Branch) leaveGuardLocked() {
	all := b.e.guarded
	if b.place >= len(all) || all[b.place] != b { // init did not come so far
		return
	}
	last := len(all) - 1
	all[b.place], all[last].place = all[last], b.place
	all[last] = nil
	b.e.guarded = all[:last]
}

// settleBranch notes the result of b, whose goroutine ends. The last goroutine settles the execution.
func (e *Run) settleBranch(b *Branch, err error, panicked bool, keep func()) {
	b.goid.Store(0)
	b.cancelBelow(err)
	e.Lock()
	b.leaveGuardLocked()
	e.live--
	last := e.live == 0
	if !e.underWayLocked() {
		e.Unlock()
		if panicked {
			e.log().Warn("kagzi: a deferred function of a workflow panicked after its run had stopped", "error",
				failure.Text(err))
		}
		if last {
			e.settle()
		}
		return
	}
	if b.discarded {
		e.discardLocked(last)
		e.Unlock()
		if last {
			e.settle()
		}
		return
	}
	if err == nil {
		keep()
	}
	root := b.prefix == ""
	if root {
		e.err, e.returned = err, true
	}
	b.result.err, b.result.now = err, b.now
	if err == nil && !root && !b.started {
		b.cancel(nil)
	}
	e.fireLocked(&b.result.done)
	e.fireLocked(&b.result.past)
	if g := b.result.group; g != nil {
		g.order = append(g.order, b.result.index)
		e.fireLocked(&g.event)
	}
	e.busy--
	if last {
		e.stopLocked(stopReturned, nil)
	} else if e.busy == 0 {
		e.trySuspendLocked()
	}
	e.Unlock()
	if last {
		e.settle()
	}
}

// discardLocked discards a branch that reached, in mode verify, an unrecorded operation. Waiters keep waiting.
func (e *Run) discardLocked(last bool) {
	e.busy--
	if last {
		e.stopLocked(stopVerified, nil)
	} else if e.busy == 0 {
		e.trySuspendLocked()
	}
}

// result returns the output of the function.
func (c *crew) result() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.output
}

// outcome returns the error of the execution: of the function, else of a failed branch that was not asked for, else of
// a wrong call.
func (e *Run) outcome() error {
	e.Lock()
	defer e.Unlock()
	if e.err != nil {
		return e.err
	}
	for _, r := range e.branches {
		if r.done.fired > 0 && r.err != nil && !r.asked && !r.of.belowEndedBranch() {
			return e.errors().Branch(BranchFailure{Name: r.name, Err: r.err})
		}
	}
	return e.misused
}
