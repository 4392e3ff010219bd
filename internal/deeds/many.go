package deeds

import (
	"context"
	"errors"
	"slices"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
)

var (
	active = []kagzi.Status{kagzi.StatusPending, kagzi.StatusRunning, kagzi.StatusSleeping}
	over   = []kagzi.Status{kagzi.StatusCompleted, kagzi.StatusFailed, kagzi.StatusCancelled}
)

// ErrCancelled is why a run is left out that was to be stopped, and is cancelled already.
var ErrCancelled = errors.New("it is cancelled already")

// Statuses are the names by which readers select statuses, with those that stand for several.
var Statuses = map[string][]kagzi.Status{
	"active":    active,
	"pending":   {kagzi.StatusPending},
	"running":   {kagzi.StatusRunning},
	"sleeping":  {kagzi.StatusSleeping},
	"ended":     over,
	"completed": {kagzi.StatusCompleted},
	"failed":    {kagzi.StatusFailed},
	"cancelled": {kagzi.StatusCancelled},
}

// EveryStatus lets a filter find a run whatever it does.
var EveryStatus = slices.Concat(active, over)

// inapplicable are the errors of a run to which a deed does not apply. Of many runs, that one is skipped.
var inapplicable = []error{
	kagzi.ErrNotFound, kagzi.ErrRunFinished, kagzi.ErrRunActive, kagzi.ErrIDConflict, admin.ErrCompensated,
	admin.ErrNotWaiting, admin.ErrRunNeeded, admin.ErrNoDoubt,
}

// Inapplicable reports whether an error says that a deed does not apply to a run.
func Inapplicable(err error) bool {
	return slices.ContainsFunc(inapplicable, func(reason error) bool { return errors.Is(err, reason) })
}

// Applies asks the database what a deed would do to one run. wrong is why it would change nothing; so reports that the
// run is as it would be.
func (d Deed) Applies(ctx context.Context, a Asked, run kagzi.RunInfo) (so bool, wrong, err error) {
	if d.Many.Stops && run.Status == kagzi.StatusCancelled {
		return true, ErrCancelled, nil
	}
	would, err := d.Many.Dry(ctx, a, kagzi.RunFilter{IDs: []kagzi.RunID{run.ID}, Status: EveryStatus})
	switch {
	case err != nil && Inapplicable(err): // Runs.UnpauseAll returns what the others skip
		return false, err, nil
	case err != nil || slices.Contains(would.Changed, run.ID):
		return false, nil, err
	case would.Skipped[run.ID] == nil:
		return false, kagzi.ErrNotFound, nil
	}
	wrong = would.Skipped[run.ID]
	return !Inapplicable(wrong), wrong, nil
}

// Final reports the end of a run of many: gone says that it has gone with its parent, later that it is to be tried
// once more after its parent.
func (m *Many) Final(err error) (gone, later bool) {
	return m.Ends && errors.Is(err, kagzi.ErrNotFound), m.Ends && errors.Is(err, admin.ErrRunNeeded)
}
