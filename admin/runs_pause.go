package admin

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/core"
	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/store"
)

// Pause pauses an active run: no worker claims it, and one that executes it stops at the next step, sleep, wait or
// child, and keeps the result of the step under way. Its children go on. A cancel ends the pause, and the run's
// [kagzi.Timeout] goes on. It returns [kagzi.ErrRunFinished] if the run is over or about to end. It takes [kagzi.InTx],
// [kagzi.Reason] and [kagzi.Actor].
func (r Runs) Pause(ctx context.Context, ref kagzi.Ref, opts ...kagzi.ChangeOption) error {
	at := core.RefOf(ref)
	cfg, err := core.Changes(opts, core.EveryVerb)
	if err == nil {
		err = r.pause(ctx, at, cfg)
	}
	return r.core.FailedIf(ctx, err, "pause %v", at)
}

func (r Runs) pause(ctx context.Context, at core.Ref, cfg core.ChangeConfig) error {
	tx, id, err := r.core.ResolveToChange(ctx, cfg.Tx, at)
	if err == nil {
		err = r.core.Store.Pauses.PauseRun(ctx, tx, id, cfg.Why)
	}
	if errors.Is(err, store.ErrRunEnding) {
		err = failure.Explain("the run was cancelled or is being compensated", kagzi.ErrRunFinished)
	}
	if err == nil {
		err = r.core.Hints.Changed(ctx, tx, id)
	}
	return err
}

// Unpause ends the pause of a run. Pauses of its queue, its workflow, its key and its group stay. It does nothing to
// a run that is not paused itself. It returns [kagzi.ErrRunFinished] if the run is over. It takes [kagzi.InTx],
// [kagzi.Reason] and [kagzi.Actor].
func (r Runs) Unpause(ctx context.Context, ref kagzi.Ref, opts ...kagzi.ChangeOption) error {
	at := core.RefOf(ref)
	cfg, err := core.Changes(opts, core.EveryVerb)
	if err == nil {
		err = r.unpause(ctx, at, cfg)
	}
	return r.core.FailedIf(ctx, err, "unpause %v", at)
}

func (r Runs) unpause(ctx context.Context, at core.Ref, cfg core.ChangeConfig) error {
	tx, id, err := r.core.ResolveToChange(ctx, cfg.Tx, at)
	var run store.DueRun
	if err == nil {
		run, err = r.core.Store.Pauses.UnpauseRun(ctx, tx, id, cfg.Why)
	}
	if err == nil {
		err = r.core.Hints.Changed(ctx, tx, id)
	}
	if err == nil {
		err = r.core.Hints.Due(ctx, tx, run)
	}
	return err
}

// errNotPaused is why UnpauseAll skips an active run.
var errNotPaused = errors.New("kagzi: the run is not paused itself")

// UnpauseAll is [Runs.Unpause] for the active runs that f selects, the newest first, like [Runs.CancelAll].
// Runs that are not paused themselves are in Skipped. It takes [kagzi.InTx], [kagzi.Reason], [kagzi.Actor] and
// [DryRun].
func (r Runs) UnpauseAll(ctx context.Context, f kagzi.RunFilter, opts ...kagzi.ChangeOption) (BulkResult, error) {
	cfg, err := core.Changes(opts, core.Takes("DryRun"))
	v := verb{
		name: "unpause all", to: active, tx: cfg.Tx, dry: cfg.Dry,
		do: func(ctx context.Context, tx pgx.Tx, run kagzi.RunID) (kagzi.RunID, error) {
			cfg.Tx = tx
			return "", r.core.FailedIf(ctx, r.unpause(ctx, run.Core(), cfg), "unpause %v", run.Core())
		},
		idle: func(r *store.Run) error {
			if r.PausedAt.IsZero() && r.FinishedAt.IsZero() {
				return errNotPaused
			}
			return nil
		},
	}
	return r.bulk(ctx, f, v, err)
}
