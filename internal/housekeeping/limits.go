package housekeeping

import (
	"context"
	"errors"
	"time"

	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/store"
)

// ServeLimits calls the runs that wait for a slot of a limit, if one is free: the worker that should have called them
// has died, or the run that had the slot was ended by another process, or was suspended while it got it.
func (k *Coordinator) ServeLimits(ctx context.Context) (time.Duration, error) {
	names, err := k.cfg.Store.Limits.Waiting(ctx)
	for _, name := range names {
		out, e := k.cfg.Store.Limits.Serve(ctx, []string{name}, store.LimitRequest{})
		if !pg.Locked(e) { // otherwise a worker serves it
			err = errors.Join(err, e)
		}
		_ = k.cfg.Hints.Signalled(ctx, nil, out.Called...) // fails only in a transaction
	}
	return k.cfg.Interval, err
}
