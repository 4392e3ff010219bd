package kagzi

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/store"
)

// A Child is a run that this one started: see [StartChild]. Any branch of the run that started it may use it.
type Child[Out any] struct{ c *child }

// StartChild starts a run of wf as a child of this one, remembered under name, for which the rules of [Step]'s names
// hold. It returns at once: a thousand children started in a loop are written in a few statements, and what follows is
// recorded after them. Only with an [ID] it waits for the write, and returns [ErrIDConflict] if an active run has the
// ID, whatever its input.
//
// A child is a run like any other, on whatever worker. Its queue is the parent's unless wf's definition or opts name
// one, and so is its priority. It is cancelled when its parent is, or ends, unless it is
// [Detached]. When the run is tried again, or resumed, children that completed or are under way stay. One that failed is
// started anew, as another run, if a step that failed would be tried again, or if nobody had asked for its result.
//
// A child takes no [InTx], because it starts with the record of its start; no [Message]: send it with [Client.Signal] in a
// step; and no [IfActive] or [IfEnded] of its own, while those in wf's definition do not count for it. StartChild returns
// an error for these, for a bad name, option or input, among that [ErrPayloadTooLarge], and if the branch was cancelled.
func StartChild[In, Out any](ctx Context, name string, wf Workflow[In, Out], in In, opts ...StartOption) (*Child[Out], error) {
	b, err := branchOf(ctx)
	if err != nil {
		return nil, err
	}
	call := wf.With(in, opts...)
	call.as = asChild
	c, err := b.startChild(name, call)
	if err != nil {
		return nil, err
	}
	return &Child[Out]{c}, nil
}

// RunChild is [StartChild] and [Child.Result].
func RunChild[In, Out any](ctx Context, name string, wf Workflow[In, Out], in In, opts ...StartOption) (Out, error) {
	c, err := StartChild(ctx, name, wf, in, opts...)
	if err != nil {
		var zero Out
		return zero, err
	}
	return c.Result(ctx)
}

// ID returns the child's run ID; that of a Child which StartChild did not return is empty.
func (c *Child[Out]) ID() RunID {
	if c == nil || c.c == nil {
		return ""
	}
	return RunID(c.c.id.String())
}

// Result waits for the child to end; meanwhile the run holds no goroutine, slot or connection. ctx is the caller's, which
// may be another branch than the one that started the child. The error is a *[RunError] if the child did not complete,
// and stays so even if the child is resumed. It is another if the call is wrong or the branch
// was cancelled.
func (c *Child[Out]) Result(ctx Context) (Out, error) {
	var zero Out
	b, err := branchOf(ctx)
	if err != nil {
		return zero, err
	}
	if c == nil || c.c == nil {
		return zero, b.misuse(errEmptyChild)
	}
	if err := c.c.mayAsk(b); err != nil {
		return zero, err
	}
	row, err := c.c.end(b)
	if err != nil {
		return zero, err
	}
	return childResult[Out](b, c.c, row)
}

// Cancel cancels the child, with its own children, unless it is over. It returns once that is done, or, if the child has
// compensations to run first, asked for; [Child.Result] waits for its end. It is remembered: a replay does not cancel the
// child again, should somebody resume it. Children need no Cancel that were started in a branch which fails, is cancelled or
// loses a [Race]: like those of a run that ends, they are cancelled then, unless they are [Detached].
//
// Cancel returns an error only if the call is wrong or the branch was cancelled.
func (c *Child[Out]) Cancel(ctx Context) error {
	b, err := branchOf(ctx)
	if err != nil {
		return err
	}
	if c == nil || c.c == nil {
		return b.misuse(errEmptyChild)
	}
	if err := c.c.mayAsk(b); err != nil {
		return err
	}
	return c.c.cancel(b)
}

var errEmptyChild = errors.New("kagzi: the Child is empty: its StartChild returned an error, or was not called")

// Results waits until all of the children have ended, and returns their results in order, zero where a child did not
// complete: what failed is in the [BranchErrors], each with the name and index of a child and its *[RunError]. The run is
// woken once, when the last one ends; to act on each as it ends, use [RunChild] in a [Map].
//
// Results returns another error only if the call is wrong or the branch was cancelled.
func Results[Out any](ctx Context, children []*Child[Out]) ([]Out, error) {
	b, err := branchOf(ctx)
	if err != nil {
		return nil, err
	}
	all := make([]*child, len(children))
	for i, c := range children {
		if c == nil || c.c == nil {
			return nil, b.misuse(fmt.Errorf("kagzi: child %d is empty: its StartChild returned an error, or was not called", i))
		}
		if all[i] = c.c; all[i].by.e != b.e {
			return nil, b.misuse(errOtherRun)
		}
	}
	if err := b.awaitAll(all); err != nil {
		return nil, err
	}
	out := make([]Out, len(children))
	var failures BranchErrors
	for i, c := range all {
		row, err := c.end(b) // does not wait
		if err == nil {
			if out[i], err = childResult[Out](b, c, row); err != nil {
				failures = append(failures, &BranchError{Name: c.step, Index: i, Err: err, child: true})
			}
			continue
		}
		return nil, err
	}
	if failures != nil {
		return out, failures
	}
	return out, nil
}

// childResult is the result that row has, the record of the child's end.
func childResult[Out any](b *branch, c *child, row *store.StepRow) (out Out, err error) {
	if row.Status != store.Completed {
		return out, c.failure(b, row)
	}
	if err := b.e.s.cfg.client.decode(row.Output, &out); err != nil {
		b.e.nondeterministic("the recorded result of child %q does not decode into %v: %v", c.step, reflect.TypeFor[Out](), err)
	}
	return out, nil
}

// A child is a Child with its type taken off.
type child struct {
	by        *branch // that started it
	step      string
	workflow  string
	id        uuid.UUID
	row       *store.StepRow // RUNNING until the end is taken in. The execution's mutex guards it.
	passed    bool           // in the replay of the branch that started it
	detached  bool
	stopped   bool           // this run has cancelled it, or is about to
	cancelled *store.StepRow // the record of Child.Cancel. The execution's mutex guards what is above.
	told      *knownFailure  // once a branch was told that the child failed. The execution's mutex guards it.
}

var errOtherRun = errors.New("kagzi: the child was started by another execution: a Child is of use only in the call of the workflow function that started it")

// ---- starting ----

// startChild starts what call says, or returns the child that the history has.
func (b *branch) startChild(name string, call Call) (*child, error) {
	e := b.e
	id, err := b.enter("child", name)
	if err != nil {
		return nil, err
	}
	c := &child{by: b, step: id, workflow: call.workflow}
	attempt := 1
	if row := b.lookup(id, store.KindChild); row != nil {
		if known, err := c.recall(row, call); known {
			return c, err
		}
		attempt = row.Attempt + 1
	}
	run, cfg, err := e.s.cfg.client.newRun(context.Background(), call, nil)
	if err != nil {
		err = failure.Wrap(err, "child %q", id)
		if errors.Is(err, ErrPayloadTooLarge) { // that is a matter of the data, and not of the code: the function may act on it
			return nil, failure.BadRequest(err)
		}
		return nil, b.misuse(err)
	}
	if run.Queue == "" {
		run.Queue = e.s.cfg.Queue // where this run was claimed from
	}
	if err := b.begins(); err != nil {
		return nil, err
	}
	if b.muted() {
		return nil, errBranchCancelled
	}
	c.id = childID(e.run.RunID, id, attempt, call.workflow, b.now)
	r := e.newRecord(id, store.KindChild, store.Running, attempt, attempt)
	r.ChildRunID, r.Start = c.id, &run
	row := r.StepRow // what is written may still change the record's
	c.row = &row
	e.mu.Lock()
	if !cfg.detached {
		e.offspring[c.id] = true
	}
	c.detached = cfg.detached
	e.children = append(e.children, c)
	e.mu.Unlock()
	if cfg.id == "" {
		b.enqueue(r) // what follows is behind it, the end of the run too
		return c, nil
	}
	if b.write(store.Taken, r) == store.Taken {
		return nil, c.conflict(attempt, cfg.id)
	}
	e.exitIfStopped()
	return c, nil
}

// recall takes in the latest record of the child. It returns false if that is of a failure which this attempt of the run
// is to forget.
func (c *child) recall(row *store.StepRow, call Call) (known bool, err error) {
	b, e := c.by, c.by.e
	if row.Status == store.Failed && e.forgot(row) {
		return false, nil
	}
	if row.Status == store.Failed && row.ChildRunID == uuid.Nil {
		b.passed(row)
		return true, c.taken(row)
	}
	if !ofWorkflow(row.ChildRunID, c.workflow) {
		e.nondeterministic("child %q, run %s, was started as one of another workflow, and the code now uses the name for %q: give the new one another name",
			c.step, row.ChildRunID, c.workflow)
	}
	c.id, c.row = row.ChildRunID, row
	c.stopped = c.cancelledBefore() != nil
	earlier := row.RunAttempt != e.attempt && e.mode.begins() && !b.closed && !c.stopped
	if row.Status == store.Running && earlier && !c.keep(row) {
		return false, nil
	}
	e.mu.Lock()
	c.detached = call.detached()
	e.children = append(e.children, c)
	if c.detached {
		delete(e.offspring, c.id)
	}
	e.mu.Unlock()
	if c.detached {
		c.pass(b, row) // nobody need ask for it
	}
	return true, nil
}

// keep takes a child over from an earlier attempt of the run, unless it failed before this one came to it.
func (c *child) keep(row *store.StepRow) bool {
	e := c.by.e
	e.mu.Lock()
	defer e.mu.Unlock()
	end := e.ends[c.id]
	if end == nil && e.endings[c.id] != nil { // it cannot end well any more
		ending := *e.endings[c.id]
		ending.Status, ending.ErrorKind, ending.Error = store.Cancelled, failure.KindCancelled, "run was cancelled"
		end = &ending
	}
	switch {
	case end == nil: // should it fail from now on, that is a failure of this attempt
		r := e.newRecord(c.step, store.KindChild, store.Running, row.Attempt, row.FirstAttempt)
		r.ChildRunID = c.id
		c.by.root().deferLocked(r, nil)
	case end.Status != store.Completed:
		r := c.ending(end)
		r.RunAttempt = row.RunAttempt
		c.by.root().deferLocked(r, nil)
		return false
	}
	return true
}

// conflict records that the child cannot be started in this attempt of the run.
func (c *child) conflict(attempt int, id ID) error {
	e := c.by.e
	e.mu.Lock()
	delete(e.offspring, c.id)
	e.mu.Unlock()
	r := e.newRecord(c.step, store.KindChild, store.Failed, attempt, attempt)
	r.ErrorKind, r.Error, r.Permanent = failure.KindBadRequest, fmt.Sprintf("the ID %q is an active run's: a child needs one that is free", id), true
	row := c.by.record(r)
	c.by.passed(row)
	e.exitIfStopped()
	return c.taken(row)
}

// taken is the error of a child whose ID was not free.
func (c *child) taken(row *store.StepRow) error {
	c.by.fails(c.step)
	return c.by.e.s.cfg.Errors.Recorded(row, c.workflow)
}

// childID names a child: as before, if the start is repeated because the process died before it was recorded. It has the
// form of a UUIDv7, of which 12 bits tell one workflow from another.
func childID(parent uuid.UUID, step string, attempt int, workflow string, at time.Time) (id uuid.UUID) {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%s/%d", parent, step, attempt))
	copy(id[8:], sum[:])
	binary.BigEndian.PutUint64(id[:8], uint64(at.UnixMilli())<<16|7<<12|uint64(workflowBits(workflow)))
	id[8] = id[8]&0x3f | 0x80
	return id
}

func workflowBits(workflow string) uint16 {
	sum := sha256.Sum256([]byte(workflow))
	return binary.BigEndian.Uint16(sum[:]) & 0xfff
}

// ofWorkflow reports whether id, a child's, may be of a run of workflow.
func ofWorkflow(id uuid.UUID, workflow string) bool {
	return binary.BigEndian.Uint16(id[6:])&0xfff == workflowBits(workflow)
}

// ---- cancelling ----

// cancelStep is the ID under which it is remembered that the run has cancelled the child.
func (c *child) cancelStep() string { return store.CancelID(c.step) }

// cancelledBefore returns the record of the child's cancel, nil if there is none. One of another run of the same step, which
// an earlier attempt of this run had started, does not count.
func (c *child) cancelledBefore() *store.StepRow {
	row := c.by.e.history[c.cancelStep()]
	if row == nil || string(row.Output) != strconv.Quote(c.id.String()) {
		return nil
	}
	return row
}

// cancel cancels the child for b, once. The record comes after: should the process die in between, the child is cancelled
// again, which changes nothing.
func (c *child) cancel(b *branch) error {
	e := b.e
	if b.ctx.Err() != nil {
		return context.Cause(b.ctx)
	}
	e.mu.Lock()
	row := c.cancelledBefore()
	if row == nil {
		row = c.cancelled
	}
	e.mu.Unlock()
	if row != nil {
		b.follow()
		b.advance(row.FinishedAt)
		return nil
	}
	b.looked = lookedUp{id: c.step, kind: kindCancel}
	if err := b.begins(); err != nil {
		return err
	}
	b.follow()
	if b.writeAll(); !e.cancelStarted(c.id) {
		e.exitIfStopped()
	}
	attempt := 1
	if row := e.history[c.cancelStep()]; row != nil {
		attempt = row.Attempt + 1
	}
	r := e.newRecord(c.cancelStep(), store.KindMarker, store.Completed, attempt, attempt)
	r.Output = strconv.AppendQuote(nil, c.id.String())
	row = b.record(r)
	e.exitIfStopped()
	e.mu.Lock()
	c.stopped, c.cancelled = true, row
	e.mu.Unlock()
	b.advance(row.FinishedAt)
	return nil
}

// cancelStarted cancels children whose starts are recorded. It ends the execution and returns false if the lease is lost.
func (e *execution) cancelStarted(children ...uuid.UUID) bool {
	holds := e.insist(func() error {
		ended, err := e.s.store.CancelStarted(e.s.background, e.held(), children)
		if err == nil {
			_ = e.s.cfg.Hints.Cancelled(e.s.noWait, nil, ended) // fails only in a transaction
		}
		return err
	})
	if !holds {
		e.stop(stopLost, ErrLeaseLost)
	}
	return holds
}

// cancelChildrenBelow cancels the children that were started on the branches, which have ended, and on those below them. Why
// the branches have ended is recorded before: by writes what is not. Of a run that dies meanwhile the next execution does it.
func (e *execution) cancelChildrenBelow(by *branch, branches ...*branch) {
	var ids []uuid.UUID
	e.mu.Lock()
	for _, c := range e.children {
		active := c.row.Status == store.Running && e.ends[c.id] == nil && e.endings[c.id] == nil && !c.stopped && !c.detached
		if active && slices.ContainsFunc(branches, c.by.under) {
			ids = append(ids, c.id)
			c.stopped = true
		}
	}
	e.mu.Unlock()
	if by.muted() { // it records nothing any more, but for the decision that has muted it
		by = by.root()
	}
	if ids != nil && e.mode.cancels() && by.allWritten() {
		e.cancelStarted(ids...)
	}
}

// ---- the end ----

// mayAsk says what is wrong if b must not ask for the child's end. It exits the goroutine if the execution has ended.
func (c *child) mayAsk(b *branch) error {
	if !b.owned() {
		return b.foreign()
	}
	b.e.exitIfStopped()
	if c.by.e != b.e {
		return b.misuse(errOtherRun)
	}
	return nil
}

// end returns the record of the child's end, waiting for it.
func (c *child) end(b *branch) (*store.StepRow, error) {
	for {
		row, on, err := c.takeIn(b)
		if err != nil {
			return nil, err
		}
		if row != nil && b.outlived(row.FinishedAt) {
			return nil, errBranchCancelled
		}
		if row != nil {
			c.pass(b, row)
			return row, nil
		}
		if err := b.waitFor(&wait{why: "child " + c.step, need: 1, child: true}, on, 0); err != nil {
			return nil, err
		}
	}
}

// bigOutput is how many bytes of a child's output are written at once, instead of with what follows.
const bigOutput = 64 << 10

// takeIn returns the record of the child's end if that is known, and else the event of it. The end that is looked at
// first is the one that counts, so the first look is recorded, with whatever the execution writes next, because any branch
// may have been told.
func (c *child) takeIn(b *branch) (*store.StepRow, *event, error) {
	e := b.e
	e.mu.Lock()
	if c.row.Status != store.Running {
		defer e.mu.Unlock()
		return c.row, nil, nil
	}
	end := e.ends[c.id]
	if end == nil {
		defer e.mu.Unlock()
		return nil, e.arrivalLocked(c.id.String()), nil
	}
	if b.muted() || b.closed || b.ctx.Err() != nil {
		e.mu.Unlock()
		return nil, nil, cmp.Or[error](b.cancelled(), errBranchCancelled)
	}
	r := c.ending(end)
	if b.now.After(r.EndedAt) {
		r.EndedAt = b.now
	}
	row := r.StepRow
	row.FinishedAt = r.EndedAt
	c.row = &row
	b.live.Store(true)
	big := len(r.Output) > bigOutput
	if !big {
		b.root().deferLocked(r, nil)
	}
	e.mu.Unlock()
	if big {
		b.root().enqueue(r) // which no race mutes
	}
	return &row, nil, nil
}

// ending prepares the record of the child's end. What did not complete has its status for an output.
func (c *child) ending(end *store.ChildEnd) *store.Record {
	r := c.by.e.newRecord(c.step, store.KindChild, store.Completed, c.row.Attempt, c.row.FirstAttempt)
	r.ChildRunID, r.Output, r.EndedAt = c.id, end.Output, end.FinishedAt
	if end.Status != store.Completed {
		r.Status, r.Output, r.ErrorKind, r.Error = store.Failed, fmt.Appendf(nil, "%q", end.Status), end.ErrorKind, end.Error
	}
	return r
}

// failure is the error of a child that did not complete.
func (c *child) failure(b *branch, row *store.StepRow) error {
	e := b.e
	e.mu.Lock()
	if c.told == nil {
		c.told = b.failsLocked(c.step)
	} else { // what has followed the first time has followed
		b.unfollowed = append(b.unfollowed, c.told)
	}
	e.mu.Unlock()
	return e.s.cfg.Errors.Recorded(row, c.workflow)
}

// pass notes that b has come past the child's record.
func (c *child) pass(b *branch, row *store.StepRow) {
	b.advance(row.FinishedAt)
	if b == c.by && !c.passed {
		c.passed = true
		b.replay()
	}
}

// awaitAll waits until all of the children have ended, with one wake-up for all of them.
func (b *branch) awaitAll(children []*child) error {
	e := b.e
	if !b.owned() {
		return b.foreign()
	}
	e.exitIfStopped()
	left, seen := slices.Clone(children), map[*child]bool{}
	left = slices.DeleteFunc(left, func(c *child) bool {
		again := seen[c] // who is counted twice would be waited for in vain
		seen[c] = true
		return again
	})
	for {
		e.mu.Lock()
		past := e.anyEnd.fired
		left = slices.DeleteFunc(left, func(c *child) bool {
			return c.row.Status != store.Running || e.ends[c.id] != nil
		})
		e.mu.Unlock()
		if len(left) == 0 {
			return nil
		}
		why := "child " + left[0].step
		if len(left) > 1 {
			why += fmt.Sprintf(" and %d more", len(left)-1)
		}
		if err := b.waitFor(&wait{why: why, need: len(left), child: true}, &e.anyEnd, past); err != nil {
			return err
		}
	}
}
