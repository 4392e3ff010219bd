package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/core"
	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/text"
	"github.com/kagzi/kagzi/store"
)

// A BulkResult is the result of a bulk verb for the runs that its filter selected.
type BulkResult struct {
	Matched int                         // how many runs the filter selected, and the verb tried
	Changed []kagzi.RunID               // newest first; with [DryRun] the runs that would be changed
	New     map[kagzi.RunID]kagzi.RunID // for RestartAll and ForkAll, the new run of each old one; empty with [DryRun]
	// the runs that were not changed, each with the reason: ErrRunActive, for one, if it was resumed meanwhile
	Skipped map[kagzi.RunID]error
}

// CancelAll cancels the active runs that f selects, like [kagzi.Client.Cancel].
//
// The bulk verbs process runs from new to old, page by page, and change each run in a transaction of its own. A run
// that cannot be changed is skipped with its error. If the database fails, or ctx ends, they return the result so far
// with the error; another call does the rest. With [kagzi.InTx] all changes are in that transaction: limit it by
// f.Limit. The verbs take [kagzi.InTx], [kagzi.Reason], [kagzi.Actor] and [DryRun], CancelAll also [kagzi.Grace]. They
// are safe for concurrent use.
//
// f must have a condition: one without any is refused. A zero f.Limit means no limit. Without f.Status, f selects the
// runs to which the verb applies.
func (r Runs) CancelAll(ctx context.Context, f kagzi.RunFilter, opts ...kagzi.ChangeOption) (BulkResult, error) {
	cfg, err := core.Changes(opts, core.Takes("Grace", "DryRun"))
	v := verb{
		name: "cancel all", to: active, tx: cfg.Tx, dry: cfg.Dry,
		do: func(ctx context.Context, tx pgx.Tx, run kagzi.RunID) (kagzi.RunID, error) {
			cfg.Tx = tx
			return "", r.core.Cancel(ctx, run.Core(), &cfg)
		},
	}
	return r.bulk(ctx, f, v, err)
}

// TerminateAll ends the active runs that f selects, like [Runs.Terminate]. It is otherwise like [Runs.CancelAll].
func (r Runs) TerminateAll(ctx context.Context, f kagzi.RunFilter, opts ...kagzi.ChangeOption) (BulkResult, error) {
	cfg, err := core.Changes(opts, core.Takes("DryRun"))
	v := verb{
		name: "terminate all", to: active, tx: cfg.Tx, dry: cfg.Dry,
		do: func(ctx context.Context, tx pgx.Tx, run kagzi.RunID) (kagzi.RunID, error) {
			cfg.Tx = tx
			return "", r.terminate(ctx, run.Core(), cfg)
		},
	}
	return r.bulk(ctx, f, v, err)
}

// ResumeAll resumes the failed and cancelled runs that f selects, like [Runs.Resume], with [Forget] too. It is
// otherwise like [Runs.CancelAll].
func (r Runs) ResumeAll(ctx context.Context, f kagzi.RunFilter, opts ...kagzi.ChangeOption) (BulkResult, error) {
	cfg, err := core.Changes(opts, core.Takes("Forget", "DryRun"))
	v := verb{
		name: "resume all", to: []kagzi.Status{kagzi.StatusFailed, kagzi.StatusCancelled}, activates: true, tx: cfg.Tx,
		dry: cfg.Dry, do: func(ctx context.Context, tx pgx.Tx, run kagzi.RunID) (kagzi.RunID, error) {
			cfg.Tx = tx
			return "", r.resume(ctx, run.Core(), cfg)
		},
	}
	return r.bulk(ctx, f, v, err)
}

// RestartAll restarts the runs that f selects and that are over, completed ones too, like [Runs.Restart]. It is
// otherwise like [Runs.CancelAll], except that another call after an error would restart the runs in Changed again,
// unless their ID is taken. Continue with f.After instead: the oldest run in Changed and Skipped, which is the one with
// the smallest RunID.
func (r Runs) RestartAll(ctx context.Context, f kagzi.RunFilter, opts ...RestartOption) (BulkResult, error) {
	cfg, err := r.restartOptions(ctx, opts, core.Takes("DryRun"))
	v := verb{
		name: "restart all", to: over, activates: true, tx: cfg.Tx, dry: cfg.Dry,
		do: func(ctx context.Context, tx pgx.Tx, run kagzi.RunID) (kagzi.RunID, error) {
			cfg.Tx = tx
			return r.restart(ctx, run.Core(), cfg)
		},
	}
	return r.bulk(ctx, f, v, err)
}

// ForkAll forks the runs that f selects and that are over from step on, like [Runs.Fork]. It is otherwise like
// [Runs.RestartAll].
func (r Runs) ForkAll(ctx context.Context, f kagzi.RunFilter, step string,
	opts ...RestartOption,
) (BulkResult, error) {
	cfg, err := r.restartOptions(ctx, opts, core.Takes("DryRun", "InheritCompensations"))
	v := verb{
		name: "fork all", to: over, activates: true, tx: cfg.Tx, dry: cfg.Dry,
		do: func(ctx context.Context, tx pgx.Tx, run kagzi.RunID) (kagzi.RunID, error) {
			cfg.Tx = tx
			return r.fork(ctx, run.Core(), step, cfg)
		},
	}
	return r.bulk(ctx, f, v, errors.Join(err, validateStepID(step)))
}

// A verb is the change that a bulk makes to each run.
type verb struct {
	name      string
	to        []kagzi.Status // that it applies to
	activates bool           // it takes the run's ID
	tx        pgx.Tx         // the caller's; nil: each run is changed in a transaction of its own
	dry       bool           // each change is rolled back
	do        func(ctx context.Context, tx pgx.Tx, run kagzi.RunID) (as kagzi.RunID, err error)

	idle func(*store.Run) error // says that the change would change nothing of a run; nil: it always would
}

var (
	active = []kagzi.Status{kagzi.StatusPending, kagzi.StatusRunning, kagzi.StatusSleeping}
	over   = []kagzi.Status{kagzi.StatusCompleted, kagzi.StatusFailed, kagzi.StatusCancelled}
)

// inapplicable are the errors for which a bulk skips a run.
var inapplicable = []error{
	kagzi.ErrNotFound, kagzi.ErrRunFinished, kagzi.ErrRunActive, kagzi.ErrIDConflict, ErrCompensated,
	ErrNotWaiting,
	ErrRunNeeded, errUnchanged, errNotPaused,
}

// bulkPage is how many runs one query selects.
const bulkPage = 100

// bulk applies v to the runs that f selects. err is the error of the call's options.
func (r Runs) bulk(ctx context.Context, f kagzi.RunFilter, v verb, err error) (BulkResult, error) {
	b := &bulk{core: r.core, verb: v, made: map[kagzi.RunID]bool{}, taken: map[string]bool{}}
	if err == nil {
		err = r.core.Usable(ctx)
	}
	if err == nil {
		err = b.run(ctx, f)
	}
	if err != nil {
		return b.out, failure.Wrap(r.core.Public(ctx, err), "%s", v.name)
	}
	return b.out, nil
}

// A bulk is a verb under way.
type bulk struct {
	core  *core.Client
	verb  verb
	out   BulkResult
	made  map[kagzi.RunID]bool // new runs: the filter may choose them, if an older one's ID is of a clock that is ahead
	taken map[string]bool      // IDs that runs have taken which a dry run has not changed
}

func (b *bulk) run(ctx context.Context, f kagzi.RunFilter) error {
	if !chooses(&f) && (f.After != "" || f.Limit != 0) {
		return errors.New("kagzi: the filter only has After or Limit, which select no runs: say which runs; Status " +
			"alone selects all runs with that status")
	}
	if !chooses(&f) {
		return errors.New("kagzi: the filter is empty: say which runs; Status alone selects all runs with that status")
	}
	if len(f.Status) == 0 {
		f.Status = b.verb.to
	}
	chosen, err := f.Core(b.core)
	if err == nil {
		err = b.core.CheckSchema(ctx, b.verb.tx)
	}
	if err == nil {
		b.verb.tx, err = b.core.Store.CheckedTx(ctx, b.verb.tx)
	}
	for left := f.Limit; err == nil; left -= chosen.Limit {
		chosen.Limit = bulkPage
		if f.Limit > 0 {
			chosen.Limit = min(left, bulkPage)
		}
		if chosen.Limit == 0 {
			return nil
		}
		page, err := b.core.Inspect.List(ctx, b.verb.tx, chosen)
		if err != nil {
			return err
		}
		for _, r := range page {
			if err := b.one(ctx, r); err != nil {
				return err
			}
		}
		if len(page) < chosen.Limit {
			return nil
		}
		chosen.After = page[len(page)-1].RunID
	}
	return err
}

// one applies the verb to one run. It returns an error only if the others are not to be tried.
func (b *bulk) one(ctx context.Context, r *store.Run) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	id := kagzi.RunID(r.RunID.String())
	if b.made[id] {
		return nil
	}
	b.out.Matched++
	var as kagzi.RunID
	var err error
	if b.verb.idle != nil {
		err = b.verb.idle(r)
	}
	if err == nil {
		as, err = b.apply(ctx, id, r.ExternalID)
	}
	if slices.ContainsFunc(inapplicable, func(reason error) bool { return errors.Is(err, reason) }) {
		if b.out.Skipped == nil {
			b.out.Skipped = map[kagzi.RunID]error{}
		}
		b.out.Skipped[id] = err
		return nil
	}
	if err != nil {
		return err
	}
	b.out.Changed = append(b.out.Changed, id)
	if as != "" {
		if b.out.New == nil {
			b.out.New = map[kagzi.RunID]kagzi.RunID{}
		}
		b.out.New[id] = as
		b.made[as] = true
	}
	return nil
}

func (b *bulk) apply(ctx context.Context, id kagzi.RunID, externalID string) (as kagzi.RunID, err error) {
	switch {
	case b.verb.dry:
		if b.taken[externalID] {
			return "", failure.Wrap(failure.Explain("a newer run with the same ID is changed first, and then "+
				"holds the ID", kagzi.ErrIDConflict), "%s: %s", b.verb.name, id)
		}
		err = b.core.Store.DryRun(ctx, b.verb.tx, func(ctx context.Context, tx pgx.Tx) error {
			_, err := b.verb.do(ctx, tx, id)
			return err
		})
		if err == nil && b.verb.activates && externalID != "" {
			b.taken[externalID] = true
		}
	case b.verb.tx != nil:
		err = b.core.Store.InSavepoint(ctx, b.verb.tx, func(ctx context.Context, tx pgx.Tx) (err error) {
			as, err = b.verb.do(ctx, tx, id)
			return err
		})
	default:
		as, err = b.verb.do(ctx, nil, id)
	}
	return as, err
}

// chooses reports whether the filter has a condition.
func chooses(f *kagzi.RunFilter) bool {
	return len(f.Status)+len(f.Metadata) > 0 || f.Workflow != "" || f.Queue != "" || f.ID != "" || f.Parent != "" ||
		f.Schedule != "" || f.Key != "" || f.Group != "" ||
		f.Kind != "" || f.WaitingOn != "" || !f.Since.IsZero() || !f.Until.IsZero() || !f.EndedSince.IsZero() ||
		!f.EndedUntil.IsZero() || f.Paused ||
		f.ErrorText != "" || len(f.IDs) > 0 || f.MinRecoveries > 0
}

// validateStepID refuses an ID that no step can have.
func validateStepID(step string) error {
	switch {
	case step == "":
		return errors.New("kagzi: the step is empty: to begin at the beginning, use admin.Runs.Restart")
	case strings.HasPrefix(step, "#") || strings.Contains(step, "/#") ||
		strings.HasSuffix(step, store.CompensationID("")):
		return fmt.Errorf("kagzi: %s is a record of Kagzi's own: give a step of the workflow function",
			text.Quote(step))
	case !utf8.ValidString(step) || strings.IndexFunc(step, unicode.IsControl) >= 0:
		return fmt.Errorf("%w: the name has characters that no step's has", core.ErrStepNotFound)
	}
	return nil
}
