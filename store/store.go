// Package store holds every SQL statement of Kagzi. It knows nothing of Go functions, and carries no
// compatibility promise: applications use package kagzi.
//
// A method is one transaction, and one round trip where that is possible. Times are the database's: callers
// send durations. What a caller sends back as a time, it got from here.
package store

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Statuses of a run, and of a template of a schedule.
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
	KindSleep        = "SLEEP"
	KindSignal       = "SIGNAL"
	KindChild        = "CHILD_WORKFLOW"
	KindMarker       = "MARKER"
	KindCompensation = "COMPENSATION" // attempt 0 is its registration
)

// callTimeout bounds each call. Postgres's own statement_timeout does not bound a COMMIT that waits for a
// synchronous standby, so the bound is here.
const callTimeout = 10 * time.Second

// repeats is how often a call is repeated that failed for a reason that passes.
const repeats = 5

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
}

// New returns the store of namespace. It does no I/O.
func New(pool *pgxpool.Pool, namespace string) *Store {
	return &Store{pool: pool, namespace: namespace}
}

// Namespace returns the namespace the store reads and writes.
func (s *Store) Namespace() string { return s.namespace }

// Pool returns the application's pool.
func (s *Store) Pool() *pgxpool.Pool { return s.pool }

// bulkTimeout bounds the calls that bring many runs' inputs and results.
const bulkTimeout = 20 * time.Second

// bound returns ctx with a timeout. A deadline of the caller's holds, its cancellation is left out: a cancelled
// context costs pgx the connection, and leaves a write's outcome unknown.
func bound(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	if t, ok := ctx.Deadline(); ok {
		timeout = min(timeout, time.Until(t))
	}
	return context.WithTimeout(context.WithoutCancel(ctx), timeout)
}

// do calls f, and again while it fails with an error after which the same statements may succeed at once.
// f must be idempotent.
func do(ctx context.Context, f func(context.Context) error) error { return within(ctx, callTimeout, f) }

// within is do with another timeout.
func within(ctx context.Context, timeout time.Duration, f func(context.Context) error) error {
	ctx, cancel := bound(ctx, timeout)
	defer cancel()
	var err error
	for range repeats {
		if err = f(ctx); err == nil || !Repeatable(err) {
			return err
		}
	}
	return err
}

// code returns the SQLSTATE of err, "" if the server did not say one.
func code(err error) string {
	var pe *pgconn.PgError
	if errors.As(err, &pe) {
		return pe.Code
	}
	return ""
}

// Repeatable reports whether the transaction that failed with err was rolled back for a reason that a
// repetition does not meet again: a deadlock, a serialization failure, a plan that DDL made stale.
func Repeatable(err error) bool {
	var pe *pgconn.PgError
	if !errors.As(err, &pe) {
		return false
	}
	return pe.Code == "40001" || pe.Code == "40P01" || pe.Code == "0A000" && strings.Contains(pe.Message, "cached plan")
}

// Refused reports whether the server refused a statement for what it contained: a row that violates a
// constraint, a value out of range, an exception of a trigger. Everything else that fails is the database's
// condition, not the statement's, and passes.
func Refused(err error) bool {
	c := code(err)
	return strings.HasPrefix(c, "22") || strings.HasPrefix(c, "23") || strings.HasPrefix(c, "54") || c == "P0001"
}

// Away reports whether err says that the database cannot be reached or does not serve writes now.
func Away(err error) bool {
	if err == nil {
		return false
	}
	if c := code(err); c != "" {
		return strings.HasPrefix(c, "57P") || strings.HasPrefix(c, "08") || strings.HasPrefix(c, "53") || c == "25006" || c == "25P03" || c == "57014"
	}
	var ce *pgconn.ConnectError
	var ne net.Error
	return errors.As(err, &ce) || errors.As(err, &ne) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), "conn closed")
}

// Answered reports whether the server refused a statement, for whatever reason, and would answer another.
func Answered(err error) bool { return code(err) != "" && !Away(err) && !Repeatable(err) }

// Locked reports whether err says that somebody else's lock was waited for in vain.
func Locked(err error) bool { return code(err) == "55P03" }

// Closed reports whether err says that the application has closed the pool.
func Closed(err error) bool { return err != nil && strings.HasSuffix(err.Error(), "closed pool") }

// session prepares a transaction of ours, in the same round trip as its statements: locks are waited for
// briefly, and a statement_timeout that was meant for other clients does not apply.
const session = `
SELECT set_config('lock_timeout', $1, true), set_config('statement_timeout', '0', true),
	set_config('enable_seqscan', 'off', true), set_config('cpu_index_tuple_cost', '10', true), set_config('jit', 'off', true),
	set_config('plan_cache_mode', CASE WHEN pg_relation_size('kagzi.workflow_runs') < 65536 THEN 'force_custom_plan' ELSE 'force_generic_plan' END, true),
	set_config('synchronous_commit', CASE WHEN $2 THEN current_setting('synchronous_commit') ELSE 'off' END, true)`

// durable says in session's second argument whether the commit waits for the disk. A claim need not: if the
// server crashes before it is on disk, so are all records that were made under it, and the run is claimed again.
const (
	durable = true
	relaxed = false
)

// While a table is small, or nothing is known of it, the planner reads it or an index whole, and keeps such a plan
// after the table has grown, until somebody analyzes it. So no statement of ours about certain runs is planned
// without this, or session, before it: what reads much of an index is made dear, and while there is next to
// nothing no plan is kept. Costs so high would call for jit. In a caller's transaction byCost puts the settings back.
const (
	byIndex = `
SELECT set_config('kagzi.planner', concat_ws(' ', current_setting('enable_seqscan'), current_setting('cpu_index_tuple_cost'),
		current_setting('jit'), current_setting('plan_cache_mode')), true),
	set_config('enable_seqscan', 'off', true), set_config('cpu_index_tuple_cost', '10', true), set_config('jit', 'off', true),
	set_config('plan_cache_mode', CASE WHEN pg_relation_size('kagzi.workflow_runs') < 65536 THEN 'force_custom_plan' ELSE 'force_generic_plan' END, true)`
	byCost = `
SELECT set_config('enable_seqscan', split_part(current_setting('kagzi.planner'), ' ', 1), true),
	set_config('cpu_index_tuple_cost', split_part(current_setting('kagzi.planner'), ' ', 2), true),
	set_config('jit', split_part(current_setting('kagzi.planner'), ' ', 3), true),
	set_config('plan_cache_mode', split_part(current_setting('kagzi.planner'), ' ', 4), true)`
)

// ask sends one statement after byIndex, in the same round trip, and gives its rows to read.
func ask(ctx context.Context, db DB, sql string, args []any, read func(pgx.Rows) error) error {
	b := &pgx.Batch{}
	b.Queue(byIndex)
	b.Queue(sql, args...)
	if _, inTx := db.(pgx.Tx); inTx {
		b.Queue(byCost)
	}
	return exchange(ctx, db, b, read)
}

// exchange sends b, whose first statement prepares the others, and gives those their rows to read, one after the other.
// Where read is nil there are none.
func exchange(ctx context.Context, db DB, b *pgx.Batch, reads ...func(pgx.Rows) error) error {
	res := db.SendBatch(ctx, b)
	defer res.Close()
	if _, err := res.Exec(); err != nil {
		return err
	}
	for _, read := range reads {
		rows, err := res.Query()
		if err != nil {
			return err
		}
		if read != nil {
			err = read(rows)
		}
		rows.Close()
		if err := cmp.Or(err, rows.Err()); err != nil {
			return err
		}
	}
	return res.Close() // the commit, unless db is a transaction
}

// askOne is ask for a single value; pgx.ErrNoRows if there is none.
func askOne[T any](ctx context.Context, db DB, sql string, args ...any) (v T, err error) {
	err = ask(ctx, db, sql, args, func(rows pgx.Rows) error {
		v, err = pgx.CollectOneRow(rows, pgx.RowTo[T])
		return err
	})
	return v, err
}

// array returns ids as the text of a uuid[]: a string goes to the server as it is, in every exec mode of pgx. A slice of
// strings would be tried in binary first, and refused by an error that quotes all of it.
func array(ids []uuid.UUID) string {
	text := make([]byte, 0, 2+33*len(ids))
	text = append(text, '{')
	for i, id := range ids {
		if i > 0 {
			text = append(text, ',')
		}
		text = hex.AppendEncode(text, id[:])
	}
	return string(append(text, '}'))
}

// micros is d in the unit of the statements' intervals; every positive duration is at least one.
func micros(d time.Duration) int64 {
	if d > 0 && d < time.Microsecond {
		return 1
	}
	return d.Microseconds()
}

// epoch is t for a bigint argument, zero for the zero time.
func epoch(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
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
