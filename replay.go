package kagzi

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/core"
	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/replay"
)

// Replay executes the worker's code for a run that is over against the run's history. It returns nil if the code
// reaches the same end: the same result, or an error of the same kind and text. Else it returns a *[DivergenceError]
// with the first difference. It writes nothing and calls no step function. The worker need not run.
//
// If a cancel or a Timeout ended the run, the code must repeat the recorded part. A recorded step that the code no
// longer reaches is no divergence by itself. A new step is one, unless [AllowAdditions] is given.
//
// A [Version] selects another handler. Replay returns [ErrNotFound], [ErrRunActive], and an error if there is no
// handler or ctx ends. See docs/testing.md.
func (w *Worker) Replay(ctx context.Context, ref Ref, opts ...HandleOption) error {
	at := core.RefOf(ref)
	if err := w.made(); err != nil {
		return err
	}
	if err := errors.Join(w.mistakes...); err != nil {
		return err
	}
	cfg, err := handleOptions(opts, "Version", "AllowAdditions")
	if err != nil {
		return failure.Wrap(err, "replay %v", at)
	}
	run, err := w.client.runOf(ctx, at)
	if err != nil {
		return failure.Wrap(w.client.Core().Public(ctx, err), "replay %v", at)
	}
	if !Status(run.Status).Ended() {
		return failure.Wrap(ErrRunActive, "replay %v", at)
	}
	if run.StartedAt.IsZero() { // no code has seen it
		return nil
	}
	version := cmp.Or(cfg.Version, run.Version)
	h := w.handlers[run.Type][version]
	if h == nil {
		return failure.Wrap(fmt.Errorf("kagzi: the worker has no handler for version %d of workflow %q: give it one "+
			"with kagzi.Handle and kagzi.Version", version, run.Type), "replay %v", at)
	}
	histories, err := w.client.core.Store.Histories.Latest(ctx, []uuid.UUID{run.RunID})
	if err != nil {
		return failure.Wrap(err, "replay %v", at)
	}
	diverged, err := replay.Verify(ctx, w.session().Env, run, histories[run.RunID], h, cfg.Additions)
	if err != nil {
		return failure.Wrap(err, "replay %s", run.RunID)
	}
	if diverged != nil {
		return &DivergenceError{
			Run: RunID(run.RunID.String()), Workflow: run.Type, Version: run.Version, Step: diverged.Step,
			Message: diverged.Message,
		}
	}
	return nil
}

// AllowAdditions makes a replay accept operations (steps, sleeps, waits, children and branches) that are missing from
// the history: to reach one is no divergence. The replay does not check what the code does after it on the same branch.
func AllowAdditions() HandleOption { return allowAdditions{} }

type allowAdditions struct{}
