package housekeeping

import (
	"context"
	"time"
)

// maxCompensated is the most runs that one pass reads.
const maxCompensated = 100

// Compensate continues the runs that wait only for the next step of their compensations, because the worker that should have
// taken it has died.
func (k *Coordinator) Compensate(ctx context.Context) (time.Duration, error) {
	ids, err := k.cfg.Store.DueCompensations(ctx, maxCompensated)
	if err == nil {
		err = k.cfg.Hints.CompensateAll(ctx, ids)
	}
	if len(ids) == maxCompensated {
		return 0, err
	}
	return k.cfg.Interval, err
}
