package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/hints"
	"github.com/kagzi/kagzi/internal/outage"
	"github.com/kagzi/kagzi/internal/testhook"
	"github.com/kagzi/kagzi/store"
)

// An environment is what a session and its executions share: the application as far as they ask it, the database with its
// clock and its troubles, and the worker's standing. It refers to no execution. It is safe for concurrent use.
type environment struct {
	store        *store.Store
	hints        *hints.Hints
	log          *slog.Logger // of the worker, without its ID: see logger
	errors       Errors
	policy       func(raw json.RawMessage) (RetryPolicy, error)
	stepContext  func(ctx context.Context, step StepIdentity) context.Context
	queue        string
	hooks        *testhook.Hooks // of tests; nil otherwise
	onPoolClosed func()          // called, perhaps again and again, once the application has closed the pool

	background context.Context // for calls to the database, which have deadlines of their own
	noWait     context.Context // has ended: who publishes with it does not wait for the notification to be sent
	reads      context.Context // of queries for histories; ends when the session has drained
	stopReads  context.CancelFunc
	clock      clock
	standing   standing
	heartbeats chan struct{} // send a heartbeat now
	txSlots    chan struct{} // transactional steps under way

	worker   atomic.Pointer[uuid.UUID] // the ID of the worker's row. Set by reregister, under the session's mutex.
	closing  atomic.Bool               // writes that cannot be made are given up. Set once, under the session's mutex.
	closed   chan struct{}             // closed when closing is set
	outage   *outage.Outage
	failures outage.Failures           // what fails although the database answers
	troubled atomic.Pointer[time.Time] // when the database last failed the session, or the session began
}

func (env *environment) ID() uuid.UUID { return *env.worker.Load() }

func (env *environment) now() time.Time { return env.clock.now() }

// logger adds to each line which worker writes it.
func (env *environment) logger(id uuid.UUID) *slog.Logger { return env.log.With("worker", id) }

func (env *environment) failpoint(point string, run uuid.UUID) {
	if env.hooks != nil && env.hooks.Point != nil {
		env.hooks.Point(point, run)
	}
}

// pause waits for d, or until the writes that cannot be made are given up.
func (env *environment) pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-env.closed:
	}
}

// databaseTrouble notes how the database failed: it does not answer, or it refuses something. If the application has closed
// the pool, it will never answer again: the worker ends.
func (env *environment) databaseTrouble(err error) {
	switch store.Classify(err) {
	case store.ClassClosed:
		env.onPoolClosed()
	case store.ClassAway, store.ClassLate, store.ClassBusy:
		env.outage.Begin(err)
		env.troubled.Store(new(time.Now()))
	default:
		env.databaseTroubleWith(outage.Operation(err), err)
	}
}

// databaseTroubleWith notes that the database answers an operation with an error.
func (env *environment) databaseTroubleWith(operation string, err error) {
	env.failures.Note(env.logger(env.ID()), operation, err)
	env.troubled.Store(new(time.Now()))
}

// refusesOne notes that the database refuses for one run an operation that it does for others.
func (env *environment) refusesOne(held store.HeldRun, err error) {
	env.failures.Note(env.logger(env.ID()), outage.Operation(err), fmt.Errorf("%w, of run %s", err, held.RunID))
}
