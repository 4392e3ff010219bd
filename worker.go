package kagzi

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/duration"
	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/housekeeping"
	"github.com/kagzi/kagzi/internal/replay"
	"github.com/kagzi/kagzi/internal/testhook"
	"github.com/kagzi/kagzi/internal/valid"
	"github.com/kagzi/kagzi/internal/worker"
	"github.com/kagzi/kagzi/migrations"
	"github.com/kagzi/kagzi/store"
)

// WorkerConfig configures [NewWorker]; the zero value works.
type WorkerConfig struct {
	// Queue is the queue from which the worker claims runs: those started with the same [Queue]. Zero means "default",
	// unless Queues is set.
	Queue string

	// Queues are several queues from which the worker claims runs, instead of Queue, each with its share of
	// MaxConcurrent. While all of them have due runs, each gets its share: with {"mail": 1, "orders": 3}, three
	// quarters of the runs under way are of orders. A share that its queue does not need goes to the others at once.
	// The worker has the same handlers for all queues. [Worker.AddQueue] and [Worker.RemoveQueue] change the queues
	// while the worker runs.
	Queues map[string]int

	// MaxConcurrent is how many workflow functions are under way at once. A run that sleeps does not count, and one
	// with many branches counts once: [Concurrency] bounds these. Zero means 100.
	MaxConcurrent int

	// LeaseTimeout is how long a claimed run stays with its worker without being extended: its lease. Workers extend it
	// at half-time. A worker calls no step under a lease that is over by its own clock. At least 100 ms; with less than
	// a few seconds, runs change workers whenever the database is slow. Zero means 5 minutes.
	LeaseTimeout time.Duration

	// Heartbeat is the time between two heartbeats. Zero means 10 seconds, or less if LeaseTimeout or StaleAfter is
	// short.
	Heartbeat time.Duration

	// DrainTimeout is how long runs under way may continue once Run's context has ended; then they are returned to the
	// queue. Zero means 30 seconds.
	DrainTimeout time.Duration

	// PollInterval is the time between two queries of the queue when no notification comes. Up to 8 seconds, one
	// coordinator queries for all idle workers of the namespace instead; above, each worker does. Zero means 5 seconds.
	PollInterval time.Duration

	// StaleAfter is how long the worker may send no heartbeat before others declare it dead; the worker itself gives up
	// its runs after two thirds of that time. At least 100 ms; the remark on short times at LeaseTimeout applies here,
	// too. Zero means 30 seconds.
	StaleAfter time.Duration

	// HungAfter is how long code may go on that should return: the function of a step whose ctx has ended, because of
	// its Timeout or for another reason, and a workflow function, or that of a branch, that is in no step, wait or
	// other operation of Kagzi. Then the worker logs its stack once, and shows it in RunInfo.Hung and to
	// admin.Client.Health; it cannot end it. Zero means 10 seconds.
	HungAfter time.Duration

	// FixedLease keeps the worker from extending leases: a run that neither ends nor sleeps within LeaseTimeout goes to
	// another worker. Set it if a run that hangs must not stay with a worker that lives; make LeaseTimeout longer than
	// any run takes without a sleep. A run that takes longer counts in RunInfo.Recoveries although this worker lives.
	// So it is soon treated as one that kills its workers: it is executed alone, after growing pauses, and finally
	// fails with kind.CrashLoop.
	FixedLease bool

	// Build is shown in the registry. Zero means the version of the program's main module.
	Build string

	// Labels are shown in the registry.
	Labels map[string]string

	// Coordinator configures the coordinator that the worker hosts; give all workers of a namespace the same
	// configuration. The worker itself obeys its Grace and NoGrace: it gives up its runs when the connection of its
	// heartbeats is lost and no heartbeat over another is answered within two thirds of Grace, which is at least 1.5
	// seconds.
	Coordinator CoordinatorConfig

	// NoCoordinator keeps the worker from hosting a coordinator. Some process must run one: without any, no schedule
	// fires, a dead worker is noticed only when its leases end, runs that no worker takes do not time out, and nothing
	// is deleted. Of the field Coordinator give only Grace or NoGrace then, as in the coordinators.
	NoCoordinator bool
}

func (c WorkerConfig) withDefaults() WorkerConfig {
	if len(c.Queues) == 0 {
		c.Queues = map[string]int{cmp.Or(c.Queue, "default"): 1}
	}
	c.MaxConcurrent = cmp.Or(c.MaxConcurrent, 100)
	c.LeaseTimeout = cmp.Or(c.LeaseTimeout, 5*time.Minute)
	c.StaleAfter = cmp.Or(c.StaleAfter, 30*time.Second)
	c.Heartbeat = cmp.Or(c.Heartbeat, min(10*time.Second, c.LeaseTimeout/3, c.StaleAfter/3))
	c.DrainTimeout = cmp.Or(c.DrainTimeout, 30*time.Second)
	c.HungAfter = cmp.Or(c.HungAfter, 10*time.Second)
	c.PollInterval = cmp.Or(c.PollInterval, 5*time.Second)
	c.Coordinator.StaleAfter = cmp.Or(c.Coordinator.StaleAfter, c.StaleAfter)
	c.Coordinator = c.Coordinator.withDefaults()
	if c.Build == "" {
		if info, ok := debug.ReadBuildInfo(); ok {
			c.Build = info.Main.Version
		}
	}
	return c
}

// leastLease is as short as StaleAfter and LeaseTimeout may be, and leastHeartbeat as a heartbeat.
const (
	leastLease     = 100 * time.Millisecond
	leastHeartbeat = 10 * time.Millisecond
)

// validate reports mistakes in given alone: c has the defaults, some of which derive from given fields.
func (c WorkerConfig) validate(given WorkerConfig) error {
	var errs []error
	check := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf("kagzi: "+format, args...))
		}
	}
	for _, d := range []struct {
		name  string
		value time.Duration
		least time.Duration
	}{
		{"LeaseTimeout", c.LeaseTimeout, leastLease},
		{"Heartbeat", cmp.Or(given.Heartbeat, time.Second), leastHeartbeat},
		{"DrainTimeout", c.DrainTimeout, time.Microsecond},
		{"PollInterval", c.PollInterval, time.Millisecond},
		{"HungAfter", c.HungAfter, time.Millisecond},
		{"StaleAfter", c.StaleAfter, leastLease},
	} {
		check(d.value < d.least, "%s is %v: give at least %v (a time.Duration counts nanoseconds: 30*time.Second)",
			d.name, d.value, d.least)
		errs = append(errs, duration.CheckLength(d.name, d.value))
	}
	check(c.MaxConcurrent < 1 || c.MaxConcurrent > 100_000, "MaxConcurrent is %d: give between 1 and 100,000",
		c.MaxConcurrent)
	check(given.Heartbeat > 0 && !c.FixedLease && 2*c.Heartbeat > c.LeaseTimeout, "Heartbeat %v is too long to "+
		"extend a LeaseTimeout of %v in time: at most half of it", c.Heartbeat, c.LeaseTimeout)
	check(given.Heartbeat > 0 && 2*c.Heartbeat > c.StaleAfter, "Heartbeat %v is too long for StaleAfter %v: at most "+
		"half of it", c.Heartbeat, c.StaleAfter)
	check(given.Queue != "" && given.Queues != nil, "Queue and Queues are set: give one of them")
	check(given.Queues != nil && len(given.Queues) == 0, "Queues is empty: give at least one queue, or leave it out")
	for _, name := range slices.Sorted(maps.Keys(c.Queues)) {
		errs = append(errs, valid.Share(name, c.Queues[name]))
	}
	if c.Build != "" {
		errs = append(errs, valid.Name("Build", c.Build))
	}
	if c.Labels != nil {
		errs = append(errs, valid.Metadata(c.Labels))
	}
	if given.Coordinator.StaleAfter == 0 {
		c.Coordinator.StaleAfter = max(c.StaleAfter, time.Second)
	}
	if err := c.Coordinator.validate(); err != nil {
		errs = append(errs, failure.Wrap(err, "Coordinator"))
	}
	return errors.Join(errs...)
}

// A Worker executes runs of the workflows it has handlers for.
type Worker struct {
	client     *Client
	cfg        WorkerConfig
	handlers   map[string]map[int]replay.Handler // by workflow and version
	defaults   map[string]int                    // versions given to runs that name none, where it is not the highest
	consumers  []*store.Consumer                 // of which it has handlers
	mistakes   []error
	running    atomic.Bool
	background atomic.Pointer[background] // what Start began last; nil: nothing

	mu      sync.Mutex
	queues  map[string]int  // with their shares
	current *worker.Session // of the Run under way; nil if there is none

	hooks atomic.Pointer[testhook.Hooks] // of the last Run
}

// NewWorker returns a worker without handlers; give it some with [Handle]. It does no I/O: it validates cfg.
func NewWorker(c *Client, cfg WorkerConfig) (*Worker, error) {
	if err := c.Core().Made(); err != nil {
		return nil, err
	}
	err := cfg.Coordinator.contradiction()
	others := cfg.Coordinator
	others.Grace, others.NoGrace = 0, false
	if cfg.NoCoordinator && !reflect.ValueOf(others).IsZero() {
		err = errors.New("kagzi: NoCoordinator is set, so of Coordinator only Grace and NoGrace have a meaning: " +
			"leave the other fields out, or NoCoordinator")
	}
	if err != nil {
		return nil, err
	}
	given := cfg
	cfg = cfg.withDefaults()
	if err := cfg.validate(given); err != nil {
		return nil, err
	}
	return &Worker{
		client: c, cfg: cfg, handlers: map[string]map[int]replay.Handler{}, defaults: map[string]int{},
		queues: maps.Clone(cfg.Queues),
	}, nil
}

// made returns an error unless NewWorker returned w.
func (w *Worker) made() error {
	if w == nil || w.client == nil {
		return errors.New("kagzi: the worker is nil or a zero Worker: make one with NewWorker, and check its error")
	}
	return nil
}

// Run executes runs until ctx ends. Then it claims no more, lets those under way finish for DrainTimeout, gives the
// rest back, and returns nil. End ctx by signal.NotifyContext with os.Interrupt and syscall.SIGTERM, with which
// Kubernetes and systemd stop a process. admin.Workers.Drain does the same, from any process. Step functions get none
// of ctx's values.
//
// Run returns an error if the worker cannot work: because of mistakes made with [Handle], a schema that does not fit,
// missing rights, a database that is read-only when Run begins, or a pool that is too small or closed. It logs a later
// outage or failover, and continues after it.
//
// A Worker may run again after Run has returned, but not twice at once.
func (w *Worker) Run(ctx context.Context) error { return w.run(ctx, func() {}) }

// run is Run, and calls begun once the worker has registered.
func (w *Worker) run(ctx context.Context, begun func()) error {
	if err := w.made(); err != nil {
		return err
	}
	if !w.running.CompareAndSwap(false, true) {
		return errors.New("kagzi: the worker is running already: make another for more")
	}
	defer w.running.Store(false)
	mistakes := w.mistakes
	hooks := testhook.From(ctx)
	if len(w.handlers) == 0 && len(mistakes) == 0 && !(hooks != nil && hooks.NoHandler) {
		mistakes = append(mistakes, errors.New("kagzi: the worker has no handler: call kagzi.Handle or topic.Consume "+
			"first"))
	}
	if most := w.client.core.Store.Pool().Config().MaxConns; most < leastConns {
		mistakes = append(mistakes, fmt.Errorf("kagzi: the pool may open %d connection(s) and a worker needs %d: set "+
			"pool_max_conns", most, leastConns))
	}
	if err := errors.Join(mistakes...); err != nil {
		return err
	}
	w.warnOfSmallPool()
	cfg := w.session()
	cfg.Hooks = hooks
	w.hooks.Store(cfg.Hooks)
	if cfg.Hooks != nil && cfg.Hooks.Config != nil {
		cfg.Hooks.Config(cfg)
		return nil
	}
	var s *worker.Session
	cfg.Beside = func() func(context.Context) {
		remove := w.client.core.Add(s)
		begun()
		return func(ctx context.Context) {
			defer remove()
			w.host(ctx, s, cfg.Hooks)
		}
	}
	s = w.begin(cfg)
	defer w.end()
	if err := w.client.core.Prepare(ctx, s.Outage()); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	return s.Run(ctx)
}

// session returns the configuration of a session of the worker.
func (w *Worker) session() worker.Config {
	c, cfg, fleet := w.client, w.cfg, w.cfg.Coordinator
	s := worker.Config{
		Store: c.core.Store, Hints: c.core.Hints, Logger: c.cfg.Logger, Env: replay.NewEnv(replay.Language{
			Errors: language{&c.core.Payloads}, Shown: c.core.Payloads.Shown, Policy: runPolicy,
			StepContext: c.stepContext, Interceptors: c.intercepts.engine(), TxSlots: c.core.Shared.TxSlots,
		}),
		Queues: cfg.Queues, Handlers: w.handlers, MaxConcurrent: cfg.MaxConcurrent, DrainTimeout: cfg.DrainTimeout,
		Types: w.handled(), PollInterval: cfg.PollInterval, HungAfter: cfg.HungAfter, Presence: worker.Presence{
			Registration: w.registration, Consumers: w.consumers, LeaseTimeout: cfg.LeaseTimeout, Grace: fleet.Grace,
			Heartbeat: cfg.Heartbeat, StaleAfter: cfg.StaleAfter, FixedLease: cfg.FixedLease, NoGrace: fleet.NoGrace,
			Heartbeats: c.core.Shared.Heartbeats,
		}, Room: c.core.Shared.Room,
	}
	if told := c.intercepts.flushed; told != nil {
		s.Flushed = func(runs, writes int, took time.Duration, err error) { told(Flush{runs, writes, took, err}) }
	}
	return s
}

// host hosts a coordinator beside a session until its worker has drained.
func (w *Worker) host(ctx context.Context, s *worker.Session, hooks *testhook.Hooks) {
	if w.cfg.NoCoordinator {
		<-ctx.Done()
		return
	}
	cfg := w.cfg.Coordinator.housekeeping(w.client, s.Outage())
	cfg.Hosted, cfg.NoDeadlineGrace = true, hooks != nil && hooks.NoGrace
	cfg.Keep.Elsewhere = w.client.core.Shared.Deletes
	_ = housekeeping.New(cfg).Run(ctx) // fails only if the pool is closed, which the session notices itself
}

// leastConns is the smallest pool that a worker can use.
const leastConns = store.LeastConns

// runsPerConn is how many runs at once share a connection of the pool at the most without a warning.
const runsPerConn = 10

// warnOfSmallPool warns that steps which use the pool may keep the worker waiting.
func (w *Worker) warnOfSmallPool() {
	conns, shared := w.client.core.Store.Pool().Config().MaxConns, w.client.core.Shared.Room != nil
	if !shared && int(conns)*runsPerConn < w.cfg.MaxConcurrent {
		w.client.cfg.Logger.Warn(fmt.Sprintf("kagzi: the pool is small for so many concurrent runs: steps that use "+
			"it may wait for each other, and delay the worker; set pool_max_conns to at least %d, or lower "+
			"MaxConcurrent", (w.cfg.MaxConcurrent+runsPerConn-1)/runsPerConn),
			"pool_max_conns", conns, "max_concurrent", w.cfg.MaxConcurrent)
	}
}

// handled lists the workflows and versions that the worker can execute.
func (w *Worker) handled() []store.WorkflowVersions {
	var out []store.WorkflowVersions
	for name, versions := range w.handlers {
		h := store.WorkflowVersions{Type: name}
		for v := range versions {
			h.Versions = append(h.Versions, v)
		}
		slices.Sort(h.Versions)
		h.Default = cmp.Or(w.defaults[name], slices.Max(h.Versions))
		out = append(out, h)
	}
	slices.SortFunc(out, func(a, b store.WorkflowVersions) int { return cmp.Compare(a.Type, b.Type) })
	return out
}

// queueNames returns the queues from which the worker claims.
func (w *Worker) queueNames() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Sorted(maps.Keys(w.queues))
}

// Workflows returns the names of the workflows that the worker has handlers for, in their order.
func (w *Worker) Workflows() (names []string) {
	if w == nil {
		return nil
	}
	for _, h := range w.handled() {
		names = append(names, h.Type)
	}
	return names
}

// serves lists the workflows and versions that the worker has handlers for. See fleet.add.
func (w *Worker) serves() []string {
	var out []string
	for _, h := range w.handled() {
		for _, v := range h.Versions {
			out = append(out, fmt.Sprintf("%s/%d", h.Type, v))
		}
	}
	return out
}

// registration returns the row of the worker in the registry.
func (w *Worker) registration(id uuid.UUID) store.Worker {
	reg := store.Worker{
		ID: id, PID: os.Getpid(), Build: w.cfg.Build, Schema: migrations.Version(), MaxConcurrent: w.cfg.MaxConcurrent,
		Handlers: w.serves(), Types: w.Workflows(),
		LeaseTimeout: w.cfg.LeaseTimeout, FixedLease: w.cfg.FixedLease, StaleAfter: w.cfg.StaleAfter,
		Sealed: w.client.cfg.Sealer != nil,
	}
	reg.Hostname, _ = os.Hostname() // for people
	if w.cfg.Labels != nil {
		reg.Labels, _ = json.Marshal(w.cfg.Labels) // a map of strings always encodes
	}
	return reg
}
