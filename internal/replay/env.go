package replay

import (
	"context"
	"encoding/json"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi/internal/limits"
	"github.com/kagzi/kagzi/internal/standing"
	"github.com/kagzi/kagzi/store"
)

// A Language has what the language of the application decides: its errors, its policies and its contexts.
type Language struct {
	Errors Errors
	// Shown returns a stored result as the application encoded it, for comparisons and for people.
	Shown func(stored []byte) []byte
	// Policy returns the retry policy that a run was started with. raw is empty if the run was started without one.
	Policy func(raw json.RawMessage) (RetryPolicy, error)
	// StepContext returns the context of a step's attempt, which tells the application's code which attempt that is.
	StepContext func(ctx context.Context, step StepIdentity) context.Context

	Interceptors Interceptors

	// TxSlots is a semaphore that bounds the transactional steps under way of several workers together. nil: each
	// worker has its own.
	TxSlots chan struct{}
}

// An Env is shared by the executions of a worker: the language of the application, and what they know of the worker. It
// refers to no execution. It is safe for concurrent use.
type Env struct {
	*standing.Worker
	mode     // verify in the environment of a verification
	language Language
	limits   *limits.Limits
	txSlots  chan struct{} // a semaphore: holds a value for each transactional step under way
}

// NewEnv returns an environment in which nothing can be executed yet: see With.
func NewEnv(l Language) *Env { return &Env{language: l} }

// With returns an environment of the same language for the executions of w. A worker without a store executes what
// needs none.
func (env *Env) With(w *standing.Worker, l *limits.Limits) *Env {
	slots := env.language.TxSlots
	switch {
	case slots != nil:
	case w.Store != nil:
		slots = NewTxSlots(w.Store.Pool())
	default:
		slots = make(chan struct{}, 1)
	}
	return &Env{Worker: w, language: env.language, limits: l, txSlots: slots}
}

// NewTxSlots returns a semaphore that leaves of the pool's connections those that the engine needs.
func NewTxSlots(pool *pgxpool.Pool) chan struct{} {
	return make(chan struct{}, max(1, int(pool.Config().MaxConns)-store.LeastConns))
}

func (env *Env) errors() Errors { return env.language.Errors }

func (env *Env) policy(raw json.RawMessage) (RetryPolicy, error) { return env.language.Policy(raw) }

func (env *Env) stepContext(ctx context.Context, step StepIdentity) context.Context {
	return env.language.StepContext(ctx, step)
}

func (env *Env) interceptors() *Interceptors { return &env.language.Interceptors }

func (env *Env) shown(stored []byte) []byte { return env.language.Shown(stored) }

func (env *Env) line(names []string) *limits.Line { return env.limits.Of(names...) }

// verifying returns an environment of the same language, without interceptors, for a verification.
func (env *Env) verifying(w *standing.Worker) *Env {
	l := env.language
	l.Interceptors = Interceptors{}
	verifying := NewEnv(l).With(w, nil)
	verifying.mode = verify
	return verifying
}
