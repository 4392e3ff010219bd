package kagzi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/kagzi/kagzi/internal/duration"
	"github.com/kagzi/kagzi/internal/housekeeping"
	"github.com/kagzi/kagzi/internal/outage"
	"github.com/kagzi/kagzi/internal/testhook"
	"github.com/kagzi/kagzi/internal/text"
	"github.com/kagzi/kagzi/internal/valid"
	"github.com/kagzi/kagzi/internal/worker"
	"github.com/kagzi/kagzi/migrations"
	"github.com/kagzi/kagzi/store"
)

// CoordinatorConfig configures [NewCoordinator]; the zero value works.
type CoordinatorConfig struct {
	// Interval is how often the coordinator checks for workers without heartbeats (more often if StaleAfter is short),
	// for runs that are over their Timeout, and for schedules that changed without a notification. Schedules do not
	// wait for it: they fire when they are due. Zero means 5 seconds.
	Interval time.Duration

	// Batch is how many schedules are fired in one transaction. Zero means 100.
	Batch int

	// MaxRuns is how many runs one of those transactions starts at the most; further due runs follow at once. Zero
	// means 1,000.
	MaxRuns int

	// StaleAfter is three times as long as the coordinator must itself observe that a worker sends no heartbeats,
	// before it declares the worker dead. The worker must also have been silent for its own WorkerConfig.StaleAfter.
	// After an outage in which the coordinator could not check, it begins to observe anew, because the outage may have
	// kept all workers from sending heartbeats. Zero means 30 seconds, or the StaleAfter of the worker that hosts the
	// coordinator.
	StaleAfter time.Duration

	// KeepCompleted is how long completed runs are kept after their end, with their steps, inputs and results; they are
	// deleted some minutes later. A child is kept as long as the run that started it. Zero means 7 days.
	//
	// Each coordinator obeys its own configuration, also the one that a worker hosts: a program that leaves the field
	// out deletes after 7 days the runs that another keeps for a year. Put the configuration in one package that all
	// programs of a namespace share.
	KeepCompleted time.Duration

	// KeepFailed is the same for failed and cancelled runs, which can be resumed until then. Zero means 30 days.
	KeepFailed time.Duration

	// Keep overrides both by the name of the workflow: its runs are kept that long, however they ended. A very long
	// time, such as 100*365*24*time.Hour, keeps them forever. A name that no run has does nothing.
	Keep map[string]time.Duration

	// KeepAudit is how long entries of the audit log are kept: see admin.Client.Audit. As with KeepCompleted, each
	// coordinator obeys its own configuration. Zero means 90 days.
	KeepAudit time.Duration

	// KeepForever keeps this coordinator from deleting runs and entries of the audit log. Others obey their own
	// configuration.
	KeepForever bool

	// KeepEvents is how long the events of topics are kept at least; they are removed up to a sixth of that time later,
	// or later still while a transaction that publishes stays open. If the namespaces of a database keep them for
	// different times, the longest counts for all. At least a minute. Zero means 7 days.
	KeepEvents time.Duration

	// KeepPendingEvents is how long an event is kept that a consumer of its topic has not consumed. Those that were
	// published within some days of it stay, too, because events are removed together. As with KeepEvents, the longest
	// time counts. At least KeepEvents. Zero means 30 days, or KeepEvents if that is longer.
	KeepPendingEvents time.Duration

	// Grace is how long the connection over which a worker sends its heartbeats may be missing at the server, with no
	// heartbeat over another one, before the worker is declared dead. A live worker reconnects at once. Connections of
	// workers behind a pooler are not considered. The option [Grace] of Client.Cancel is another one: it is about steps
	// under way. At least 1.5 seconds. Zero means 3 seconds.
	Grace time.Duration

	// NoGrace disables that rule: then only missing heartbeats count.
	NoGrace bool
}

func (c CoordinatorConfig) withDefaults() CoordinatorConfig {
	c.Interval = cmp.Or(c.Interval, 5*time.Second)
	c.Batch = cmp.Or(c.Batch, 100)
	c.MaxRuns = cmp.Or(c.MaxRuns, 1000)
	c.StaleAfter = cmp.Or(c.StaleAfter, 30*time.Second)
	c.KeepCompleted = cmp.Or(c.KeepCompleted, housekeeping.KeepCompleted)
	c.KeepFailed = cmp.Or(c.KeepFailed, housekeeping.KeepFailed)
	c.KeepAudit = cmp.Or(c.KeepAudit, 90*24*time.Hour)
	c.KeepEvents = cmp.Or(c.KeepEvents, 7*24*time.Hour)
	c.KeepPendingEvents = cmp.Or(c.KeepPendingEvents, max(30*24*time.Hour, c.KeepEvents))
	c.Keep = maps.Clone(c.Keep) // the caller's may change
	for workflow, d := range c.Keep {
		c.Keep[workflow] = min(d, duration.Longest)
	}
	for _, d := range []*time.Duration{
		&c.KeepCompleted, &c.KeepFailed, &c.KeepAudit, &c.KeepEvents,
		&c.KeepPendingEvents,
	} {
		*d = min(*d, duration.Longest) // longer means without end
	}
	c.Grace = cmp.Or(c.Grace, 3*time.Second)
	return c
}

// contradiction reports fields that have no effect beside others. Defaults are not set yet.
func (c CoordinatorConfig) contradiction() error {
	switch {
	case c.KeepForever && (c.KeepCompleted != 0 || c.KeepFailed != 0 || c.KeepAudit != 0 || len(c.Keep) > 0):
		return errors.New("kagzi: KeepForever is set beside KeepCompleted, KeepFailed, KeepAudit or Keep: choose one")
	case c.NoGrace && c.Grace != 0:
		return errors.New("kagzi: Grace and NoGrace are set: choose one")
	default:
		return nil
	}
}

func (c CoordinatorConfig) validate() error {
	var errs []error
	check := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf("kagzi: "+format, args...))
		}
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{{"Interval", c.Interval}, {"StaleAfter", c.StaleAfter}} {
		check(d.value < time.Millisecond, "%s is %v: give at least 1ms (a time.Duration counts nanoseconds: "+
			"30*time.Second)", d.name, d.value)
		errs = append(errs, duration.CheckLength(d.name, d.value))
	}
	errs = append(errs, duration.CheckLength("Grace", c.Grace))
	check(c.Grace < worker.LeastGrace, "Grace is %v: give at least %v, or set NoGrace (a time.Duration counts "+
		"nanoseconds: 3*time.Second)", c.Grace, worker.LeastGrace)
	check(c.Batch < 1 || c.Batch > 10_000, "Batch is %d: give between 1 and 10,000", c.Batch)
	check(c.MaxRuns < 1 || c.MaxRuns > 100_000, "MaxRuns is %d: give between 1 and 100,000", c.MaxRuns)
	keep := func(name string, d time.Duration) {
		check(d < time.Second, "%s is %v: give at least 1s (a time.Duration counts nanoseconds: 7*24*time.Hour), or "+
			"set KeepForever", name, d)
	}
	keep("KeepCompleted", c.KeepCompleted)
	keep("KeepFailed", c.KeepFailed)
	keep("KeepAudit", c.KeepAudit)
	check(c.KeepEvents < time.Minute, "KeepEvents is %v: give at least 1m (a time.Duration counts nanoseconds: "+
		"7*24*time.Hour)", c.KeepEvents)
	check(c.KeepPendingEvents < c.KeepEvents, "KeepPendingEvents is %v, and KeepEvents %v: give at least as much",
		c.KeepPendingEvents, c.KeepEvents)
	for _, name := range slices.Sorted(maps.Keys(c.Keep)) {
		if err := valid.Name("workflow in Keep", name); err != nil {
			errs = append(errs, err)
		}
		keep("Keep of workflow "+text.Quote(name), c.Keep[name])
	}
	return errors.Join(errs...)
}

// A Coordinator does the housekeeping of its client's namespace: it fires schedules, releases the runs of dead workers,
// ends runs over their [Timeout] that no worker takes, continues compensations whose worker has died, and deletes runs
// past their retention. A run over its Timeout ends, or begins to compensate, within ten seconds by default.
//
// Every [Worker] hosts one unless configured not to. Any number may run at once, in any process:
// transactions in the database make sure that each thing is done once.
type Coordinator struct {
	client  *Client
	cfg     CoordinatorConfig
	outage  *outage.Outage
	house   *housekeeping.Coordinator
	running atomic.Bool // Run has been called, and has not returned
}

// NewCoordinator returns a coordinator of c's namespace. It does no I/O: it validates cfg.
func NewCoordinator(c *Client, cfg CoordinatorConfig) (*Coordinator, error) {
	if err := c.Core().Made(); err != nil {
		return nil, err
	}
	if err := cfg.contradiction(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	o := outage.New(c.cfg.Logger.With("coordinator", c.cfg.Namespace), c.core.Hints.Reconnect)
	return &Coordinator{client: c, cfg: cfg, outage: o, house: housekeeping.New(cfg.housekeeping(c, o))}, nil
}

// housekeeping returns the configuration of a coordinator of c's namespace that no worker hosts.
func (c CoordinatorConfig) housekeeping(client *Client, o *outage.Outage) housekeeping.Config {
	return housekeeping.Config{
		Store: client.core.Store, Hints: client.core.Hints, Log: client.cfg.Logger, Outage: o,
		Schema:   migrations.Version(),
		Interval: c.Interval, Batch: c.Batch, MaxRuns: c.MaxRuns, StaleAfter: c.StaleAfter, Grace: c.Grace,
		NoGrace: c.NoGrace,
		Keep: housekeeping.Keep{
			Runs:    store.Retention{Completed: c.KeepCompleted, Failed: c.KeepFailed, Workflows: c.Keep},
			Forever: c.KeepForever, Audit: c.KeepAudit, Events: c.KeepEvents, PendingEvents: c.KeepPendingEvents,
		},
		Intercept: client.intercepts.schedule(),
	}
}

// Run does the housekeeping until ctx ends, and then returns nil. It returns an error if it cannot work: because of a
// schema that does not fit, missing rights, a database that is read-only when Run begins, or a pool that was closed. If
// the database is away, or becomes read-only later, Run logs that and continues when the database is back. Run logs its
// start and its stop, at level Info. A Coordinator may run again after Run has returned, but not twice at once.
func (k *Coordinator) Run(ctx context.Context) error {
	if k == nil || k.client == nil {
		return errors.New("kagzi: the coordinator is nil or a zero Coordinator: make one with NewCoordinator, and " +
			"check its error")
	}
	if !k.running.CompareAndSwap(false, true) {
		return errors.New("kagzi: the coordinator is running already: make another for more")
	}
	defer k.running.Store(false)
	if err := k.client.core.Prepare(ctx, k.outage); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	house := k.house
	if hooks := testhook.From(ctx); hooks != nil {
		if hooks.NoGrace {
			cfg := k.cfg.housekeeping(k.client, k.outage)
			cfg.NoDeadlineGrace = true
			house = housekeeping.New(cfg)
		}
		if hooks.Passes != nil {
			hooks.Passes(house)
			return nil
		}
	}
	log := k.client.cfg.Logger.With("namespace", k.client.cfg.Namespace)
	if k.cfg.KeepForever {
		log.Info("kagzi: coordinator started", "keep", "forever")
	} else {
		keep := map[string]string{} // durations are texts, because JSON would have nanoseconds
		for workflow, d := range k.cfg.Keep {
			keep[workflow] = d.String()
		}
		log.Info("kagzi: coordinator started", "keep_completed", k.cfg.KeepCompleted.String(), "keep_failed",
			k.cfg.KeepFailed.String(), "keep", keep)
	}
	defer log.Info("kagzi: coordinator stopped")
	if err := house.Run(ctx); err != nil {
		return errors.New("kagzi: the pool was closed while the coordinator was running: close it once Run has " +
			"returned")
	}
	return nil
}
