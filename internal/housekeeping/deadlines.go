package housekeeping

import (
	"context"
	"errors"
	"time"

	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/store"
)

// deadlineGrace is how long a run may be over its Timeout before a coordinator ends it. A worker that has room takes the
// run when it becomes due, which is at its deadline at the latest; and the lease of a worker that executes it ends three
// seconds later.
const deadlineGrace = 5 * time.Second

// EndOverdue ends the runs that are over their Timeout and that no worker executes: nobody serves their queue, or their
// version, or all slots there are taken. It also ends the runs that were cancelled, once their worker should have ended
// them.
func (k *Coordinator) EndOverdue(ctx context.Context) (time.Duration, error) {
	if k.overdue == nil {
		k.overdue = &store.Overdue{Grace: deadlineGrace, Kind: failure.KindDeadline, Error: failure.Text(failure.ErrDeadline)}
		if k.cfg.NoDeadlineGrace {
			k.overdue.Grace = 0
		}
	}
	ended := 0
	var failure error
	for more := true; more && ctx.Err() == nil; {
		var out *store.CancelledRuns
		var err error
		if out, more, err = k.cfg.Store.EndOverdue(ctx, k.overdue); err != nil && !more {
			return 0, errors.Join(failure, err) // the next pass goes on from here
		}
		failure = errors.Join(failure, err)
		ended += len(out.Ended)
		_ = k.cfg.Hints.Cancelled(ctx, nil, out) // fails only in a transaction
	}
	if ended > 0 {
		k.cfg.Log.Info("kagzi: runs were over their Timeout, and no worker took them: they are ended", "runs", ended)
	}
	if ctx.Err() == nil {
		k.overdue = nil
	}
	return k.cfg.Interval, failure
}
