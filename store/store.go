// Package store holds every SQL statement of Kagzi. It knows nothing of Go functions, and carries no compatibility
// promise: applications use package kagzi.
//
// Each method is one transaction, and one round trip where that is possible. Times are the database's: callers send
// durations, and only those times that a method of this package returned.
package store

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Statuses of a run.
const (
	Pending   = "PENDING"
	Running   = "RUNNING"
	Sleeping  = "SLEEPING"
	Completed = "COMPLETED"
	Failed    = "FAILED"
	Cancelled = "CANCELLED"
)

// Kinds of steps.
const (
	KindFunction     = "FUNCTION"
	KindBranch       = "BRANCH"
	KindSleep        = "SLEEP"
	KindSignal       = "SIGNAL"
	KindChild        = "CHILD_WORKFLOW"
	KindMarker       = "MARKER"
	KindCompensation = "COMPENSATION"
	KindPeek         = "PEEK"
	KindReserve      = "RESERVE"
	KindPublish      = "PUBLISH"
	KindMetadata     = "METADATA"
)

// callTimeout is the timeout of each call. Postgres's own statement_timeout does not end a COMMIT that waits for a
// synchronous standby, so the timeout is here.
const callTimeout = 10 * time.Second

// maxTries is how often a call is tried that fails with a Repeatable error.
const maxTries = 5

// A DB runs statements: a *pgxpool.Pool, a *pgx.Conn, or the caller's pgx.Tx.
type DB interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
	Begin(ctx context.Context) (pgx.Tx, error)
}

// A Store reads and writes the runs of one namespace. It is safe for concurrent use.
type Store struct {
	pool      *pgxpool.Pool
	namespace string
	pauses    atomic.Bool // whether the last claim saw that something is paused
}

// New returns the store of namespace. It does no I/O.
func New(pool *pgxpool.Pool, namespace string) *Store {
	return &Store{pool: pool, namespace: namespace}
}

// Namespace returns the namespace the store reads and writes.
func (s *Store) Namespace() string { return s.namespace }

// Pool returns the application's pool.
func (s *Store) Pool() *pgxpool.Pool { return s.pool }

// bulkTimeout is the timeout of the calls that transfer the inputs and results of many runs.
const bulkTimeout = 20 * time.Second

// bound returns ctx with a timeout, or with its own deadline if that is sooner. The cancellation of ctx only ends the
// wait for a connection (see acquire). A statement that was sent goes on: cancelling it would make pgx close the
// connection, and leave the outcome of a write unknown.
func bound(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	if t, ok := ctx.Deadline(); ok {
		timeout = min(timeout, time.Until(t))
	}
	return context.WithTimeout(context.WithValue(context.WithoutCancel(ctx), callerKey{}, caller(ctx)), timeout)
}

type callerKey struct{}

// caller returns the context that was passed to the outermost bound; ctx if there was none.
func caller(ctx context.Context) context.Context {
	if c, ok := ctx.Value(callerKey{}).(context.Context); ok {
		return c
	}
	return ctx
}

// do calls f, and repeats it while it fails with an error after which the same statements may succeed at once. f must
// be idempotent.
func do(ctx context.Context, f func(context.Context) error) error { return within(ctx, callTimeout, f) }

// within is do with another timeout.
func within(ctx context.Context, timeout time.Duration, f func(context.Context) error) error {
	ctx, cancel := bound(ctx, timeout)
	defer cancel()
	var err error
	for range maxTries {
		if err = f(ctx); err == nil || !Repeatable(err) {
			return err
		}
	}
	return err
}

// code returns the SQLSTATE of err; "" if err is not an answer of the server.
func code(err error) string {
	var pe *pgconn.PgError
	if errors.As(err, &pe) {
		return pe.Code
	}
	return ""
}

// Repeatable reports whether the transaction was rolled back and may succeed if it is repeated at once: after a
// deadlock, a serialization failure, or a plan that DDL made stale.
func Repeatable(err error) bool { return Classify(err) == ClassConflict }

// Refused reports whether the server refused the content of a statement: a row that violates a constraint, a value out
// of range, an exception of a trigger.
func Refused(err error) bool { return Classify(err) == ClassRefused }

// Unavailable reports whether the same call may succeed after a pause: the server does not answer, answers too late, or
// has run out of a resource.
func Unavailable(err error) bool {
	switch Classify(err) {
	case ClassAway, ClassLate, ClassBusy, ClassUnable:
		return true
	}
	return false
}

// Answered reports whether err is an answer of the server, and the server would answer another statement.
func Answered(err error) bool {
	switch Classify(err) {
	case ClassAway, ClassLate, ClassBusy, ClassConflict:
		return false
	}
	return code(err) != ""
}

// Locked reports whether err says that a wait for somebody else's lock timed out.
func Locked(err error) bool { return Classify(err) == ClassLocked }

// Closed reports whether err says that the application has closed the pool.
func Closed(err error) bool { return Classify(err) == ClassClosed }

// micros returns d in microseconds, the unit of the statements' intervals. Every positive duration is at least one.
func micros(d time.Duration) int64 {
	if d > 0 && d < time.Microsecond {
		return 1
	}
	return d.Microseconds()
}

// wakeIn returns the time until a wake-up in microseconds, or -1 if there is none.
func wakeIn(d time.Duration) int64 {
	if d < 0 {
		return -1
	}
	return micros(d)
}

// epoch returns t for a bigint argument: microseconds since 1970, rounded down, or zero for the zero time. Statements
// multiply it by an interval, which the server does in floating point. Where that has no single microseconds any more,
// from the year 2255 on, epoch returns a whole second: the server would round some up, and the last of the year 9999 to
// 10000, which JSON cannot write.
func epoch(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	if us := t.UnixMicro(); us < 1<<53 {
		return us
	}
	return t.Unix() * 1_000_000
}

func deref[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

func wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

// newID returns a UUIDv7: such IDs are ordered by their time of creation.
func newID() uuid.UUID { return uuid.Must(uuid.NewV7()) }
