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
//   - [kagzi.Queue] moves the run: from then on workers with that queue claim it, at once if it is due. Its [kagzi.Key]
//     belongs to the queue, so it moves, too: the run gives up a slot that it holds, and takes one of the new queue
//     when it goes on. A [kagzi.Group] spans queues, and a run that holds its slot keeps it, and counts in the new
//     queue from then on: a queue whose MaxRunning is used up refuses it with [kagzi.ErrNotWaiting]. With [kagzi.InTx],
//     every queue with a MaxRunning does: its claims would stand still until the transaction ends.
//   - [kagzi.Priority] changes its turn.
//   - [kagzi.At] and [kagzi.Delay] say when it is due: Delay(0) is now. They are for pending runs, also those that wait
//     for their next attempt. A run that sleeps is woken by what it waits for, and a run that waits for the previous
//     one of its schedule by the end of that: both are refused with [kagzi.ErrNotWaiting]. The [kagzi.Timeout] of a run
//     that has never begun counts from the new time. A run that has begun is due by its deadline at the latest. If the
//     run has an open [kagzi.Debounce] or [kagzi.Batch], the next start of that decides anew.
//   - [kagzi.Version] sends the run to handlers of that version. The code must lead a run that has begun to the same
//     steps as before: check it with [kagzi.Worker.Replay]. With [kagzi.DefaultVersion], the worker that claims the run
//     next says which version it is, as for a new run.
//   - [kagzi.Metadata] replaces all tags; an empty one removes them. The run's code goes on to see its own: see
//     [kagzi.SetMetadata].
//
// It also takes [kagzi.Reason], [kagzi.Actor] and [kagzi.InTx]. The run's log says what was changed, from what to what.
// If all values are as they were already, nothing is recorded.
//
// Update returns once the change is stored. It returns [kagzi.ErrNotWaiting] if a worker executes the run or the new
// queue has no place for it, [kagzi.ErrRunFinished] if the run is over, was cancelled, or is being compensated, and
// [kagzi.ErrNotFound]. Without an option that changes something it is an error.
func (c *Client) Update(ctx context.Context, ref kagzi.Ref, opts ...UpdateOption) error {
	if err := c.core.Made(); err != nil {
		return err
	}
	at := core.RefOf(ref)
	cfg, err := updateOptions(opts, core.EveryVerb)
	if err == nil {
		return c.update(ctx, at, cfg)
	}
	return failure.Wrap(err, "update %v", at)
}

// UpdateAll updates the runs that f selects, like [Client.Update]. Without f.Status these are the pending and sleeping
// ones, and with [kagzi.At] or [kagzi.Delay] the pending ones. It skips those that have the values already. It takes
// [DryRun], and is otherwise like [Client.CancelAll].
func (c *Client) UpdateAll(ctx context.Context, f kagzi.RunFilter, opts ...UpdateOption) (BulkResult, error) {
	if err := c.core.Made(); err != nil {
		return BulkResult{}, err
	}
	cfg, err := updateOptions(opts, core.Takes("DryRun"))
	v := verb{
		name: "update all", to: []kagzi.Status{kagzi.StatusPending, kagzi.StatusSleeping}, tx: cfg.Tx, dry: cfg.Dry,
		do: func(ctx context.Context, tx pgx.Tx, run kagzi.RunID) (kagzi.RunID, error) {
			cfg.Tx = tx
			return "", c.update(ctx, run.Core(), cfg)
		},
	}
	if cfg.Update.SetDue {
		v.to = []kagzi.Status{kagzi.StatusPending}
	}
	v.same = func(r *store.Run) bool { return same(&cfg.Update, r) }
	return c.bulk(ctx, f, v, err)
}

func (c *Client) update(ctx context.Context, at core.Ref, cfg core.UpdateConfig) error {
	tx, id, err := c.core.ResolveToChange(ctx, cfg.Tx, at)
	var due []store.DueRun
	if err == nil {
		due, err = c.core.Store.Runs.Update(ctx, tx, id, cfg.Update, cfg.Why)
	}
	waits, sleeps := errors.AsType[*store.NotDueByTime](err)
	full, isFull := errors.AsType[*store.QueueFull](err)
	switch {
	case isFull:
		err = failure.Explain(fmt.Sprintf("the run keeps the slot of its group, and so would take one of the %d of "+
			"queue %q, which are all taken: move it when one is free, or to another queue", full.MaxRunning,
			full.Queue), kagzi.ErrNotWaiting)
	case errors.Is(err, store.ErrPlaceInTx):
		err = failure.Explain("the run keeps the slot of its group, and so would take a place of the new queue, "+
			"which has MaxRunning: no worker could claim from that queue until the transaction ends: call Update "+
			"without InTx", kagzi.ErrNotWaiting)
	case sleeps && waits.PreviousRun():
		err = failure.Explain("the run begins when the previous run of its schedule has ended: leave At and Delay "+
			"out, or cancel that run", kagzi.ErrNotWaiting)
	case sleeps && waits.WaitingOn == "":
		err = failure.Explain("the run sleeps, and what it waits for decides when it goes on: leave At and Delay out",
			kagzi.ErrNotWaiting)
	case sleeps:
		err = failure.Explain(fmt.Sprintf("the run sleeps, and what it waits for (%s) decides when it goes on: leave "+
			"At and Delay out", waits.WaitingOn), kagzi.ErrNotWaiting)
	case errors.Is(err, store.ErrRunRunning):
		err = failure.Explain("a worker executes the run: stop it at its next step with admin.Client.PauseRun, "+
			"update it "+
			"when it is pending, and end the pause with admin.Client.UnpauseRun", kagzi.ErrNotWaiting)
	case errors.Is(err, store.ErrRunEnding):
		err = failure.Explain("the run was cancelled or is being compensated", kagzi.ErrRunFinished)
	}
	if err == nil {
		err = c.core.Hints.Due(ctx, tx, due...)
	}
	return c.core.FailedIf(ctx, err, "update %v", at)
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
