package housekeeping

import (
	"context"
	"time"
)

// maxCompensated is how many runs one pass reads.
const maxCompensated = 100

// Compensate takes the next steps of runs that wait only for their compensations to go on: the worker that should have taken
// these steps has died.
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
