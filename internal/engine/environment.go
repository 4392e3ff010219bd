package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/hints"
	"github.com/kagzi/kagzi/internal/outage"
	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/internal/testhook"
	"github.com/kagzi/kagzi/store"
)

// An environment is shared by a session and its executions: settings of the application, the database with its clock
// and its failures, and the worker's standing. It refers to no execution. It is safe for concurrent use.
type environment struct {
	store        *store.Store
	hints        *hints.Hints
	log          *slog.Logger // of the worker, without its ID: see logger
	errors       Errors
	policy       func(raw json.RawMessage) (RetryPolicy, error)
	stepContext  func(ctx context.Context, step StepIdentity) context.Context
	intercepts   Interceptors
	hooks        *testhook.Hooks // of tests; nil otherwise
	onPoolClosed func()          // called, perhaps again and again, once the application has closed the pool

	limits   limits
	receipts sync.Pool // of *receipt that no write uses

	background context.Context // for calls of the database, which have deadlines of their own
	noWait     context.Context // has ended: publishing with it does not wait until the notification is sent
	reads      context.Context // of queries for histories; ends when the session has drained
	stopReads  context.CancelFunc
	clock      clock
	standing   standing
	tally      tally
	heartbeats chan struct{} // a value asks for a heartbeat now
	txSlots    chan struct{} // a semaphore: holds a value for each transactional step under way

	worker atomic.Pointer[uuid.UUID] // the ID of the worker's row. Set by reregister, under the session's mutex.
	// writes that cannot be made are given up. Set by Session.giveUp under the session's mutex, for good.
	closing  atomic.Bool
	closed   chan struct{} // closed by Session.giveUp when it sets closing
	outage   *outage.Outage
	failures outage.Failures           // the operations that fail although the database answers
	troubled atomic.Pointer[time.Time] // when the database last failed the session, or the session began
}

// ID returns the ID of the worker's row.
func (env *environment) ID() uuid.UUID { return *env.worker.Load() }

// now returns the estimate of the database's time.
func (env *environment) now() time.Time { return env.clock.now() }

// logger returns the worker's logger, which adds the worker's ID to each line.
func (env *environment) logger(id uuid.UUID) *slog.Logger { return env.log.With("worker", id) }

func (env *environment) failpoint(point string, run uuid.UUID) {
	if env.hooks != nil && env.hooks.Point != nil {
		env.hooks.Point(point, run)
	}
}

// pause waits for d, or until writes that cannot be made are given up.
func (env *environment) pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-env.closed:
	}
}

// databaseTrouble notes an error of the database: that it does not answer, or that it refuses an operation. If the
// application has closed the pool, the database will never answer again, and the worker ends.
func (env *environment) databaseTrouble(err error) {
	switch pg.Classify(err) {
	case pg.ClassClosed:
		env.onPoolClosed()
	case pg.ClassAway, pg.ClassLate, pg.ClassBusy:
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

// refusesOne notes that the database refuses for one run an operation that succeeds for others.
func (env *environment) refusesOne(held store.HeldRun, err error) {
	env.failures.Note(env.logger(env.ID()), outage.Operation(err), fmt.Errorf("%w, of run %s", err, held.RunID))
}
