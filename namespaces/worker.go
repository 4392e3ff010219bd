package namespaces

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/claims"
	"github.com/kagzi/kagzi/internal/core"
	"github.com/kagzi/kagzi/internal/duration"
	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/hints"
	"github.com/kagzi/kagzi/internal/replay"
	"github.com/kagzi/kagzi/internal/valid"
	"github.com/kagzi/kagzi/store/inspect"
)

// A Config configures [NewWorker]. Handle is required.
type Config struct {
	// Handle gives the worker of a namespace its handlers, by kagzi.Handle and topic.Consume. Each namespace gets the
	// same workflows. client is that of the namespace, for handlers that start or find runs.
	//
	// NewWorker calls Handle once, with the namespace "default". Run calls it each time that a namespace gets a worker,
	// never twice at once. Handle must not use the database, because other namespaces wait meanwhile. If it returns an
	// error, Run logs that, and tries again at the next search.
	Handle func(worker *kagzi.Worker, client *kagzi.Client) error

	// Client configures the client of each namespace. Leave its Namespace empty.
	Client kagzi.ClientConfig

	// Worker configures the worker of each namespace. Its MaxConcurrent is how many runs of all namespaces together are
	// under way at once. Zero means 100. Its Coordinator deletes old runs of all namespaces that are served.
	// NoCoordinator is not allowed. A process that dies is noticed after StaleAfter: set that shorter than its 30
	// seconds if runs must go on sooner.
	Worker kagzi.WorkerConfig

	// Serve reports whether to serve a namespace. It is called often, from several goroutines, and must not block. Once
	// it returns false, the worker of the namespace drains. Nil means that all are served, also those of other services
	// that share the database: their schedules fire, and their old runs are deleted.
	Serve func(namespace string) bool

	// Every is the time from one search for namespaces with work to the next. A notification of new work needs no
	// search. Searches take no more than a tenth of the time: those that take long are rarer. Zero means a second.
	Every time.Duration

	// Idle is how long a namespace without work keeps its worker at least. Zero means 10 seconds.
	Idle time.Duration
}

// A Worker executes the runs of all namespaces of a database that have work. [Worker.Run] blocks. All other methods are
// safe for concurrent use.
type Worker struct {
	pool      *pgxpool.Pool
	cfg       Config
	workflows []string // of which each namespace's worker has handlers
	queues    []string
	line      *hints.Line
	shared    core.Shared
	log       *slog.Logger

	mu      sync.Mutex
	running bool
	clients map[string]*kagzi.Client
	tenants map[string]*tenant // those that have a worker
	wanted  map[string]bool    // of which a notification has come, and which have no worker
	hinted  chan struct{}      // wanted has changed, or a search is to come now
}

// NewWorker returns a worker of the pool's database. It does no I/O: it validates cfg, and calls Handle once. It
// returns an error if cfg is not valid, or if Handle returns one or gives the worker no handler. The pool must stay
// open until Run has returned.
func NewWorker(pool *pgxpool.Pool, cfg Config) (*Worker, error) {
	cfg, err := cfg.validated(pool)
	if err != nil {
		return nil, err
	}
	log := cmp.Or(cfg.Client.Logger, slog.Default())
	w := &Worker{
		pool: pool, cfg: cfg, line: hints.NewLine(pool, failure.SafeLogger(log)), log: failure.SafeLogger(log),
		queues: []string{cmp.Or(cfg.Worker.Queue, "default")},
		shared: core.Shared{
			Room: claims.NewRoom(cmp.Or(cfg.Worker.MaxConcurrent, 100)), TxSlots: replay.NewTxSlots(pool),
			Deletes: true,
		},
		clients: map[string]*kagzi.Client{}, tenants: map[string]*tenant{}, wanted: map[string]bool{},
		hinted: make(chan struct{}, 1),
	}
	if len(cfg.Worker.Queues) > 0 {
		w.queues = slices.Sorted(maps.Keys(cfg.Worker.Queues))
	}
	one, err := w.newWorker("default")
	if err != nil {
		return nil, err
	}
	if w.workflows = one.Workflows(); len(w.workflows) == 0 {
		return nil, errors.New("kagzi: namespaces: Config.Handle gave the worker no handler: call kagzi.Handle or " +
			"topic.Consume in it")
	}
	return w, nil
}

// validated returns the configuration with its defaults.
func (c Config) validated(pool *pgxpool.Pool) (Config, error) {
	switch {
	case pool == nil:
		return c, errNoPool
	case c.Handle == nil:
		return c, errors.New("kagzi: namespaces: Config.Handle is nil: give a function that calls kagzi.Handle")
	case c.Client.Namespace != "":
		return c, errors.New("kagzi: namespaces: Config.Client.Namespace is set: leave it empty, and choose " +
			"namespaces by Config.Serve")
	case c.Worker.NoCoordinator:
		return c, errors.New("kagzi: namespaces: Config.Worker.NoCoordinator is set: each namespace needs a " +
			"coordinator while it has work, so leave it out")
	}
	for _, d := range []struct {
		field string
		value time.Duration
	}{{"Every", c.Every}, {"Idle", c.Idle}} {
		if d.value < 0 || d.value > 0 && d.value < shortest {
			return c, fmt.Errorf("kagzi: namespaces: Config.%s is %v: give at least %v, or zero for the default",
				d.field, d.value, shortest)
		}
		if err := duration.CheckLength("namespaces: Config."+d.field, d.value); err != nil {
			return c, err
		}
	}
	c.Every, c.Idle = cmp.Or(c.Every, time.Second), cmp.Or(c.Idle, 10*time.Second)
	if c.Worker.Coordinator.Grace == 0 { // no worker has a connection of its own that could be missed
		c.Worker.Coordinator.NoGrace = true
	}
	return c, nil
}

const shortest = 10 * time.Millisecond

// Client returns the client of a namespace, which may have no rows yet. A run that it starts begins at once if Run is
// under way in this process. The client is the same at each call. Client does no I/O. It returns an error if the name
// is not valid, for example because it has a ':' or more than 255 bytes.
func (w *Worker) Client(namespace string) (*kagzi.Client, error) {
	if w == nil || w.pool == nil {
		return nil, errNoWorker
	}
	if err := valid.Namespace(namespace); err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if c := w.clients[namespace]; c != nil {
		return c, nil
	}
	cfg := w.cfg.Client
	cfg.Namespace, cfg.Logger = namespace, slog.New(quiet{w.log.Handler()}.of(namespace))
	c, err := kagzi.NewClient(w.pool, cfg)
	if err != nil {
		return nil, err
	}
	c.Core().Hints.Share(w.line)
	c.Core().Shared = w.shared
	w.clients[namespace] = c
	return c, nil
}

// serves reports whether the worker serves the namespace.
func (w *Worker) serves(namespace string) bool { return w.cfg.Serve == nil || w.cfg.Serve(namespace) }

// Active returns the namespaces that have a worker in this process now, sorted. It does no I/O.
func (w *Worker) Active() []string {
	if w == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Sorted(maps.Keys(w.tenants))
}

// List returns the namespaces of the pool's database that have runs, live workers, or schedules that are not paused.
// They are sorted. It needs no worker. It returns an error if the schema does not fit, and on Citus, where no statement
// reads all namespaces.
func List(ctx context.Context, pool *pgxpool.Pool) ([]string, error) {
	if pool == nil {
		return nil, errNoPool
	}
	all, err := inspect.Namespaces(ctx, pool)
	if err != nil {
		return nil, fmt.Errorf("kagzi: namespaces: %w", err)
	}
	return all, nil
}

var errNoPool = errors.New("kagzi: namespaces: the pool is nil: make one with pgxpool.New")

var errNoWorker = errors.New("kagzi: namespaces: the worker is nil or a zero Worker: make one with NewWorker, and " +
	"check its error")

// newWorker returns a worker of the namespace, with its handlers.
func (w *Worker) newWorker(namespace string) (*kagzi.Worker, error) {
	client, err := w.Client(namespace)
	if err != nil {
		return nil, err
	}
	one, err := kagzi.NewWorker(client, w.cfg.Worker)
	if err != nil {
		return nil, err
	}
	if err := w.cfg.Handle(one, client); err != nil {
		return nil, fmt.Errorf("kagzi: namespaces: Config.Handle: %w", err)
	}
	return one, nil
}
