package worker

import (
	"context"
	"log/slog"
	"time"

	"github.com/kagzi/kagzi/internal/claims"
	"github.com/kagzi/kagzi/internal/hints"
	"github.com/kagzi/kagzi/internal/replay"
	"github.com/kagzi/kagzi/internal/testhook"
	"github.com/kagzi/kagzi/store"
)

// A Config holds the collaborators and settings of a session.
type Config struct {
	Store  *store.Store
	Hints  *hints.Hints
	Logger *slog.Logger
	Env    *replay.Env // of the application's language
	// Flushed is told of a transaction with so many writes of so many executions. It must not block; nil: it is not
	// told.
	Flushed func(runs, writes int, took time.Duration, err error)

	// from which the session claims first, with their shares of the slots
	Queues   map[string]int
	Handlers map[string]map[int]replay.Handler // by workflow and version
	// the workflows and versions of Handlers, in the form that a claim needs
	Types         []store.WorkflowVersions
	MaxConcurrent int
	Room          *claims.Room // of the slots, which sessions of several namespaces share; nil: it has its own
	Presence
	// is called once the session is registered, before it claims, and returns what runs beside it, in a goroutine,
	// until it has drained; may be nil
	Beside func() func(context.Context)

	PollInterval, DrainTimeout, HungAfter time.Duration // see WorkerConfig

	Hooks *testhook.Hooks // of tests; nil otherwise
}
