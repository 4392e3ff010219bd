package kagzi

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"github.com/kagzi/kagzi/internal/payloads"
	"github.com/kagzi/kagzi/internal/replay"
	"github.com/kagzi/kagzi/internal/valid"
	"github.com/kagzi/kagzi/store"
)

// A Child is the handle to a run that this run started: see [StartChild]. All branches of the run that started it may
// use it.
type Child[Out any] struct{ c *replay.Child }

// StartChild starts a run of wf as a child of this run, recorded under name. The rules of [Step]'s names apply.
//
// It returns at once, and later operations are recorded after the start. Only with an [ID] it waits for the write, and
// returns [ErrIDConflict] if an active run has the ID, whatever its input.
//
// The child has its parent's queue and priority unless wf's definition or opts give others. Unless it is [Detached], it
// is cancelled when its parent ends.
//
// It takes no [InTx], [Message], [IfActive], [IfEnded], [OncePer], [Debounce] and [WhenFull]; wf's own are ignored.
//
// StartChild returns an error for a wrong call, and if the branch was cancelled. Other refusals, such as
// [ErrPayloadTooLarge], are recorded. See docs/children.md.
func StartChild[In, Out any](ctx Context, name string, wf Workflow[In, Out], in In,
	opts ...StartOption,
) (*Child[Out], error) {
	b, client, err := branchOf(ctx)
	if err != nil {
		return nil, err
	}
	call := wf.With(in, opts...)
	call.as, call.inherited = asChild, b.Headers()
	call.metadata = func() Metadata { return b.Metadata() }
	cfg, err := call.config(nil)
	c, err := b.StartChild(replay.ChildSpec{
		Name: name, BadName: valid.StepName("child", name), Workflow: call.workflow, Detached: cfg.run.Detached,
		Run: func() (store.NewRun, bool, error) {
			if err != nil {
				return store.NewRun{}, payloads.IsRefused(err), err
			}
			run, err := client.newRun(context.Background(), call, &cfg)
			return run, payloads.IsRefused(err), err
		},
		Intercept: client.intercepts.child(),
	})
	if err != nil {
		return nil, err
	}
	return &Child[Out]{c}, nil
}

// RunChild is [StartChild] followed by [Child.Result].
func RunChild[In, Out any](ctx Context, name string, wf Workflow[In, Out], in In, opts ...StartOption) (Out, error) {
	c, err := StartChild(ctx, name, wf, in, opts...)
	if err != nil {
		var zero Out
		return zero, err
	}
	return c.Result(ctx)
}

// ID returns the child's run ID, or "" if StartChild did not return c.
func (c *Child[Out]) ID() RunID {
	if c == nil || c.c == nil {
		return ""
	}
	return RunID(c.c.ID().String())
}

// Result waits for the child to end and returns its result. Meanwhile the run holds no goroutine, slot or connection.
// ctx is the caller's, which may be another branch than the one that started the child. The error is a *[RunError] if
// the child did not complete, and stays the same even if the child is resumed. Result returns another error only if the
// call is wrong or the branch was cancelled.
func (c *Child[Out]) Result(ctx Context) (Out, error) {
	var zero Out
	b, client, err := branchOf(ctx)
	if err != nil {
		return zero, err
	}
	if c == nil || c.c == nil {
		return zero, b.Misuse(errEmptyChild)
	}
	row, err := c.c.Result(b)
	if err != nil {
		return zero, err
	}
	return childResult[Out](b, client, row)
}

// Cancel cancels the child, and the child's own children, unless it is over. It returns once the child is cancelled,
// or, if the child must run compensations first, once the cancel is requested; [Child.Result] waits for its end. The
// cancel is recorded: if an operator resumes the child, a replay does not cancel it again. A child needs no Cancel if
// the branch that started it fails, is cancelled or loses a [Race]: it is cancelled then, like the children of a run
// that ends, unless it is [Detached].
//
// Cancel returns an error only if the call is wrong or the branch was cancelled.
func (c *Child[Out]) Cancel(ctx Context) error {
	b, _, err := branchOf(ctx)
	if err != nil {
		return err
	}
	if c == nil || c.c == nil {
		return b.Misuse(errEmptyChild)
	}
	return c.c.Cancel(b)
}

var errEmptyChild = errors.New("kagzi: the Child is empty: its StartChild returned an error, or was not called")

// Results waits until all children have ended, and returns their results in order, zero where a child did not complete.
// The error is then a [BranchErrors], with name, index and *[RunError] of each child that did not complete. The run is
// woken once, when the last child ends; to act on each as it ends, use [RunChild] in a [Map].
//
// Results returns another error only if the call is wrong or the branch was cancelled.
func Results[Out any](ctx Context, children []*Child[Out]) ([]Out, error) {
	b, client, err := branchOf(ctx)
	if err != nil {
		return nil, err
	}
	all := make([]*replay.Child, len(children))
	for i, c := range children {
		if c == nil || c.c == nil {
			return nil, b.Misuse(fmt.Errorf("kagzi: child %d is empty: its StartChild returned an error, or was "+
				"not called", i))
		}
		all[i] = c.c
	}
	ends, err := b.ChildResults(all)
	if err != nil {
		return nil, err
	}
	out := make([]Out, len(children))
	var failures BranchErrors
	for i, end := range ends {
		if end.Err != nil {
			failures = append(failures, &BranchError{Name: end.Step, Index: i, Err: end.Err, child: true})
		} else if out[i], err = childResult[Out](b, client, end.Row); err != nil {
			return nil, err
		}
	}
	if failures != nil {
		return out, failures
	}
	return out, nil
}

// childResult decodes the result in row, the record of the child's end.
func childResult[Out any](b *replay.Branch, c *Client, row *store.StepRow) (out Out, err error) {
	if err := c.core.Payloads.Decode(row.Output, &out); err != nil {
		b.Nondeterministic(row.StepID, "the recorded result of child %q does not decode into %v: %v", row.StepID,
			reflect.TypeFor[Out](), err)
	}
	return out, nil
}
