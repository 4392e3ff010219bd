package pg

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Again is do for changes that may also be repeated after a lost answer. It also tries again a few times when a wait
// for another transaction's lock times out.
func Again(ctx context.Context, f func(context.Context) error) error {
	var err error
	for range MaxTries {
		err = Do(ctx, f)
		if t, ok := ctx.Deadline(); Locked(err) && (!ok || time.Until(t) > time.Second) && ctx.Err() == nil {
			continue // it was rolled back; with less than a second left, the outcome of another try might come too late
		}
		if err == nil || !Unavailable(err) || ctx.Err() != nil {
			return err
		}
		ctx = Suspecting(ctx, err)
	}
	return err
}

// CallTimeout is the timeout of each call. Postgres's own statement_timeout does not end a COMMIT that waits for a
// synchronous standby, so the timeout is here.
const CallTimeout = 10 * time.Second

// MaxTries is how often a call is tried that fails with a Repeatable error.
const MaxTries = 5

// A DB runs statements: a *pgxpool.Pool, a *pgx.Conn, or the caller's pgx.Tx.
type DB interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
	Begin(ctx context.Context) (pgx.Tx, error)
}

// Bound returns ctx with a timeout, or with its own deadline if that is sooner. The cancellation of ctx only ends the
// wait for a connection (see acquire). A statement that was sent goes on: cancelling it would make pgx close the
// connection, and leave the outcome of a write unknown.
func Bound(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
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

// Do calls f, and repeats it while it fails with an error after which the same statements may succeed at once. f must
// be idempotent.
func Do(ctx context.Context, f func(context.Context) error) error { return Within(ctx, CallTimeout, f) }

// Within is do with another timeout.
func Within(ctx context.Context, timeout time.Duration, f func(context.Context) error) error {
	ctx, cancel := Bound(ctx, timeout)
	defer cancel()
	var err error
	for range MaxTries {
		if err = f(ctx); err == nil || !Repeatable(err) {
			return err
		}
	}
	return err
}

// Code returns the SQLSTATE of err; "" if err is not an answer of the server.
func Code(err error) string {
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
	return Code(err) != ""
}

// Locked reports whether err says that a wait for another transaction's lock timed out.
func Locked(err error) bool { return Classify(err) == ClassLocked }

// Closed reports whether err says that the application has closed the pool.
func Closed(err error) bool { return Classify(err) == ClassClosed }

// Micros returns d in microseconds, the unit of the statements' intervals. Every positive duration is at least one.
func Micros(d time.Duration) int64 {
	if d > 0 && d < time.Microsecond {
		return 1
	}
	return d.Microseconds()
}

// Epoch returns t for a bigint argument: microseconds since 1970, rounded down, or zero for the zero time. Statements
// multiply it by an interval, which the server does in floating point. Where that has no single microseconds any more,
// from the year 2255 on, epoch returns a whole second: the server would round some up, and the last of the year 9999 to
// 10000, which JSON cannot write.
func Epoch(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	if us := t.UnixMicro(); us < 1<<53 {
		return us
	}
	return t.Unix() * 1_000_000
}

func Deref[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

func Wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, explainFence(err))
}
