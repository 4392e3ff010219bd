package housekeeping

import (
	"context"
	"sync"
	"time"

	"github.com/kagzi/kagzi/internal/outage"
	"github.com/kagzi/kagzi/internal/pg"
)

// Run does the housekeeping until ctx ends, and then returns nil. If the pool is closed first, it returns the store's
// error. Run may be called again after it has returned, but never concurrently. The caller has checked that the schema
// fits.
func (k *Coordinator) Run(ctx context.Context) error {
	k.heartbeats, k.connections, k.scan, k.overdue, k.unbegun = failureDetector{}, failureDetector{}, scan{}, nil, nil
	k.awaited.tellings = nil
	k.leadership.begin()
	k.leadership.leading.Store(false)
	release := k.cfg.Hints.Listen()
	defer release()
	defer k.cfg.Hints.OnSchedules(k.WakeSchedules)()
	defer k.cfg.Hints.OnAwaited(k.WakeAwaited)()
	defer k.cfg.Hints.OnLead(k.leadership.hear)()
	defer k.cfg.Hints.JoinCoordinator(k)()

	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var retention sync.WaitGroup
	retention.Go(func() { k.repeat(ctx, stop, deleteOld, nil, k.DeleteOld) })
	for ctx.Err() == nil {
		k.work(ctx, stop)
		k.leadership.awaitTurn(ctx)
		k.resume()
	}
	retention.Wait()
	k.resign(ctx)
	if cause := context.Cause(ctx); pg.Closed(cause) {
		return cause
	}
	return nil
}

// work runs the loops that one coordinator of a namespace is enough for, until ctx ends or a senior coordinator works.
// Passes under way then are finished.
func (k *Coordinator) work(ctx context.Context, stop context.CancelCauseFunc) {
	working, rest := context.WithCancel(ctx)
	defer rest()
	var loops sync.WaitGroup
	loop := func(what string, wake <-chan struct{}, pass func(context.Context) (time.Duration, error)) {
		loops.Go(func() {
			k.repeat(working, stop, what, wake, func(context.Context) (time.Duration, error) { return pass(ctx) })
		})
	}
	loop(fireSchedules, k.schedules, k.FireSchedules)
	loop(endOverdue, k.deadlines, k.EndOverdue)
	loop(runCompensations, nil, k.Compensate)
	loop(serveLimits, nil, k.ServeLimits)
	loop(keepKeys, nil, k.KeepKeys)
	loop(rotateEvents, nil, k.RotateEvents)
	loop(recheckConsumers, nil, k.RecheckConsumers)
	loop(tellOfEvents, k.awaited.wake, k.TellOfEvents)
	loop(finishDeletions, nil, k.FinishDeletions)
	loop(releaseRuns, nil, k.CheckHeartbeats)
	if !k.cfg.NoGrace {
		loop("check connections", nil, k.CheckConnections)
	}
	k.leadership.awaitSenior(working)
	rest()
	loops.Wait()
}

// resume prepares the loops for work after a rest. A failure detector that has not checked for long begins anew: its
// gap was a rest, and not an outage.
func (k *Coordinator) resume() {
	now := k.cfg.Now()
	if now.Sub(k.heartbeats.checked) > k.heartbeatsGap() {
		k.heartbeats = failureDetector{}
	}
	if now.Sub(k.connections.checked) > k.connectionsGap() {
		k.connections = failureDetector{}
	}
	k.overdue, k.unbegun = nil, nil
}

// repeat calls pass until ctx ends or the pool is closed: after the pause that pass returned, or as soon as wake has a
// value. It logs the errors of pass under the name what.
func (k *Coordinator) repeat(ctx context.Context, stop context.CancelCauseFunc, what string, wake <-chan struct{},
	pass func(context.Context) (time.Duration, error),
) {
	for ctx.Err() == nil {
		pause, err := pass(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case pg.Closed(err):
			stop(err)
			return
		case pg.Unavailable(err) && !pg.Answered(err):
			k.cfg.Outage.Begin(err)
			k.leadership.failed(what)
			pause = outage.Pause
		case err != nil:
			k.failing.Note(k.cfg.Log, what, err)
			k.leadership.failed(what)
			pause = min(k.cfg.Interval, time.Second)
		default:
			k.cfg.Outage.End()
			k.failing.Over(k.cfg.Log, what)
			k.leadership.passed(what, pause)
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

// resign tells the others that this coordinator stops, so that one of them works at once.
func (k *Coordinator) resign(ctx context.Context) {
	if !k.leadership.leading.Load() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	says := k.leadership.says()
	says.Ends = true
	_ = k.cfg.Hints.Lead(ctx, says) // if it fails, they work a little later
}
