package standing

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/outage"
	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/internal/testhook"
	"github.com/kagzi/kagzi/store"
)

// A Worker is what a session and the runs that it executes know of their worker: who it is, whether others may take it
// for dead, and the database with its clock and its failures. It refers to no run. It is safe for concurrent use.
type Worker struct {
	Store *store.Store
	Hints Announcer
	Log   *slog.Logger    // of the worker, without its ID: see Logger
	Hooks *testhook.Hooks // of tests; nil otherwise

	Reads      context.Context // of queries for histories; ends when the session has drained
	stopReads  context.CancelFunc
	Clock      Clock
	Standing   Standing
	Heartbeats chan struct{}   // a value asks for a heartbeat now
	Away       *outage.Outage  // the database's
	Failing    outage.Failures // the operations that fail although the database answers

	id atomic.Pointer[uuid.UUID] // of the worker's row. Set by SetID, under the session's mutex.
	// writes that cannot be made are given up. Set by GiveUp under the session's mutex, for good.
	closing  atomic.Bool
	closed   chan struct{}             // closed by GiveUp when it sets closing
	troubled atomic.Pointer[time.Time] // when the database last failed the session, or the session began
	// called, perhaps again and again, once the application has closed the pool
	onPoolClosed func()
}

// An Announcer tells other processes what a worker has changed. Cancelled and Signalled fail only in a transaction.
type Announcer interface {
	Cancelled(ctx context.Context, tx pgx.Tx, runs *store.CancelledRuns) error
	Signalled(ctx context.Context, tx pgx.Tx, runs ...store.Signalled) error
	// SendReply sends a message with an answer to its run, and announces it.
	SendReply(ctx context.Context, m store.Message) error
}

// NoWait has ended: publishing with it does not wait until the notification is sent.
var NoWait = ended()

func ended() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// New returns a worker of the store with a new ID. reconnect is called when the database is back after an outage;
// poolClosed, perhaps again and again, once the application has closed the pool.
func New(s *store.Store, log *slog.Logger, reconnect, poolClosed func()) *Worker {
	w := &Worker{
		Store: s, Log: log, Heartbeats: make(chan struct{}, 1), closed: make(chan struct{}), onPoolClosed: poolClosed,
	}
	w.Reads, w.stopReads = context.WithCancel(context.Background())
	w.SetID(uuid.New())
	w.Away = outage.New(w.Logger(w.ID()), reconnect)
	w.troubled.Store(new(time.Now()))
	return w
}

// ID returns the ID of the worker's row.
func (w *Worker) ID() uuid.UUID { return *w.id.Load() }

// SetID sets the ID of the worker's row.
func (w *Worker) SetID(id uuid.UUID) { w.id.Store(&id) }

// Now returns the estimate of the database's time.
func (w *Worker) Now() time.Time { return w.Clock.Now() }

// Logger returns the worker's logger, which adds the worker's ID to each line.
func (w *Worker) Logger(id uuid.UUID) *slog.Logger { return w.Log.With("worker", id) }

// Failpoint tells tests that the worker has reached the point.
func (w *Worker) Failpoint(point string, run uuid.UUID) {
	if w.Hooks != nil && w.Hooks.Point != nil {
		w.Hooks.Point(point, run)
	}
}

// GiveUp gives up writes that cannot be made, from now on. It reports whether it is the first call.
func (w *Worker) GiveUp() (first bool) {
	first = !w.closing.Swap(true)
	if first {
		close(w.closed)
	}
	return first
}

// GivesUp reports whether writes that cannot be made are given up.
func (w *Worker) GivesUp() bool { return w.closing.Load() }

// Pause waits for d, or until writes that cannot be made are given up.
func (w *Worker) Pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-w.closed:
	}
}

// StopReads ends the queries for histories.
func (w *Worker) StopReads() { w.stopReads() }

// probeTimeout bounds the query that tests whether histories can be read at all.
const probeTimeout = 2 * time.Second

// Readable reports whether histories can be read at all. If so, a failed read was the fault of a history. See
// internal/worker/doc_claims.go.
func (w *Worker) Readable() bool {
	none := []uuid.UUID{uuid.Nil}
	_, err := w.Store.Histories.Load(w.Reads, store.LoadRequest{
		Runs: none, Woken: none, Inputs: none, Most: 1,
		Timeout: probeTimeout,
	})
	return err == nil
}

// Trouble notes an error of the database: that it does not answer, or that it refuses an operation. If the application
// has closed the pool, the database will never answer again, and the worker ends.
func (w *Worker) Trouble(err error) {
	switch pg.Classify(err) {
	case pg.ClassClosed:
		w.onPoolClosed()
	case pg.ClassAway, pg.ClassLate, pg.ClassBusy:
		w.Away.Begin(err)
		w.troubled.Store(new(time.Now()))
	default:
		w.TroubleWith(outage.Operation(err), err)
	}
}

// TroubleWith notes that the database answers an operation with an error.
func (w *Worker) TroubleWith(operation string, err error) {
	w.Failing.Note(w.Logger(w.ID()), operation, err)
	w.troubled.Store(new(time.Now()))
}

// Troubled returns when the database last failed the session, or the session began.
func (w *Worker) Troubled() time.Time { return *w.troubled.Load() }

// RefusesOne notes that the database refuses for one run an operation that succeeds for others.
func (w *Worker) RefusesOne(held store.HeldRun, err error) {
	w.Failing.Note(w.Logger(w.ID()), outage.Operation(err), fmt.Errorf("%w, of run %s", err, held.RunID))
}

// SilentSince is for tests: the database last answered, and last failed the session, at that time.
func (w *Worker) SilentSince(at time.Time) {
	w.Clock.mu.Lock()
	defer w.Clock.mu.Unlock()
	w.Clock.heard = at
	w.troubled.Store(&at)
}
