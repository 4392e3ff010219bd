package kagzi

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/kagzi/kagzi/store"
)

// overdueGrace is how long a run may be over its Timeout before a coordinator ends it. A worker that has room takes the
// run when it becomes due, which is at its deadline at the latest; and the lease of one that executes it ends three seconds
// later.
const overdueGrace = 5 * time.Second

// overdue says how runs end whose Timeout has passed: as at a worker.
func (k *Coordinator) overdue() *store.Overdue {
	verdict, _ := json.Marshal(undoVerdict{store.Failed, KindDeadline, errorText(errDeadline)}) // strings
	return &store.Overdue{Grace: k.grace, Kind: string(KindDeadline), Error: errorText(errDeadline), Undo: undoStep, Verdict: verdict}
}

// endOverdue ends the runs that are over their Timeout and that no worker executes: nobody serves their queue, or their
// version, or all slots there are taken. Those that have compensations wait for a worker that has their code.
func (k *Coordinator) endOverdue(ctx context.Context) (time.Duration, error) {
	if k.ending == nil {
		k.ending = k.overdue()
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
		_ = k.client.announceEnds(ctx, nil, out) // fails only in a transaction
	}
	if ended > 0 {
		k.client.cfg.Logger.Info("kagzi: runs were over their Timeout, and no worker took them: they are ended", "runs", ended)
	}
	if ctx.Err() == nil {
		k.ending = nil
	}
	return k.cfg.Interval, failure
}
