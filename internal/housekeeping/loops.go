package housekeeping

import (
	"context"
	"sync"
	"time"

	"github.com/kagzi/kagzi/internal/outage"
	"github.com/kagzi/kagzi/store"
)

// Run does the housekeeping until ctx ends, and then returns nil. If the pool is closed first, it returns the store's error.
// Run may be called again after it has returned, but never concurrently. The caller has checked that the schema fits.
func (k *Coordinator) Run(ctx context.Context) error {
	k.heartbeats, k.connections, k.scan, k.overdue = failureDetector{}, failureDetector{}, scan{}, nil
	release := k.cfg.Hints.Listen()
	defer release()
	defer k.cfg.Hints.OnSchedules(k.WakeSchedules)()
	defer k.cfg.Hints.JoinCoordinator(k)()

	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var loops sync.WaitGroup
	loops.Go(func() { k.repeat(ctx, stop, fireSchedules, k.schedules, k.FireSchedules) })
	loops.Go(func() { k.repeat(ctx, stop, "end overdue runs", k.deadlines, k.EndOverdue) })
	loops.Go(func() { k.repeat(ctx, stop, "run compensations", nil, k.Compensate) })
	loops.Go(func() { k.repeat(ctx, stop, "release the runs of dead workers", nil, k.CheckHeartbeats) })
	loops.Go(func() { k.repeat(ctx, stop, "delete old runs", nil, k.DeleteOld) })
	if !k.cfg.NoGrace {
		loops.Go(func() { k.repeat(ctx, stop, "check connections", nil, k.CheckConnections) })
	}
	loops.Wait()
	if cause := context.Cause(ctx); store.Closed(cause) {
		return cause
	}
	return nil
}

// repeat calls pass until ctx ends or the pool is closed: after the pause that pass returned, or as soon as wake has a value.
// It logs the errors of pass under the name what.
func (k *Coordinator) repeat(ctx context.Context, stop context.CancelCauseFunc, what string, wake <-chan struct{}, pass func(context.Context) (time.Duration, error)) {
	for ctx.Err() == nil {
		pause, err := pass(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case store.Closed(err):
			stop(err)
			return
		case store.Unavailable(err) && !store.Answered(err):
			k.cfg.Outage.Begin(err)
			pause = outage.Pause
		case err != nil:
			k.failing.Note(k.cfg.Log, what, err)
			pause = min(k.cfg.Interval, time.Second)
		default:
			k.cfg.Outage.End()
			k.failing.Over(k.cfg.Log, what)
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
		case <-wake:
		case <-timer.C:
		}
		timer.Stop()
	}
}
