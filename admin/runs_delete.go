package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/core"
	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/store"
)

// Delete deletes a run that is over, with all that is its own: input, result, steps, messages, log. Its children and
// compensations go with it, except [kagzi.Detached] children. A deletion is for good: a run that may be of use again is
// better kept, and deleted by retention.
//
// [Runs.Log] keeps one entry DELETED, with [kagzi.Reason] and [kagzi.Actor].
//
// Delete returns once the run is gone. It returns [kagzi.ErrRunActive] if the run or a child of it is not over,
// [kagzi.ErrNotFound], and [ErrRunNeeded] for a child, which goes with its parent, and for the last run of a
// topic.Consumer that has not completed.
//
// It deletes large histories in several transactions; with [kagzi.InTx] in that one. See docs/retention.md.
func (r Runs) Delete(ctx context.Context, ref kagzi.Ref, opts ...kagzi.ChangeOption) error {
	at := core.RefOf(ref)
	cfg, err := core.Changes(opts, core.EveryVerb)
	if err == nil {
		_, err = r.delete(ctx, cfg.Tx, at, cfg)
	}
	return r.core.FailedIf(ctx, err, "delete %v", at)
}

// DeleteAll deletes the runs that f selects and that are over, like [Runs.Delete]. A child that f selects is changed
// if its parent is deleted, and otherwise skipped with [ErrRunNeeded]. DeleteAll is otherwise like
// [Runs.CancelAll].
func (r Runs) DeleteAll(ctx context.Context, f kagzi.RunFilter, opts ...kagzi.ChangeOption) (BulkResult, error) {
	cfg, err := core.Changes(opts, core.Takes("DryRun"))
	gone := map[kagzi.RunID]bool{}
	v := verb{
		name: "delete all", to: over, tx: cfg.Tx, dry: cfg.Dry,
		do: func(ctx context.Context, tx pgx.Tx, run kagzi.RunID) (kagzi.RunID, error) {
			if gone[run] {
				return "", nil
			}
			ids, err := r.delete(ctx, tx, run.Core(), cfg)
			if err != nil {
				return "", failure.Wrap(r.core.Public(ctx, err), "delete %s", run)
			}
			for _, id := range ids {
				gone[id] = true
			}
			return "", nil
		},
	}
	out, err := r.bulk(ctx, f, v, err)
	for id := range out.Skipped { // children, which are newer than their parents, came first
		if gone[id] {
			delete(out.Skipped, id)
			out.Changed = append(out.Changed, id)
		}
	}
	slices.SortFunc(out.Changed, func(a, b kagzi.RunID) int { return strings.Compare(string(b), string(a)) })
	return out, err
}

// delete deletes a run, and returns all runs that are deleted with it.
func (r Runs) delete(ctx context.Context, tx pgx.Tx, at core.Ref,
	cfg core.ChangeConfig,
) (gone []kagzi.RunID, err error) {
	tx, id, err := r.core.ResolveToChange(ctx, tx, at)
	if err != nil {
		return nil, err
	}
	ids, err := r.core.Store.Deletions.Delete(ctx, tx, id, cfg.Why, cfg.Dry)
	needed, isNeeded := errors.AsType[*store.NeededRun](err)
	below, isActive := errors.AsType[*store.ActiveBelow](err)
	switch {
	case isNeeded && needed.Consumer != "":
		err = failure.Explain(fmt.Sprintf("it is the last run of consumer %q and has not completed: Resume it, let "+
			"another one begin (Trigger), or delete the consumer first", needed.Consumer), ErrRunNeeded)
	case isNeeded:
		err = failure.Explain(fmt.Sprintf("it is a child of run %s, which needs it: delete that one, and this one "+
			"goes with it unless it is detached", needed.Parent), ErrRunNeeded)
	case isActive:
		err = failure.Explain(fmt.Sprintf("run %s, which is below it, is not over: cancel that one first", below.RunID),
			kagzi.ErrRunActive)
	case errors.Is(err, store.ErrRunActive):
		err = failure.Explain("the run is not over: cancel it first", kagzi.ErrRunActive)
	}
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		gone = append(gone, kagzi.RunID(id.String()))
	}
	if cfg.Dry {
		return gone, nil
	}
	return gone, r.core.Hints.Changed(ctx, tx, ids...)
}
