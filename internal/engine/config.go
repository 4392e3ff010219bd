package engine

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/hints"
	"github.com/kagzi/kagzi/internal/outage"
	"github.com/kagzi/kagzi/internal/testhook"
	"github.com/kagzi/kagzi/store"
)

// A Handler is a worker's code for one version of a workflow. It works on bytes.
type Handler func(b *Branch, input []byte) (output []byte, err error)

// A Config holds the collaborators and settings of a session.
type Config struct {
	Store  *store.Store
	Hints  *hints.Hints
	Logger *slog.Logger
	Errors Errors
	// Shown returns a stored result as the application encoded it, for comparisons and for people.
	Shown func(stored []byte) []byte
	// Policy returns the retry policy that a run was started with. raw is empty if the run was started without one.
	Policy func(raw json.RawMessage) (RetryPolicy, error)
	// StepContext returns the context of a step's attempt, which tells the application's code which attempt that is.
	StepContext func(ctx context.Context, step StepIdentity) context.Context

	Interceptors Interceptors

	Queues        map[string]int             // from which the session claims first, with their shares of the slots
	Handlers      map[string]map[int]Handler // by workflow and version
	Types         []store.WorkflowVersions   // the workflows and versions of Handlers, in the form that a claim needs
	Consumers     []*store.Consumer          // of which the session has handlers
	MaxConcurrent int
	Registration  func(id uuid.UUID) store.Worker // the worker's row in the registry
	// runs beside the session, in a goroutine, from its registration until it has drained; may be nil
	Beside func(context.Context)

	// See WorkerConfig.
	LeaseTimeout, Heartbeat, StaleAfter, PollInterval, DrainTimeout, HungAfter time.Duration
	FixedLease                                                                 bool

	Grace   time.Duration // how long a worker may be without its connection before the fleet declares it dead
	NoGrace bool          // nobody declares a worker dead because of a lost connection

	Hooks *testhook.Hooks // of tests; nil otherwise
}

func newEnvironment(cfg *Config, onPoolClosed func()) *environment {
	env := &environment{
		store: cfg.Store, hints: cfg.Hints, log: cfg.Logger, errors: cfg.Errors, policy: cfg.Policy,
		stepContext: cfg.StepContext, intercepts: cfg.Interceptors,
		hooks: cfg.Hooks, onPoolClosed: onPoolClosed,
		receipts: sync.Pool{New: newReceipt}, background: context.Background(), heartbeats: make(chan struct{}, 1),
		closed: make(chan struct{}),
	}
	env.limits.env = env
	var cancel context.CancelFunc
	env.noWait, cancel = context.WithCancel(env.background)
	cancel()
	env.reads, env.stopReads = context.WithCancel(env.background)
	env.worker.Store(new(uuid.New()))
	env.outage = outage.New(env.logger(env.ID()), cfg.Hints.Reconnect)
	env.troubled.Store(new(time.Now()))
	env.txSlots = make(chan struct{}, max(1, int(env.store.Pool().Config().MaxConns)-store.LeastConns))
	return env
}
