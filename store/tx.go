package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A txMode says how a transaction of ours runs.
type txMode struct {
	locks      time.Duration // how long a lock is waited for at most; zero: for as long as the call may take
	statements time.Duration // how long a statement may take at most; zero: for as long as the call may take
	relaxed    bool          // the commit does not wait for the disk
	each       bool          // statements are planned at each call, by the planner's own costs
}

var (
	patient = txMode{}
	brief   = txMode{locks: briefly}
	// A claim need not wait for the disk: if a crash of the server loses it, all records made under it are lost, too, and
	// the run is claimed again. Nor need a delete that is repeated after a crash.
	relaxed = txMode{locks: briefly, relaxed: true}
	// Statements whose arguments decide which index serves are planned at each call.
	listing = txMode{each: true}
)

// briefly is how long a statement waits for somebody else's lock if others share its transaction, or if it can be repeated
// later.
const briefly = 100 * time.Millisecond

// Every transaction of ours begins with beginTx and prologue, whatever the defaults of the role, the database or the pool
// are: those are meant for others. A statement that reads after locking must see the commits of others, which stricter
// levels do not show. The timeouts let the server end a transaction for which nobody waits any more: a process that is
// frozen between two statements keeps its locks for five seconds.
//
// While a table is small, or has no statistics, the planner reads all of it or of an index, and keeps such a plan after the
// table has grown, until somebody analyzes it. So large reads of an index are made expensive, and no plan is kept while the
// tables are almost empty. Costs so high would trigger jit, so that is off. A generic plan cannot name a shard, so
// distributed tables get none.
const (
	beginTx  = `BEGIN ISOLATION LEVEL READ COMMITTED`
	prologue = `
SELECT ` + formats + `, set_config('lock_timeout', $1, true), set_config('statement_timeout', $2, true),
	set_config('idle_in_transaction_session_timeout', '5s', true),
	set_config('synchronous_commit', CASE WHEN $3::bool THEN 'off' ELSE current_setting('synchronous_commit') END, true),
	set_config('jit', 'off', true), CASE WHEN $4::bool THEN set_config('plan_cache_mode', 'force_custom_plan', true)
		ELSE set_config('enable_seqscan', 'off', true) || set_config('cpu_index_tuple_cost', '10', true) || set_config('plan_cache_mode', ` + planMode + `, true) END`
	commitTx = `COMMIT`
)

// On Citus the rows are on other servers, which get a setting only from SET LOCAL, and only after this one.
const (
	reachNodes  = `SET LOCAL citus.propagate_set_commands = 'local'`
	locksOfTick = `SET LOCAL lock_timeout = '100ms'`
	locksOfCall = `SET LOCAL lock_timeout = '1s'`
)

// preamble queues the statements after BEGIN with which a transaction on conn begins, and returns how many they are.
func (m txMode) preamble(ctx context.Context, conn *pgx.Conn, b *pgx.Batch) (n int, err error) {
	b.Queue(prologue, m.prologueArgs(ctx)...)
	if m.locks == 0 {
		return 1, nil
	}
	distributed, err := hasCitus(ctx, conn)
	if err != nil || !distributed {
		return 1, err
	}
	b.Queue(reachNodes)
	if m.locks <= briefly {
		b.Queue(locksOfTick)
	} else {
		b.Queue(locksOfCall)
	}
	return 3, nil
}

// hasCitus asks once for each connection whether its database has Citus.
func hasCitus(ctx context.Context, conn *pgx.Conn) (yes bool, err error) {
	const key = "kagzi: on Citus"
	known := conn.PgConn().CustomData()
	if yes, ok := known[key].(bool); ok {
		return yes, nil
	}
	if err = conn.QueryRow(ctx, onCitus).Scan(&yes); err == nil {
		known[key] = yes
	}
	return yes, err
}

// formats make the server write times and bytes as pgx reads them. In the exec modes without descriptions they come as text,
// whose form depends on the settings of the user or the database.
const formats = `set_config('DateStyle', 'ISO', true), set_config('bytea_output', 'hex', true)`

const planMode = `CASE
			WHEN pg_relation_size('kagzi.workflow_runs'::regclass) < 65536 OR current_setting('citus.version', true) <> '' THEN 'force_custom_plan'
			ELSE 'force_generic_plan' END`

// In a caller's transaction we only set the formats and the planner's settings: byIndex sets them, byCost restores the
// caller's.
const (
	byIndex = `
SELECT set_config('kagzi.settings', concat_ws('|', current_setting('enable_seqscan'), current_setting('cpu_index_tuple_cost'),
		current_setting('jit'), current_setting('plan_cache_mode'), current_setting('DateStyle'), current_setting('bytea_output')), true),
	` + formats + `, set_config('enable_seqscan', 'off', true), set_config('cpu_index_tuple_cost', '10', true), set_config('jit', 'off', true),
	set_config('plan_cache_mode', ` + planMode + `, true)`
	byCost = `
SELECT set_config('enable_seqscan', split_part(current_setting('kagzi.settings'), '|', 1), true),
	set_config('cpu_index_tuple_cost', split_part(current_setting('kagzi.settings'), '|', 2), true),
	set_config('jit', split_part(current_setting('kagzi.settings'), '|', 3), true),
	set_config('plan_cache_mode', split_part(current_setting('kagzi.settings'), '|', 4), true),
	set_config('DateStyle', split_part(current_setting('kagzi.settings'), '|', 5), true),
	set_config('bytea_output', split_part(current_setting('kagzi.settings'), '|', 6), true)`
)

// prologueArgs are the arguments for a transaction whose call ends with ctx. The server gives up a little earlier, so that
// the outcome is known and the connection survives.
func (m txMode) prologueArgs(ctx context.Context) []any {
	timeout := callTimeout
	if t, ok := ctx.Deadline(); ok {
		timeout = time.Until(t) * 9 / 10
	}
	if m.statements > 0 {
		timeout = min(timeout, m.statements)
	}
	locks := m.locks
	if locks == 0 {
		locks = timeout * 9 / 10 // shorter than the statement's timeout, so that the error says that it was a lock
	}
	return []any{millis(max(locks, 1)), millis(max(timeout, 1)), m.relaxed, m.each}
}

// millis is d as a setting: rounded up, for zero means no timeout.
func millis(d time.Duration) string {
	return fmt.Sprint(int64((d + time.Millisecond - 1) / time.Millisecond))
}

// An ownTx is a transaction that transact has begun, or a part of one.
type ownTx struct{ pgx.Tx }

// Begin begins a part of the transaction, with a savepoint.
func (t ownTx) Begin(ctx context.Context) (pgx.Tx, error) {
	part, err := t.Tx.Begin(ctx)
	return ownTx{part}, err
}

// transact runs f in a transaction of its own.
func transact(ctx context.Context, db DB, m txMode, f func(pgx.Tx) error) error {
	return onConn(ctx, db, func(conn *pgx.Conn) error {
		return pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
			b := &pgx.Batch{}
			n, err := m.preamble(ctx, conn, b)
			if err == nil {
				err = sendAll(ctx, tx, b, around(nil, n, 0))
			}
			if err != nil {
				return err
			}
			return f(ownTx{tx})
		})
	})
}

// ask sends one statement and gives its rows to read; see exchange.
func ask(ctx context.Context, db DB, sql string, args []any, read func(pgx.Rows) error) error {
	b := &pgx.Batch{}
	b.Queue(sql, args...)
	return exchange(ctx, db, patient, b, read)
}

// askOne is ask for a single value; pgx.ErrNoRows if there is none.
func askOne[T any](ctx context.Context, db DB, sql string, args ...any) (v T, err error) {
	err = ask(ctx, db, sql, args, func(rows pgx.Rows) error {
		v, err = pgx.CollectOneRow(rows, pgx.RowTo[T])
		return err
	})
	return v, err
}

// askRow is ask for one row; pgx.ErrNoRows if there is none.
func askRow(ctx context.Context, db DB, sql string, args []any, dest ...any) error {
	return ask(ctx, db, sql, args, func(rows pgx.Rows) error {
		_, err := pgx.CollectOneRow(rows, func(row pgx.CollectableRow) (struct{}, error) { return struct{}{}, row.Scan(dest...) })
		return err
	})
}

// collect reads all rows into out.
func collect[T any](out *[]T, row pgx.RowToFunc[T]) func(pgx.Rows) error {
	return func(rows pgx.Rows) (err error) {
		*out, err = pgx.CollectRows(rows, row)
		return err
	}
}

// changed sends one statement and reports whether it changed a row.
func changed(ctx context.Context, db DB, sql string, args ...any) (did bool, err error) {
	err = ask(ctx, db, sql, args, func(rows pgx.Rows) error {
		rows.Close()
		did = rows.CommandTag().RowsAffected() > 0
		return rows.Err()
	})
	return did, err
}

// exchange sends statements in one round trip, and gives the rows of each to its read; a nil read ignores them. If db is a
// transaction, the statements are a part of it, and a caller's transaction keeps its settings. Otherwise they are a
// transaction of their own.
func exchange(ctx context.Context, db DB, m txMode, b *pgx.Batch, reads ...func(pgx.Rows) error) error {
	for len(reads) < b.Len() {
		reads = append(reads, nil)
	}
	whole := &pgx.Batch{}
	switch tx := db.(type) {
	case ownTx:
		return sendAll(ctx, tx, b, reads)
	case pgx.Tx:
		whole.Queue(byIndex)
		whole.QueuedQueries = append(whole.QueuedQueries, b.QueuedQueries...)
		whole.Queue(byCost)
		return sendAll(ctx, tx, whole, around(reads, 1, 1))
	}
	return onConn(ctx, db, func(conn *pgx.Conn) error {
		whole.Queue(beginTx)
		n, err := m.preamble(ctx, conn, whole)
		if err != nil {
			return err
		}
		whole.QueuedQueries = append(whole.QueuedQueries, b.QueuedQueries...)
		whole.Queue(commitTx)
		err = sendAll(ctx, conn, whole, around(reads, 1+n, 1))
		if err != nil {
			abort(conn)
		}
		return err
	})
}

// around adds statements without rows before and after others.
func around(reads []func(pgx.Rows) error, before, after int) []func(pgx.Rows) error {
	return append(append(make([]func(pgx.Rows) error, before, before+len(reads)+after), reads...), make([]func(pgx.Rows) error, after)...)
}

// sendAll returns when every answer was read, that of the commit included.
func sendAll(ctx context.Context, db DB, b *pgx.Batch, reads []func(pgx.Rows) error) error {
	res := db.SendBatch(ctx, b)
	defer res.Close()
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
	return res.Close()
}

// abort ends the transaction that a statement has failed in, so that the pool may keep the connection.
func abort(conn *pgx.Conn) {
	if conn.IsClosed() || conn.PgConn().TxStatus() == 'I' {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, _ = conn.Exec(ctx, `ROLLBACK`) // if it fails, pgx closes the connection, which ends the transaction
}

// onConn calls f with a connection: db itself, or one of the pool. It waits at most half of the call's time for one of the
// pool: the other half is for the statements.
func onConn(ctx context.Context, db DB, f func(*pgx.Conn) error) error {
	switch db := db.(type) {
	case *pgx.Conn:
		return f(db)
	case *pgxpool.Conn:
		return f(db.Conn())
	case *pgxpool.Pool:
		conn, err := acquire(ctx, db)
		if err != nil {
			return err
		}
		defer conn.Release()
		err = f(conn.Conn())
		DropReadOnly(conn.Conn(), err)
		return err
	}
	return fmt.Errorf("a %T cannot begin a transaction", db)
}

// DropReadOnly closes conn if err says that it takes no writes, so that the pool replaces it. A connection that began while
// the database was read-only, or whose server has become a standby since, stays read-only when others are not.
func DropReadOnly(conn *pgx.Conn, err error) {
	if code(err) != readOnly || conn.IsClosed() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx) // it is closed on this side in any case
}

func acquire(ctx context.Context, pool *pgxpool.Pool) (*pgxpool.Conn, error) {
	wait := callTimeout / 2
	if t, ok := ctx.Deadline(); ok {
		wait = time.Until(t) / 2
	}
	if wait <= 0 {
		return nil, context.DeadlineExceeded
	}
	waiting, cancel := context.WithTimeout(caller(ctx), wait)
	defer cancel()
	conn, err := pool.Acquire(waiting)
	if err != nil && waiting.Err() != nil {
		stat := pool.Stat()
		err = &NoConnection{InUse: stat.AcquiredConns(), Opening: stat.ConstructingConns(), Most: stat.MaxConns(), Err: err}
	}
	return conn, err
}

// A NoConnection reports that the pool gave no connection in time. Nothing was sent.
type NoConnection struct {
	InUse, Opening, Most int32 // connections
	Err                  error
}

// busy reports whether all connections were in use. If not, the server does not answer to new ones. A connection that has
// been released in the meantime changes nothing.
func (e *NoConnection) busy() bool { return e.InUse >= e.Most || e.Opening == 0 }

func (e *NoConnection) Error() string {
	if !e.busy() {
		return fmt.Sprintf("no connection could be opened in time: %v", e.Err)
	}
	return fmt.Sprintf("no connection of the pool became free in time: all %d are in use, by steps or other code of this process: raise pool_max_conns, or give Kagzi a pool of its own", e.Most)
}

func (e *NoConnection) Unwrap() error { return e.Err }

// ErrIsolation reports a caller's transaction whose isolation level is too strict.
var ErrIsolation = errors.New("the transaction is too strict")

// A fitTx is a caller's transaction whose isolation level fits.
type fitTx struct{ pgx.Tx }

// Begin begins a part of the transaction, with a savepoint.
func (t fitTx) Begin(ctx context.Context) (pgx.Tx, error) {
	part, err := t.Tx.Begin(ctx)
	return fitTx{part}, err
}

// AdaptTx returns tx for changes of runs in it; a nil tx stays nil. It returns ErrIsolation for a transaction that is too
// strict: see fit.
func (s *Store) AdaptTx(ctx context.Context, tx pgx.Tx) (pgx.Tx, error) {
	if tx == nil {
		return nil, nil
	}
	return fit(ctx, tx)
}

// fit refuses a caller's transaction that does not see the commits of others. A statement that reads after locking would
// miss a compensation, a child, or a run that has just ended.
func fit(ctx context.Context, tx pgx.Tx) (pgx.Tx, error) {
	switch tx.(type) {
	case ownTx, fitTx:
		return tx, nil
	}
	var level string
	if err := tx.QueryRow(ctx, `SELECT current_setting('transaction_isolation')`).Scan(&level); err != nil {
		return nil, err
	}
	if level == "repeatable read" || level == "serializable" {
		return nil, fmt.Errorf("%w: at %s it does not see what others commit while it waits for a lock: begin it at READ COMMITTED (pgx.TxOptions{IsoLevel: pgx.ReadCommitted})", ErrIsolation, level)
	}
	return fitTx{tx}, nil
}
