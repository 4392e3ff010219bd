package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/core"
	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/store"
)

// Update changes a run that waits, which is one that is pending or sleeping. What no option names stays as it is:
//
//   - [kagzi.Queue] moves the run, with its [kagzi.Key].
//   - [kagzi.Priority] changes its turn.
//   - [kagzi.At] and [kagzi.Delay] say when a pending run is due: Delay(0) is now.
//   - [kagzi.Version] sends the run to handlers of that version; with [kagzi.DefaultVersion] the worker that claims it
//     next decides.
//   - [kagzi.Metadata] replaces all tags; an empty one removes them.
//
// It also takes [kagzi.Reason], [kagzi.Actor] and [kagzi.InTx]. It returns [ErrNotWaiting] if a worker executes
// the run, or its wait or the new queue does not allow that; [kagzi.ErrRunFinished] if it is over, cancelled or being
// compensated; and [kagzi.ErrNotFound]. See docs/repairing.md.
func (r Runs) Update(ctx context.Context, ref kagzi.Ref, opts ...UpdateOption) error {
	if err := r.core.Made(); err != nil {
		return err
	}
	at := core.RefOf(ref)
	cfg, err := updateOptions(opts, core.EveryVerb)
	if err == nil {
		return r.update(ctx, at, cfg)
	}
	return failure.Wrap(err, "update %v", at)
}

// UpdateAll updates the runs that f selects, like [Runs.Update]. Without f.Status these are the pending and sleeping
// ones, and with [kagzi.At] or [kagzi.Delay] the pending ones. It skips those that have the values already. It takes
// [DryRun], and is otherwise like [Runs.CancelAll].
func (r Runs) UpdateAll(ctx context.Context, f kagzi.RunFilter, opts ...UpdateOption) (BulkResult, error) {
	if err := r.core.Made(); err != nil {
		return BulkResult{}, err
	}
	cfg, err := updateOptions(opts, core.Takes("DryRun"))
	v := verb{
		name: "update all", to: []kagzi.Status{kagzi.StatusPending, kagzi.StatusSleeping}, tx: cfg.Tx, dry: cfg.Dry,
		do: func(ctx context.Context, tx pgx.Tx, run kagzi.RunID) (kagzi.RunID, error) {
			cfg.Tx = tx
			return "", r.update(ctx, run.Core(), cfg)
		},
	}
	if cfg.Update.SetDue {
		v.to = []kagzi.Status{kagzi.StatusPending}
	}
	v.idle = func(r *store.Run) error {
		if same(&cfg.Update, r) {
			return errUnchanged
		}
		return nil
	}
	return r.bulk(ctx, f, v, err)
}

func (r Runs) update(ctx context.Context, at core.Ref, cfg core.UpdateConfig) error {
	tx, id, err := r.core.ResolveToChange(ctx, cfg.Tx, at)
	var due []store.DueRun
	if err == nil {
		due, err = r.core.Store.Runs.Update(ctx, tx, id, cfg.Update, cfg.Why)
	}
	asleep, sleeps := errors.AsType[*store.NotDueByTime](err)
	full, isFull := errors.AsType[*store.QueueFull](err)
	switch {
	case isFull:
		err = failure.Explain(fmt.Sprintf("the run keeps the slot of its group, and so would take one of the %d of "+
			"queue %q, which are all taken: move it when one is free, or to another queue", full.MaxRunning,
			full.Queue), ErrNotWaiting)
	case errors.Is(err, store.ErrPlaceInTx):
		err = failure.Explain("the run keeps the slot of its group, and so would take a place of the new queue, "+
			"which has MaxRunning: no worker could claim from that queue until the transaction ends: call Update "+
			"without InTx", ErrNotWaiting)
	case sleeps && asleep.PreviousRun():
		err = failure.Explain("the run begins when the previous run of its schedule has ended: leave At and Delay "+
			"out, or cancel that run", ErrNotWaiting)
	case sleeps && asleep.WaitingOn == nil:
		err = failure.Explain("the run sleeps, and what it waits for decides when it goes on: leave At and Delay out",
			ErrNotWaiting)
	case sleeps:
		err = failure.Explain(fmt.Sprintf("the run sleeps, and what it waits for (%s) decides when it goes on: leave "+
			"At and Delay out", asleep.WaitingOn), ErrNotWaiting)
	case errors.Is(err, store.ErrRunRunning):
		err = failure.Explain("a worker executes the run: stop it at its next step with admin.Runs.Pause, "+
			"update it "+
			"when it is pending, and end the pause with admin.Runs.Unpause", ErrNotWaiting)
	case errors.Is(err, store.ErrRunEnding):
		err = failure.Explain("the run was cancelled or is being compensated", kagzi.ErrRunFinished)
	}
	if err == nil {
		err = r.core.Hints.Due(ctx, tx, due...)
	}
	return r.core.FailedIf(ctx, err, "update %v", at)
}

// errUnchanged is why UpdateAll skips a run.
var errUnchanged = errors.New("kagzi: the run has these values already")

// same reports whether the update would change nothing of r.
func same(u *store.RunUpdate, r *store.Run) bool {
	if u.SetDue || u.Queue != "" && u.Queue != r.Queue || u.Priority != 0 && u.Priority != r.Priority || u.SetVersion &&
		u.Version != r.Version {
		return false
	}
	var tags, old kagzi.Metadata
	_, _ = json.Unmarshal(u.Metadata, &tags), json.Unmarshal(r.Metadata, &old) // nothing, or a map of strings
	return !u.SetMetadata || maps.Equal(tags, old)
}

// updateOptions validates opts, and refuses those that are not among takes.
func updateOptions(opts []UpdateOption, takes []string) (core.UpdateConfig, error) {
	cfg := core.UpdateConfig{Verb: core.Verb{Given: core.Given{Takes: takes}}}
	core.Each(opts, &cfg.Given, func(o UpdateOption) { o.Update(&cfg) })
	if !cfg.Changes && !cfg.Refused(core.ErrNilOption) {
		cfg.Check(errors.New("kagzi: there is nothing to change: give a Queue, Priority, At, Delay, Version, " +
			"DefaultVersion or Metadata"))
	}
	return cfg, cfg.Wrong()
}
