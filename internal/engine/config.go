package engine

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/hints"
	"github.com/kagzi/kagzi/internal/outage"
	"github.com/kagzi/kagzi/internal/testhook"
	"github.com/kagzi/kagzi/store"
)

// A Handler is a worker's code for one version of a workflow, with its types taken off.
type Handler func(b *Branch, input []byte) (output []byte, err error)

// A Config is what a session works with and for.
type Config struct {
	Store  *store.Store
	Hints  *hints.Hints
	Logger *slog.Logger
	Errors Errors
	// Shown returns a stored result as the application encoded it, for comparisons and for people.
	Shown func(stored []byte) []byte
	// Policy returns the retry policy that a run was started with; raw is empty if it was started with none.
	Policy func(raw json.RawMessage) (RetryPolicy, error)
	// StepContext returns the context of an attempt of a step, in which the application's code learns which one it is.
	StepContext func(ctx context.Context, step StepIdentity) context.Context

	Queue         string
	Handlers      map[string]map[int]Handler // by workflow and version
	Types         []store.WorkflowVersions   // what there are handlers for, as the claim has it
	MaxConcurrent int
	Registration  func(id uuid.UUID) store.Worker // what the worker says of itself
	Beside        func(context.Context)           // called when the worker is registered, in a goroutine, until it has drained; may be nil

	// See WorkerConfig.
	LeaseTimeout, Heartbeat, StaleAfter, PollInterval, DrainTimeout time.Duration
	FixedLease                                                      bool

	Grace   time.Duration // for which the fleet waits for a lost connection
	NoGrace bool          // nobody concludes from a lost connection

	Hooks *testhook.Hooks // of tests; nil otherwise
}

func newEnvironment(cfg *Config, onPoolClosed func()) *environment {
	env := &environment{
		store: cfg.Store, hints: cfg.Hints, log: cfg.Logger, errors: cfg.Errors, policy: cfg.Policy, stepContext: cfg.StepContext,
		queue: cfg.Queue, hooks: cfg.Hooks, onPoolClosed: onPoolClosed,
		background: context.Background(), heartbeats: make(chan struct{}, 1), closed: make(chan struct{}),
	}
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
