package kagzi

import (
	"context"
	"errors"
	"time"

	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/store"
)

// overdueGrace is how long a run may be over its Timeout before a coordinator ends it. A worker that has room takes the
// run when it becomes due, which is at its deadline at the latest; and the lease of one that executes it ends three seconds
// later.
const overdueGrace = 5 * time.Second

// endOverdue ends the runs that are over their Timeout and that no worker executes: nobody serves their queue, or their
// version, or all slots there are taken; and those that were cancelled, by when their worker should have ended them.
func (k *Coordinator) endOverdue(ctx context.Context) (time.Duration, error) {
	if k.ending == nil {
		k.ending = &store.Overdue{Grace: k.grace, Kind: string(KindDeadline), Error: failure.Text(errDeadline)}
	}
	o, ended := k.ending, 0
	var failure error
	for more := true; more && ctx.Err() == nil; {
		var out *store.CancelledRuns
		var err error
		if out, more, err = k.client.store.EndOverdue(ctx, o); err != nil && !more {
			return 0, errors.Join(failure, err) // and the next pass goes on from here
		}
		failure = errors.Join(failure, err)
		ended += len(out.Ended)
		_ = k.client.hints.Cancelled(ctx, nil, out) // fails only in a transaction
	}
	if ended > 0 {
		k.client.cfg.Logger.Info("kagzi: runs were over their Timeout, and no worker took them: they are ended", "runs", ended)
	}
	if ctx.Err() == nil {
		k.ending = nil
	}
	return k.cfg.Interval, failure
}

// compensate takes the next steps of runs that wait for nothing but that: who should have taken them has died.
func (k *Coordinator) compensate(ctx context.Context) (time.Duration, error) {
	ids, err := k.client.store.DueCompensations(ctx, mostCompensated)
	if err == nil {
		err = k.client.hints.CompensateAll(ctx, ids)
	}
	if len(ids) == mostCompensated {
		return 0, err
	}
	return k.cfg.Interval, err
}

// mostCompensated is how many runs one pass looks at.
const mostCompensated = 100
