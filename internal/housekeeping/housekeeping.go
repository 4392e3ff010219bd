// Package housekeeping does a coordinator's work in one namespace: it fires schedules, ends runs that are over their Timeout
// while no worker takes them, goes on with compensations whose worker has died, declares workers dead and releases their
// runs, and deletes runs that are past their retention.
//
// Any number of coordinators may run at once, in any process: the database decides each of their transactions. Each loop is
// apart from its pass: a pass returns the pause until the next one, and an error if the database failed it.
package housekeeping

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/kagzi/kagzi/internal/goroutine"
	"github.com/kagzi/kagzi/internal/hints"
	"github.com/kagzi/kagzi/internal/outage"
	"github.com/kagzi/kagzi/store"
)

// Config configures New. It has no defaults: the caller fills in all of it, but for the fields that say otherwise.
type Config struct {
	Store  *store.Store
	Hints  *hints.Hints
	Log    *slog.Logger
	Outage *outage.Outage // of the database; the worker that hosts the coordinator shares it

	Interval time.Duration // between two passes of a loop that nothing wakes
	Batch    int           // schedules that one transaction fires
	MaxRuns  int           // runs that it starts

	StaleAfter time.Duration // a coordinator must have seen a worker unresponsive for a third of it
	Grace      time.Duration // a worker without its connection is dead after so long
	NoGrace    bool          // connections say nothing; default: they do

	Retention   store.Retention
	KeepForever bool // no run is deleted; default: Retention says which are

	NoDeadlineGrace bool // such a run ends at once, for a test whose clock stands still; default: workers have some seconds

	Now func() time.Time // the failure detectors' clock, for tests; default: time.Now

	Hosted bool // a worker hosts the coordinator, as others of the fleet do; default: it is alone as far as it knows
}

// A Coordinator does the housekeeping of one namespace. It is made by New.
type Coordinator struct {
	cfg       Config
	schedules chan struct{} // has a value if the schedules are to be read now
	deadlines chan struct{} // has a value if the deadlines are to be read now
	failing   outage.Failures
	unfired   outage.Failures // schedules that fail where others do not
	queued    queuedRuns

	// Each of these belongs to one loop. Run resets them.
	heartbeats  failureDetector
	connections failureDetector
	scan        scan
	overdue     *store.Overdue // how far the deadlines were read; nil: from the first
}

// New returns a coordinator. It does no I/O.
func New(cfg Config) *Coordinator {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Coordinator{
		cfg: cfg, schedules: make(chan struct{}, 1), deadlines: make(chan struct{}, 1),
		failing: outage.Failures{Begins: "kagzi: the coordinator met an error and goes on", Ends: "kagzi: the coordinator meets that error no more"},
		unfired: outage.Failures{Begins: "kagzi: schedules cannot be fired now, and others can", Ends: "kagzi: all schedules can be fired again"},
	}
}

// Run does the housekeeping until ctx ends, and then returns nil. It returns the error of the store if the pool is closed
// before. It may be called again once it has returned, but not twice at once. The schema was found to fit before.
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
	loops.Go(func() { k.repeat(ctx, stop, "free the runs of dead workers", nil, k.CheckHeartbeats) })
	loops.Go(func() { k.repeat(ctx, stop, "delete old runs", nil, k.DeleteOld) })
	if !k.cfg.NoGrace {
		loops.Go(func() { k.repeat(ctx, stop, "watch connections", nil, k.CheckConnections) })
	}
	loops.Wait()
	if cause := context.Cause(ctx); store.Closed(cause) {
		return cause
	}
	return nil
}

// repeat calls pass, which does what, until ctx ends or the pool is closed: again after the pause that pass returns, or when
// woken.
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

// WakeSchedules has the coordinator read the schedules now. It does not block.
func (k *Coordinator) WakeSchedules() { goroutine.Signal(k.schedules) }

// WakeDeadlines has the coordinator read the deadlines now. It does not block.
func (k *Coordinator) WakeDeadlines() { goroutine.Signal(k.deadlines) }
