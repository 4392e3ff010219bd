package housekeeping

import (
	"context"
	"errors"
	"time"

	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/store"
)

// deadlineGrace is how long after its deadline a coordinator ends a run. A worker with a free slot claims the run when
// it becomes due, at its deadline at the latest, and the lease of a worker that executes it ends three seconds later.
const deadlineGrace = 5 * time.Second

// EndOverdue ends the runs past their deadline that no worker executes, because no worker serves their queue or
// version, or all slots are taken. It also ends cancelled runs that their worker should have ended by now, and runs
// that no worker has begun in time.
func (k *Coordinator) EndOverdue(ctx context.Context) (time.Duration, error) {
	pause, err := k.endOverdue(ctx, &k.overdue, store.Overdue{
		Grace: deadlineGrace, Kind: string(kind.Deadline), Error: failure.Text(failure.ErrDeadline),
	})
	if ctx.Err() != nil {
		return pause, err
	}
	other, failed := k.endOverdue(ctx, &k.unbegun, store.Overdue{
		Begin: true, Kind: string(kind.Deadline), Error: failure.Text(failure.ErrNotBegun),
	})
	return min(pause, other), errors.Join(err, failed)
}

// endOverdue ends the runs of a pass, which begins as given unless one is under way.
func (k *Coordinator) endOverdue(ctx context.Context, pass **store.Overdue,
	given store.Overdue,
) (time.Duration, error) {
	if *pass == nil {
		*pass = &given
		if k.cfg.NoDeadlineGrace {
			given.Grace = 0
		}
	}
	ended := 0
	var failure error
	for more := true; more && ctx.Err() == nil; {
		var out *store.CancelledRuns
		var err error
		if out, more, err = k.cfg.Store.Ends.EndOverdue(ctx, *pass); err != nil && !more {
			return 0, errors.Join(failure, err) // the next pass goes on from here
		}
		failure = errors.Join(failure, err)
		ended += len(out.Ended)
		_ = k.cfg.Hints.Cancelled(ctx, nil, out) // fails only in a transaction
	}
	if ended > 0 {
		k.cfg.Log.Info("kagzi: ended runs while no worker executed them", "runs", ended, "because", given.Error)
	}
	if ctx.Err() == nil {
		*pass = nil
	}
	return k.cfg.Interval, failure
}
