package housekeeping

import (
	"context"
	"time"

	"github.com/kagzi/kagzi/internal/pg"
)

// maxCompensated is the most runs that one pass reads.
const maxCompensated = 100

// Compensate continues the runs that wait only for the next step of their compensations, because the worker that should
// have taken it has died, or because the server has refused it. What the server refuses again holds up no other run.
func (k *Coordinator) Compensate(ctx context.Context) (time.Duration, error) {
	ids, err := k.cfg.Store.Ends.DueCompensations(ctx, maxCompensated)
	if err == nil {
		err = k.cfg.Hints.CompensateAll(ctx, ids)
	}
	if pg.Refused(err) { // the run says so, and is due again later
		k.failing.Note(k.cfg.Log, "continue the compensations of some runs", err)
		err = nil
	}
	if len(ids) == maxCompensated {
		return 0, err
	}
	return k.cfg.Interval, err
}
