package core

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi/internal/checkup"
	"github.com/kagzi/kagzi/internal/claims"
	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/hints"
	"github.com/kagzi/kagzi/internal/outage"
	"github.com/kagzi/kagzi/internal/payloads"
	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/internal/starts"
	"github.com/kagzi/kagzi/internal/topics"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/migrations"
	"github.com/kagzi/kagzi/store"
	"github.com/kagzi/kagzi/store/inspect"
)

// A Client is a kagzi.Client without its public methods. A nil one stands for a client that NewClient did not return:
// its methods return an error.
type Client struct {
	Namespace string
	Log       *slog.Logger
	Store     *store.Store
	Inspect   *inspect.View
	Hints     *hints.Hints
	Starts    *starts.Starts
	Topics    *topics.Topics
	Payloads  payloads.Coder

	// InterceptStart calls next inside of the interceptors of starts, with the headers that they leave.
	InterceptStart func(ctx context.Context, call StartCall, next func(context.Context, json.RawMessage) error) error

	// InterceptSignal calls next inside of the interceptors of signals, with the headers that they leave.
	InterceptSignal func(ctx context.Context, call SignalCall, next func(context.Context, json.RawMessage) error) error

	// Shared is what its worker shares with those of other namespaces of the process. The zero value shares nothing.
	Shared Shared

	// MaxLoadFailures is the number of failures to read a history at which its run is quarantined.
	MaxLoadFailures int

	// Stats shares answers between calls that come at once.
	Stats checkup.Shared[StatsAnswer]

	checked checked

	mu      sync.Mutex
	workers map[Worker]struct{} // those of this process that are running
}

// A StartCall is a run that is about to be started as a copy of another, or by a schedule.
type StartCall struct {
	Schedule string
	ID       string
	Origin   uuid.UUID
	Run      uuid.UUID
}

// checked is what a client knows of its schema and rights.
type checked struct {
	ready atomic.Bool // the schema was found to fit
	// a worker or coordinator of this client was started, so it needs the rights of a worker; Prepare sets it
	executes atomic.Bool
}

// Shared is what the workers of several namespaces of one process share.
type Shared struct {
	Room       *claims.Room  // their slots
	TxSlots    chan struct{} // a semaphore for their transactional steps
	Heartbeats *pgxpool.Pool // for their heartbeats
	Deletes    bool          // one loop deletes the old runs of all namespaces
}

// A StatsAnswer is what concurrent calls of Stats share.
type StatsAnswer struct {
	Stats inspect.Stats
	Err   error
}

// A Worker is a worker of this process.
type Worker interface {
	ID() uuid.UUID
	Queues() []string
	Slots() (all, free, waiting int)
	Held() int // runs that it executes or inserts
	Hung() int
	Failures() []outage.Failure
	Stuck() (silence time.Duration, stuck bool)
}

// New returns a client of the store's namespace, without its interceptors.
func New(s *store.Store, view *inspect.View, namespace string, coder payloads.Coder, log *slog.Logger) *Client {
	c := &Client{
		Namespace: namespace, Log: log, Store: s, Inspect: view, Payloads: coder, workers: map[Worker]struct{}{},
	}
	c.Hints = hints.New(s, log, func(ctx context.Context) error { return c.CheckSchema(ctx, nil) })
	c.Starts, c.Topics = starts.New(s, c.Hints), topics.New(s, c.Hints)
	return c
}

var errNoClient = failure.Of(kind.Unknown, errors.New("kagzi: the client is nil or a zero Client, which has no "+
	"database: make one with NewClient, and check its error"))

// Made returns an error unless NewClient returned the client.
func (c *Client) Made() error {
	if c == nil {
		return errNoClient
	}
	return nil
}

// Usable returns an error if a call cannot begin, because NewClient did not return the client or ctx has ended.
func (c *Client) Usable(ctx context.Context) error { return cmp.Or(c.Made(), ctx.Err()) }

// CheckSchema returns an error if a call cannot begin, or if this program cannot work with the database's schema. It
// queries the database until the schema fits, and then no more.
//
// It queries over tx unless that is nil: the caller's transaction may hold the pool's only connection.
func (c *Client) CheckSchema(ctx context.Context, tx pgx.Tx) error {
	if err := c.Usable(ctx); err != nil {
		return err
	}
	if c.checked.ready.Load() {
		return nil
	}
	err := c.Store.Read(ctx, tx, func(ctx context.Context, db pg.DB) error {
		_, err := migrations.Check(ctx, db)
		return err
	})
	if err == nil {
		c.checked.ready.Store(true)
	}
	switch {
	case tx == nil:
	case errors.Is(err, migrations.ErrMissing):
		return fmt.Errorf("%w, or give InTx a transaction of the client's database", err)
	default:
		return explainServer(store.ExplainRightsOn(ctx, tx, err))
	}
	return explainServer(c.Store.ExplainRights(ctx, err))
}

// Ready is true once the schema was found to fit.
func (c *Client) Ready() *atomic.Bool { return &c.checked.ready }

// Prepare checks the schema and the rights of a worker, and waits while the database is away.
func (c *Client) Prepare(ctx context.Context, o *outage.Outage) error {
	c.checked.executes.Store(true)
	for {
		err := c.CheckSchema(ctx, nil)
		// name all that a worker lacks at once
		if _, lacks := errors.AsType[*store.MissingRights](err); err == nil || lacks {
			err = cmp.Or(c.Store.CheckRights(ctx), err)
		}
		if err == nil || ctx.Err() != nil || !pg.Unavailable(err) {
			return failure.Prefixed(explainServer(err))
		}
		o.Begin(err)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(outage.Pause):
		}
	}
}

// Needs returns the rights that the client needs, by what this process does with it.
func (c *Client) Needs() store.Rights {
	if c.checked.executes.Load() {
		return store.WorkerRights
	}
	return store.ClientRights
}

// Add makes w one of the workers of this process, until the returned function is called.
func (c *Client) Add(w Worker) (remove func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.workers[w] = struct{}{}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.workers, w)
	}
}

// Workers returns the workers of this process.
func (c *Client) Workers() []Worker {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Keys(c.workers))
}

// Public is the function Public. If the call failed for missing rights, the error names those that this user lacks. It
// returns store.ErrMoved about a run or a schedule that is not found because the namespace has left the database.
func (c *Client) Public(ctx context.Context, err error) error {
	if c.Made() == nil {
		err = c.Store.ExplainRights(ctx, err)
	}
	switch {
	case errors.Is(err, store.ErrRunNotFound):
		missing := failure.Explain(fmt.Sprintf("run not found in namespace %q", c.Namespace), ErrNotFound)
		return c.Absent(ctx, missing)
	case errors.Is(err, store.ErrScheduleNotFound):
		return c.Absent(ctx, ErrScheduleNotFound)
	}
	return Public(err)
}

// Absent returns store.ErrMoved if err is an ErrNotFound and the namespace has left the database, otherwise err. If
// that cannot be found out, because ctx has ended for example, it returns why: nothing is known of the thing then.
func (c *Client) Absent(ctx context.Context, err error) error {
	if !errors.Is(err, ErrNotFound) || c.Made() != nil {
		return err
	}
	switch moved, failed := c.Store.Moved(ctx); {
	case failed != nil:
		return fmt.Errorf("find out whether the namespace has moved: %w", failed)
	case moved:
		return store.ErrMoved
	}
	return err
}

// FailedIf is failure.Wrap for an error that may be nil or come from the store.
func (c *Client) FailedIf(ctx context.Context, err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return failure.Wrap(c.Public(ctx, err), format, args...)
}
