package kagzi

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/core"
	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/store"
)

// A Run is the handle to one run. It is safe for concurrent use.
type Run[Out any] struct {
	client   *Client
	workflow string
	id       RunID
	existed  bool
}

// ID returns Kagzi's name for the run.
func (r *Run[Out]) ID() RunID {
	if r == nil {
		return ""
	}
	return r.id
}

// Core is for Kagzi's own packages.
func (r *Run[Out]) Core() core.Ref { return r.ID().Core() }
func (r *Run[Out]) ref()           {}

// made returns an error unless Start or Find returned r.
func (r *Run[Out]) made() error {
	if r == nil || r.client == nil {
		return errors.New("kagzi: the run is nil or a zero Run: Start and Find return one, unless they return an error")
	}
	return nil
}

// String returns the run ID, which is how a [Ref] prints.
func (r *Run[Out]) String() string { return string(r.ID()) }

// Existed reports whether Start found the run instead of creating it.
func (r *Run[Out]) Existed() bool { return r != nil && r.existed }

// Info reads the run's row.
func (r *Run[Out]) Info(ctx context.Context) (RunInfo, error) {
	if err := r.made(); err != nil {
		return RunInfo{}, err
	}
	return r.client.Get(ctx, r.id)
}

// Result waits for the run to end and returns its result. The error is a *[RunError] if the run did not complete.
//
// Any other error means that the wait ended early, because ctx ended, the run was not found ([ErrNotFound]) or the
// database returned the same error again and again; or that the run completed, and its result does not open ([Sealer])
// or decode into Out. While the database is away, Result keeps waiting. Before the commit of its [InTx], a run is not
// found.
//
// In a step, prefer a child: see [RunChild]. The step holds its slot of the worker while it waits, and the run may need
// one: see docs/hanging.md.
func (r *Run[Out]) Result(ctx context.Context) (Out, error) {
	var out Out
	if err := r.made(); err != nil {
		return out, err
	}
	id, err := uuid.Parse(string(r.id))
	if err != nil {
		return out, failure.Wrap(core.ErrRunNotFound, "result of %s", r.id)
	}
	defer core.AwaitsRun(ctx, id)()
	end, err := r.client.core.Hints.Result(ctx, id)
	if errors.Is(err, store.ErrRunNotFound) {
		err = r.client.core.Absent(ctx, core.ErrRunNotFound)
	}
	if err != nil {
		return out, failure.Wrap(err, "result of %s %s", r.workflow, r.id)
	}
	if Status(end.Status) != StatusCompleted {
		return out, &RunError{
			Run: r.id, Workflow: end.Type, Status: Status(end.Status), Kind: kind.Kind(end.ErrorKind),
			Message: end.Error, details: r.client.core.Payloads.DetailsOf(end.Output, nil),
		}
	}
	if err := r.client.core.Payloads.Decode(end.Output, &out); err != nil {
		return out, fmt.Errorf("kagzi: result of %s %s: does not decode into %T: %w", r.workflow, r.id, out, err)
	}
	return out, nil
}

// Cancel is [Client.Cancel] of this run.
func (r *Run[Out]) Cancel(ctx context.Context, opts ...ChangeOption) error {
	if err := r.made(); err != nil {
		return err
	}
	return r.client.Cancel(ctx, r.id, opts...)
}
