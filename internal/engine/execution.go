package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/goroutine"
	"github.com/kagzi/kagzi/store"
)

// A stopReason is why an execution stopped. Once one is set, every durable operation of the execution ends its
// goroutine by Goexit, so that no workflow code mistakes it for a failure.
type stopReason int

const (
	underWay       stopReason = iota
	stopReturned              // the function and its branches returned
	stopSuspended             // every branch waits for long
	stopLost                  // the lease is lost
	stopShutdown              // the worker gives the run back
	stopCancelled             // the run was cancelled, as the table says
	stopCancelling            // the run is to end as cancelled
	stopFailed                // the run fails whatever the function says: see failure
	stopVerified              // of Worker.Replay: no branch has more to do
)

// How long waits stay in memory, and how long the end of an execution waits for its goroutines.
const (
	memoryWait = 200 * time.Millisecond
	exitGrace  = time.Second
)

var errCancelled = failure.Of(failure.KindCancelled, errors.New("kagzi: run was cancelled"))

// An execution is one claimed run in this process: its history, its branches and what they wait for.
type execution struct {
	env       *environment
	host      host
	run       *store.ClaimedRun
	runID     string
	attempt   int                       // of the run, from 1
	history   map[string]*store.StepRow // the latest attempt of each step, as it was at the claim
	own       map[string]int            // see ownOf
	copied    map[string]int            // own, of what a fork has from the other run; nil if it has nothing
	positions atomic.Int64              // the place of the run's last record in its order
	seen      int64                     // the wakeups that history, inbox and ends reflect
	ctx       context.Context           // what step contexts descend from
	cancel    context.CancelCauseFunc
	done      chan struct{} // closed when reason is set
	deadline  *time.Timer   // of the run

	mu         sync.Mutex
	term       store.Term // of the lease, as far as is known
	reason     stopReason
	failure    error // of stopFailed
	loading    bool  // its history is being read, and none of its goroutines has begun
	begins     bool  // execute was called: its goroutines settle it
	fetching   bool  // what reached its run is about to be read alone
	unread     int   // how often that could not be read, since it last was
	large      int64 // bytes that it holds of the loader's memory for large histories
	live       int   // goroutines that have not ended
	busy       int   // of them, those that do not wait
	waits      []*wait
	suspension *write           // of stopSuspended
	deferred   []deferredRecord // see there
	outbox     outbox
	branches   []*branchResult
	failures   []*knownFailure // that the function was told of
	children   []*Child        // that the function has come to
	output     []byte          // the function's
	err        error           // the function's
	returned   bool            // the function did, or it panicked
	misused    error           // the first wrong call: the run does not complete, even if the function drops this error
	superseded bool            // its run is claimed again, by this worker
	released   bool            // its slot is free again
	alone      bool            // it is the one suspect of its session
	begun      int             // how often its session had stopped all executions when it began. The session's mutex guards it.
	grace      *time.Timer
	cancelBy   time.Time // of stopCancelling: the deadline that the cancel has set

	inbox     inbox
	arrivals  map[string]*event  // by a message's name, or a child's ID
	anyEnd    event              // of a child
	offspring map[uuid.UUID]bool // its children that may not be over, but for detached ones
	registers bool               // a compensation, or may do so: it has begun a step with UndoneBy

	mode     mode     // set before the execution begins, and never again
	verifier verifier // of mode verify; nil in live

	settleOnce sync.Once // settle is called by the last goroutine, and by the timer grace
}

// A branchResult is what became of a branch. Its execution's mutex guards it.
type branchResult struct {
	of    *Branch // nil if it was never started
	name  string
	done  event
	past  event // it is done, or has left its history
	err   error
	now   time.Time // the branch's Now at its end
	asked bool      // somebody looked at it
	group *ends     // of the group that the branch belongs to, as its index-th
	index int
}

// A host is what executes executions: a session, or a verification. Each method may be called with the execution's mutex
// held, but for settled.
type host interface {
	// enqueued is called when the execution's outbox, which had nothing to write, has.
	enqueued(e *execution)
	// settled is called once, when the execution has stopped and its goroutines are gone, or were waited for long enough. The
	// host has its outcome written, and does not wait for that.
	settled(e *execution)
	// mayLinger reports whether the execution may stay in memory for so long although it could be suspended. If so, the host
	// has it suspended then, if it still can be.
	mayLinger(e *execution, d time.Duration) bool
}

// A verifier is told where code and history of a run part. The execution's mutex is held.
type verifier interface {
	// unrecordedLocked notes that the branch has come to what the history does not have; its goroutine exits.
	unrecordedLocked(b *Branch)
	// contradictedLocked notes that code and history cannot both be right about a step; the execution fails.
	contradictedLocked(step string)
}

func newExecution(env *environment, h host, run *store.ClaimedRun, looked bool) *execution {
	e := &execution{
		env: env, host: h, run: run, runID: run.RunID.String(), attempt: run.Attempts + 1,
		done: make(chan struct{}), live: 1, busy: 1, offspring: map[uuid.UUID]bool{}, term: run.Term,
	}
	if looked {
		e.seen = run.Wakeups
	}
	e.ctx, e.cancel = context.WithCancelCause(context.Background())
	return e
}

// remember takes in the history, before anything else goes by it.
func (e *execution) remember(history []*store.StepRow) {
	e.history = historyOf(history)
	e.own = ownOf(e.history)
	isCopied := func(r *store.StepRow) bool { return r.RunAttempt == 0 && !e.forgot(r) }
	if slices.ContainsFunc(history, isCopied) {
		e.copied = ownOf(historyOf(slices.DeleteFunc(slices.Clone(history), func(r *store.StepRow) bool { return !isCopied(r) })))
	}
	for _, row := range history {
		e.positions.Store(max(e.positions.Load(), row.Position))
		e.registers = e.registers || row.Kind == store.KindCompensation
		if row.Kind == store.KindChild && row.Status == store.Running && e.inbox.ends[row.ChildRunID] == nil {
			e.offspring[row.ChildRunID] = true
		}
	}
}

// nextPosition returns the place of another record in the run's order.
func (e *execution) nextPosition() int64 { return e.positions.Add(1) }

func (e *execution) log() *slog.Logger {
	if !e.mode.writes() {
		return slog.New(slog.DiscardHandler)
	}
	return e.env.log.With("workflow", e.run.Type, "run", e.runID, "run_attempt", e.attempt)
}

func (e *execution) held() store.HeldRun {
	return store.HeldRun{RunID: e.run.RunID, Lease: e.run.Lease}
}

// execute runs the workflow function on this goroutine, unless the claim was too long ago.
func (e *execution) execute(h Handler) {
	if !e.mayBegin() {
		return
	}
	b := &Branch{e: e, ctx: e.ctx, cancel: e.cancel, now: e.run.StartedAt, result: &branchResult{}}
	e.mu.Lock()
	e.begins = true
	e.mu.Unlock()
	if !e.run.DeadlineAt.IsZero() && e.mode.cancels() {
		e.setDeadline()
	}
	var output []byte
	e.guard(b, func() (err error) {
		output, err = h(b, e.run.Input)
		return err
	}, func() { e.output = output })
}

// mayBegin reports whether the run is this worker's, and gives it back if it may be another's.
func (e *execution) mayBegin() bool {
	why := e.mayNot()
	if why != "" {
		e.log().Warn("kagzi: a run is given back before it begins: another worker may hold it", "because", why)
		e.refuse(stopShutdown, ErrLeaseLost)
	}
	return why == ""
}

func (e *execution) setDeadline() {
	e.mu.Lock()
	e.deadline = time.AfterFunc(e.run.DeadlineAt.Sub(e.env.now()), e.timeOver)
	e.mu.Unlock()
	e.resetDeadline() // the clock may have been set meanwhile, by who has not seen the timer
}

// timeOver fails the run, unless the estimate of the database's clock has moved back since the timer was set.
func (e *execution) timeOver() {
	if e.env.now().Before(e.run.DeadlineAt) {
		e.resetDeadline()
		return
	}
	e.fail(failure.ErrDeadline)
}

// resetDeadline goes by the database's clock as it is now.
func (e *execution) resetDeadline() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.deadline != nil && e.reason == underWay {
		e.deadline.Reset(e.run.DeadlineAt.Sub(e.env.now()))
	}
}

// guard calls f as the body of b and settles b's result, whether f returns, panics or exits. keep is called
// with the mutex held if f succeeded.
func (e *execution) guard(b *Branch, f func() error, keep func()) {
	err, panicked := error(failure.OfGoexit()), false // unless f gets past it
	defer func() {
		if v := recover(); v != nil {
			err, panicked = failure.OfPanic(v, debug.Stack()), true
		}
		e.settleBranch(b, err, panicked, keep)
	}()
	b.init()
	if err = b.asRecorded(f()); err == nil && b.row != nil {
		e.nondeterministic("branch %[1]q failed, and succeeds in a replay (to try again what failed, Resume the run with kagzi.Forget(%[1]q))", b.result.name)
	}
}

// settleBranch ends b's goroutine: the last one out settles the execution.
func (e *execution) settleBranch(b *Branch, err error, panicked bool, keep func()) {
	b.goid.Store(0)
	b.cancelBelow(err)
	e.mu.Lock()
	e.live--
	last := e.live == 0
	if e.reason != underWay {
		e.mu.Unlock()
		if panicked {
			e.log().Warn("kagzi: a deferred function of a workflow panicked while its run left memory", "error", failure.Text(err))
		}
		if last {
			e.settle()
		}
		return
	}
	if b.discarded {
		e.discardLocked(last)
		e.mu.Unlock()
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
		e.suspendLocked()
	}
	e.mu.Unlock()
	if last {
		e.settle()
	}
}

// cancelBelow ends what is below a branch that is about to end, unless that has succeeded: its branches, and the children of
// all of them.
func (b *Branch) cancelBelow(err error) {
	e := b.e
	var r *store.Record
	if err != nil && b.parent != nil && !b.isOver() { // what is called of the user's must not be called under the mutex
		r = b.newFailure(err)
	}
	e.mu.Lock()
	if e.reason != underWay || b.discarded {
		e.mu.Unlock()
		return
	}
	b.result.asked = b.result.asked || b.ctx.Err() != nil // cancelled by its caller, who no longer waits
	if err != nil && b.parent != nil {
		b.failLocked(r)
	}
	if err != nil && e.mode.cancels() && !b.closed { // else they end by themselves, where the history does
		b.cancel(errBranchCancelled)
	}
	e.mu.Unlock()
	if b.hasEnded() {
		e.cancelChildrenBelow(b, b)
	}
}

// isOver reports whether the branch was cancelled, has lost, or had ended in the history: how it ends now is not recorded.
func (b *Branch) isOver() bool { return b.closed || b.ctx.Err() != nil || b.muted() }

// newFailure prepares the record that the branch has failed: its output has the IDs of the failures in err's chain.
func (b *Branch) newFailure(err error) *store.Record {
	r := b.e.newRecord(b.result.name, store.KindBranch, store.Failed, b.attempt+1, b.attempt+1)
	class := b.e.env.errors.Classify(err)
	r.ErrorKind, r.Error, r.Permanent = class.Kind, failure.Text(err), class.Permanent
	var failed []*branchResult // as they are now: methods of err are not called under the mutex
	b.e.mu.Lock()
	for _, other := range b.e.branches {
		if other.err != nil {
			failed = append(failed, &branchResult{name: other.name, err: other.err})
		}
	}
	b.e.mu.Unlock()
	ids := map[string]bool{}
	b.e.addChain(ids, err, failed)
	r.Output, _ = json.Marshal(slices.Sorted(maps.Keys(ids))) // strings
	return r
}

// failLocked notes that the branch, which nobody has cancelled, has failed: in a replay it is closed, with all below it.
// The record, r, is written with whatever the execution writes next. That of a racer must not be there without what it took.
func (b *Branch) failLocked(r *store.Record) {
	if b.row == nil && (r == nil || b.isOver()) { // by who was cancelled
		return
	}
	b.end = b.failsLocked(b.result.name)
	b.dead.Store(true)
	if b.row != nil {
		return
	}
	r.EndedAt = b.now
	if now := b.e.env.now(); now.After(b.now) { // a fork goes by it
		r.EndedAt = now
	}
	for _, other := range b.e.branches { // the branches below may have learned of its end, and the estimate of the clock lags
		if other.done.fired > 0 && other.now.After(r.EndedAt) {
			r.EndedAt = other.now
		}
	}
	by := b.root()
	if b.mayLose() {
		by = b
	}
	by.deferLocked(r, nil)
}

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

// stop stops the execution from outside of it.
func (e *execution) stop(reason stopReason, cause error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stopLocked(reason, cause)
}

// supersede stops an execution whose run this worker has claimed again. Nothing that it has still to write may share a
// flush with what the new one writes.
func (e *execution) supersede() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.superseded = true
	e.stopLocked(stopLost, ErrLeaseLost)
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

// nondeterministic quarantines the run and ends the goroutine.
func (e *execution) nondeterministic(format string, args ...any) {
	if !e.mode.writes() {
		e.mu.Lock()
		if e.reason == underWay {
			step, _ := args[0].(string)
			e.verifier.contradictedLocked(step)
		}
		e.mu.Unlock()
		e.fail(failure.Of(failure.KindNondeterminism, fmt.Errorf(format, args...)))
		runtime.Goexit()
	}
	e.fail(failure.Quarantine(failure.KindNondeterminism, fmt.Errorf(format+"; roll the code back or repair it, then Resume the run", args...)))
	runtime.Goexit()
}

func (b *Branch) Nondeterministic(format string, args ...any) { b.e.nondeterministic(format, args...) }

func (e *execution) stopped() bool {
	select {
	case <-e.done:
		return true
	default:
		return false
	}
}

func (e *execution) exitIfStopped() {
	if e.stopped() {
		runtime.Goexit()
	}
}
