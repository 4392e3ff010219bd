package pg

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A Mode says how a transaction of ours runs.
type Mode struct {
	Locks time.Duration // lock_timeout; zero: nine tenths of the statement's timeout
	// statement_timeout, if that is less than the time that the call has left; zero: that time
	Statements  time.Duration
	asyncCommit bool   // synchronous_commit is off: the commit does not wait for the disk
	customPlans bool   // the server plans statements at each call, by its own costs
	Trial       bool   // everything is rolled back at the end, even if it could be committed
	Backend     *int32 // set to the process ID of the backend that runs the transaction; nil: not asked

	Began *time.Time // set to when the transaction began, by the database's clock; nil: not asked
}

var (
	// Untimed waits for locks for as long as the call may take.
	Untimed = Mode{}
	// Brief is for statements that share a transaction with others, or that can be repeated later.
	Brief = Mode{Locks: BriefLockWait}
	// Relaxed is for claims: if a crash of the server loses one, it also loses all records made under it, and the run
	// is claimed again. It is also for deletes, which are repeated after a crash.
	Relaxed = Mode{Locks: BriefLockWait, asyncCommit: true}
	// Patient is relaxed for a caller who waits for the outcome.
	Patient = Mode{asyncCommit: true}
	// Listing is for statements whose arguments decide which index is best.
	Listing = Mode{customPlans: true}
)

// BriefLockWait is how long a statement waits for another transaction's lock if others share its transaction, or if it
// can be repeated later.
const BriefLockWait = 100 * time.Millisecond

// Every transaction of ours begins with beginTx and Prologue. They override the defaults of the role, the database and
// the pool, which are meant for other programs.
const (
	// A statement that reads after locking must see the commits of others, which stricter isolation levels do not show.
	beginTx = `BEGIN ISOLATION LEVEL READ COMMITTED`

	// The timeouts let the server end a transaction without a caller: a process that is frozen between two statements
	// keeps its locks for five seconds.
	//
	// While a table is small, or has no statistics, the planner chooses a plan that reads the whole table or a whole
	// index, and keeps that plan after the table has grown, until it is analyzed. So Prologue makes large reads of an
	// index expensive, and chooses the planMode. Costs that high would trigger jit, so Prologue switches it off.
	Prologue = `
SELECT ` + formats + `, set_config('lock_timeout', $1, true), set_config('statement_timeout', $2, true),
	set_config('idle_in_transaction_session_timeout', '5s', true),
	set_config('synchronous_commit', CASE WHEN $3::bool THEN 'off' ELSE current_setting('synchronous_commit') END,
		true),
	set_config('jit', 'off', true), CASE WHEN $4::bool THEN set_config('plan_cache_mode', 'force_custom_plan', true)
		ELSE set_config('enable_seqscan', 'off', true) || set_config('cpu_index_tuple_cost', '10', true) ||
			set_config('plan_cache_mode', ` + planMode + `, true) END,
	now(), pg_backend_pid()`
	commitTx = `COMMIT`

	// These end a trial: constraints that would be checked at the commit are checked before.
	checkConstraints = `SET CONSTRAINTS ALL IMMEDIATE`
	rollbackTx       = `ROLLBACK`
)

// On Citus the rows are on other servers. They get a setting only by SET LOCAL, and only after propagateSettings.
const (
	propagateSettings   = `SET LOCAL citus.propagate_set_commands = 'local'`
	setBriefLockTimeout = `SET LOCAL lock_timeout = '100ms'`
	setCallLockTimeout  = `SET LOCAL lock_timeout = '1s'`
)

// preamble queues the statements that follow BEGIN in a transaction on conn, and returns how many it queued.
func (m Mode) preamble(ctx context.Context, conn *pgx.Conn, b *pgx.Batch) (n int, err error) {
	b.Queue(Prologue, m.PrologueArgs(ctx)...)
	if m.Locks == 0 {
		return 1, nil
	}
	distributed, err := HasCitus(ctx, conn)
	if err != nil || !distributed || isSimple(conn) {
		return 1, err
	}
	b.Queue(propagateSettings)
	if m.Locks <= BriefLockWait {
		b.Queue(setBriefLockTimeout)
	} else {
		b.Queue(setCallLockTimeout)
	}
	return 3, nil
}

// isSimple reports whether conn sends all statements of a batch as one text. Citus would send that whole text to the
// nodes in place of a SET in it, and they would refuse it.
func isSimple(conn *pgx.Conn) bool {
	return conn.Config().DefaultQueryExecMode == pgx.QueryExecModeSimpleProtocol
}

// end queues the end of the transaction, and returns how many statements it queued.
func (m Mode) end(b *pgx.Batch) (n int) {
	if !m.Trial {
		b.Queue(commitTx)
		return 1
	}
	b.Queue(checkConstraints)
	b.Queue(rollbackTx)
	return 2
}

// HasCitus reports whether the database of conn has Citus. It asks once for each connection.
func HasCitus(ctx context.Context, conn *pgx.Conn) (yes bool, err error) {
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

// formats make the server read and write values in the form that we and pgx use, whatever the settings of the user or
// the database are. In the exec modes without descriptions values travel as text. The arrays that we write as text need
// UTF8: in some other encodings a backslash can be the second half of a character.
const formats = `set_config('DateStyle', 'ISO', true), set_config('bytea_output', 'hex', true),
	set_config('array_nulls', 'on', true), set_config('client_encoding', 'UTF8', true)`

// planMode lets the server keep no plan until the table has grown: if it was vacuumed while it was almost empty, the
// planner knows that any plan will do. Before the first vacuum the planner assumes ten pages, which is enough for the
// right plan. A generic plan cannot name a shard, so statements on distributed tables get custom plans, too.
const planMode = `CASE
			WHEN pg_relation_size('kagzi.workflow_runs'::regclass) < 65536
				AND (SELECT c.reltuples >= 0 FROM pg_class c WHERE c.oid = 'kagzi.workflow_runs'::regclass)
				OR current_setting('citus.version', true) <> '' THEN 'force_custom_plan'
			ELSE 'force_generic_plan' END`

// In a caller's transaction only the formats and the planner's settings are changed: applySettings sets ours,
// restoreSettings the caller's.
const (
	ApplySettings = `
SELECT set_config('kagzi.settings', concat_ws('|', current_setting('enable_seqscan'),
	current_setting('cpu_index_tuple_cost'),
		current_setting('jit'), current_setting('plan_cache_mode'), current_setting('DateStyle'),
			current_setting('bytea_output'),
		current_setting('array_nulls'), current_setting('client_encoding')), true),
	` + formats + `, set_config('enable_seqscan', 'off', true), set_config('cpu_index_tuple_cost', '10', true),
		set_config('jit', 'off', true),
	set_config('plan_cache_mode', ` + planMode + `, true)`
	restoreSettings = `
SELECT set_config('enable_seqscan', split_part(current_setting('kagzi.settings'), '|', 1), true),
	set_config('cpu_index_tuple_cost', split_part(current_setting('kagzi.settings'), '|', 2), true),
	set_config('jit', split_part(current_setting('kagzi.settings'), '|', 3), true),
	set_config('plan_cache_mode', split_part(current_setting('kagzi.settings'), '|', 4), true),
	set_config('DateStyle', split_part(current_setting('kagzi.settings'), '|', 5), true),
	set_config('bytea_output', split_part(current_setting('kagzi.settings'), '|', 6), true),
	set_config('array_nulls', split_part(current_setting('kagzi.settings'), '|', 7), true),
	set_config('client_encoding', split_part(current_setting('kagzi.settings'), '|', 8), true)`
)

// prologueArgs returns the arguments of prologue for a transaction whose call ends with ctx. The server's timeout is a
// little shorter than the call's, so that the outcome is known and the connection survives.
func (m Mode) PrologueArgs(ctx context.Context) []any {
	timeout := CallTimeout
	if t, ok := ctx.Deadline(); ok {
		timeout = time.Until(t) * 9 / 10
	}
	if m.Statements > 0 {
		timeout = min(timeout, m.Statements)
	}
	locks := m.Locks
	if locks == 0 {
		locks = timeout * 9 / 10 // shorter than the statement's timeout, so that the error is lock_not_available
	}
	return []any{millis(max(locks, 1)), millis(max(timeout, 1)), m.asyncCommit, m.customPlans}
}

// readPrologue reads the last columns of Prologue.
func (m Mode) readPrologue(rows pgx.Rows) error {
	columns := make([]any, len(rows.FieldDescriptions())) // nil skips a column
	if m.Began != nil {
		columns[len(columns)-2] = UTC(m.Began)
	}
	if m.Backend != nil {
		columns[len(columns)-1] = m.Backend
	}
	_, err := pgx.ForEachRow(rows, columns, func() error { return nil })
	return err
}

// millis returns d in milliseconds for a setting. It rounds up, because zero means no timeout.
func millis(d time.Duration) string {
	return fmt.Sprint(int64((d + time.Millisecond - 1) / time.Millisecond))
}

// An ownTx is a transaction that transact has begun, or a savepoint in one: its settings are ours.
type ownTx struct{ pgx.Tx }

// Begin sets a savepoint.
func (t ownTx) Begin(ctx context.Context) (pgx.Tx, error) {
	part, err := t.Tx.Begin(ctx)
	return ownTx{part}, err
}

// Transact runs f in a transaction of its own.
func Transact(ctx context.Context, db DB, m Mode, f func(pgx.Tx) error) error {
	return OnConn(ctx, db, func(conn *pgx.Conn) error {
		return pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
			b := &pgx.Batch{}
			n, err := m.preamble(ctx, conn, b)
			if err == nil {
				err = SendAll(ctx, tx, b, PadReads(nil, n, 0))
			}
			if err != nil {
				return err
			}
			return f(ownTx{tx})
		})
	})
}

// Exchange sends statements in one round trip, and calls the read of each with its rows; a nil read ignores them. If db
// is a transaction, the statements are a part of it, and a caller's transaction gets its settings back. Otherwise they
// are a transaction of their own, with mode m.
func Exchange(ctx context.Context, db DB, m Mode, b *pgx.Batch, reads ...func(pgx.Rows) error) error {
	for len(reads) < b.Len() {
		reads = append(reads, nil)
	}
	whole := &pgx.Batch{}
	switch tx := db.(type) {
	case ownTx:
		return SendAll(ctx, tx, b, reads)
	case pgx.Tx:
		whole.Queue(ApplySettings)
		whole.QueuedQueries = append(whole.QueuedQueries, b.QueuedQueries...)
		whole.Queue(restoreSettings)
		return SendAll(ctx, tx, whole, PadReads(reads, 1, 1))
	}
	return OnConn(ctx, db, func(conn *pgx.Conn) error {
		whole.Queue(beginTx)
		n, err := m.preamble(ctx, conn, whole)
		if err != nil {
			return err
		}
		whole.QueuedQueries = append(whole.QueuedQueries, b.QueuedQueries...)
		reads = PadReads(reads, 1+n, m.end(whole))
		reserve(conn, whole)
		if m.Backend != nil || m.Began != nil {
			reads[1] = m.readPrologue
		}
		if err = SendAll(ctx, conn, whole, reads); err != nil {
			abort(conn)
		}
		return err
	})
}

// An Step is a round trip of a transaction: statements and the readers of their answers.
type Step struct {
	Batch *pgx.Batch
	Reads []func(pgx.Rows) error
	Then  func() Step // returns the next step, once the answers have been read; nil: this is the last one
}

// Converse is exchange for a transaction of its own in several round trips. A process that is frozen in between keeps
// the locks for as long as prologue says.
func Converse(ctx context.Context, db DB, m Mode, step Step) error {
	return OnConn(ctx, db, func(conn *pgx.Conn) error {
		whole := &pgx.Batch{}
		whole.Queue(beginTx)
		n, err := m.preamble(ctx, conn, whole)
		if err != nil {
			return err
		}
		whole.QueuedQueries = append(whole.QueuedQueries, step.Batch.QueuedQueries...)
		for before, b := 1+n, whole; ; before, b = 0, step.Batch {
			last := step.Then == nil
			after := 0
			if last {
				after = m.end(b)
			}
			if err = SendAll(ctx, conn, b, PadReads(step.Reads, before, after)); err != nil || last {
				break
			}
			step = step.Then()
		}
		if err != nil {
			abort(conn)
		}
		return err
	})
}

// PadReads adds nil reads for the statements that are sent before and after others.
func PadReads(reads []func(pgx.Rows) error, before, after int) []func(pgx.Rows) error {
	return append(append(make([]func(pgx.Rows) error, before, before+len(reads)+after), reads...),
		make([]func(pgx.Rows) error, after)...)
}

// SendAll sends the statements, and returns once every answer was read, including that of the commit.
func SendAll(ctx context.Context, db DB, b *pgx.Batch, reads []func(pgx.Rows) error) error {
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

// abort rolls back the transaction in which a statement failed, so that the pool may keep the connection.
func abort(conn *pgx.Conn) {
	if conn.IsClosed() || conn.PgConn().TxStatus() == 'I' {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, _ = conn.Exec(ctx, `ROLLBACK`) // if it fails, pgx closes the connection, which ends the transaction
}

// OnConn calls f with a connection: db itself, or one of the pool. It waits for the pool at most half of the call's
// time: the other half is for the statements.
func OnConn(ctx context.Context, db DB, f func(*pgx.Conn) error) error {
	switch db := db.(type) {
	case *pgx.Conn:
		return f(db)
	case *pgxpool.Conn:
		return f(db.Conn())
	case *pgxpool.Pool:
		conn, err := acquireSound(ctx, db)
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

type suspicionKey struct{}

// Suspecting returns a context for another try of a call that failed with err. If the fault was that of a connection,
// the try takes none of the pool that has it, too: without that, a call would meet one dead connection after the other
// when the server has restarted.
func Suspecting(ctx context.Context, err error) context.Context {
	if Classify(err) == ClassAway && !Unsent(err) {
		ctx = context.WithValue(ctx, suspicionKey{}, err)
	}
	return ctx
}

// acquireSound is acquire, and passes over connections that have the fault that ctx suspects. It looks at no more than
// the pool has: those that it opens then have no fault that another one would not have.
func acquireSound(ctx context.Context, pool *pgxpool.Pool) (*pgxpool.Conn, error) {
	conn, err := acquire(ctx, pool)
	why, suspect := ctx.Value(suspicionKey{}).(error)
	if !suspect {
		return conn, err
	}
	for left := pool.Stat().TotalConns(); left > 0 && err == nil && !isSound(ctx, conn.Conn(), why); left-- {
		conn.Release()
		conn, err = acquire(ctx, pool)
	}
	return conn, err
}

// isSound reports whether a connection lacks the fault of another one. It closes one that has it.
func isSound(ctx context.Context, conn *pgx.Conn, why error) bool {
	if Code(why) != ReadOnly {
		return conn.Ping(ctx) == nil // an error closes it
	}
	var setting string
	err := conn.QueryRow(ctx, `SHOW transaction_read_only`).Scan(&setting)
	if err == nil && setting != "off" {
		closeNow(conn)
	}
	return err == nil && setting == "off"
}

// MadeReadOnly reports whether a transaction on conn, which has failed with err, was made read-only by its own code:
// the next one on the connection is not. It ends the transaction.
func MadeReadOnly(ctx context.Context, conn *pgx.Conn, err error) bool {
	if Code(err) != ReadOnly || conn.IsClosed() {
		return false
	}
	if _, ended := conn.Exec(ctx, `ROLLBACK`); ended != nil {
		return false
	}
	return isSound(ctx, conn, err)
}

// DropReadOnly closes conn if err says that it is read-only, so that the pool replaces it. A connection that began
// while the database was read-only, or whose server has become a standby since, stays read-only when new ones are not.
func DropReadOnly(conn *pgx.Conn, err error) {
	if Code(err) == ReadOnly && !conn.IsClosed() {
		closeNow(conn)
	}
}

func closeNow(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx) // even after an error it is closed on this side
}

// acquire returns a connection of the pool. The context of the outermost caller ends the wait, too.
func acquire(ctx context.Context, pool *pgxpool.Pool) (*pgxpool.Conn, error) {
	wait := CallTimeout / 2
	if t, ok := ctx.Deadline(); ok {
		wait = time.Until(t) / 2
	}
	return AcquireWithin(ctx, pool, wait)
}

// AcquireWithin is acquire with a limit of its own.
func AcquireWithin(ctx context.Context, pool *pgxpool.Pool, wait time.Duration) (*pgxpool.Conn, error) {
	if wait <= 0 {
		return nil, context.DeadlineExceeded
	}
	waiting, cancel := context.WithTimeout(caller(ctx), wait)
	defer cancel()
	conn, err := pool.Acquire(waiting)
	if err != nil && waiting.Err() != nil {
		stat := pool.Stat()
		err = &NoConnection{
			Open: stat.TotalConns() - stat.ConstructingConns(), Most: stat.MaxConns(), Err: err,
		}
	}
	return conn, err
}

// A NoConnection reports that the pool returned no connection in time. Nothing was sent.
type NoConnection struct {
	Open, Most int32 // connections of the pool when the wait ended; Most is its MaxConns
	Err        error
}

// busy reports whether all connections were in use, even if one was released since. If not, the server did not answer
// attempts to open one.
func (e *NoConnection) busy() bool { return e.Open >= e.Most }

func (e *NoConnection) Error() string {
	if !e.busy() {
		return fmt.Sprintf("no connection could be opened in time: %v", e.Err)
	}
	return fmt.Sprintf("no connection of the pool became free in time: all %d are in use, by steps or other code of "+
		"this process: raise pool_max_conns, or give Kagzi a pool of its own", e.Most)
}

func (e *NoConnection) Unwrap() error { return e.Err }

// ErrIsolation reports that a caller's transaction has an isolation level that is too strict.
var ErrIsolation = errors.New("the transaction's isolation level is too strict")

// A checkedTx is a caller's transaction whose isolation level was checked.
type checkedTx struct{ pgx.Tx }

// Begin sets a savepoint.
func (t checkedTx) Begin(ctx context.Context) (pgx.Tx, error) {
	part, err := t.Tx.Begin(ctx)
	return checkedTx{part}, err
}

// CheckIsolation returns ErrIsolation for a caller's transaction that does not see the commits of others: in it, a
// statement that reads after locking would miss a compensation, a child, or a run that has just ended.
func CheckIsolation(ctx context.Context, tx pgx.Tx) (pgx.Tx, error) {
	switch tx.(type) {
	case ownTx, checkedTx:
		return tx, nil
	}
	var level string
	if err := tx.QueryRow(ctx, `SELECT current_setting('transaction_isolation')`).Scan(&level); err != nil {
		return nil, err
	}
	if level == "repeatable read" || level == "serializable" {
		return nil, fmt.Errorf("%w: a transaction at %s does not see what others commit while it waits for a lock: "+
			"begin one at READ COMMITTED (pgx.TxOptions{IsoLevel: pgx.ReadCommitted})", ErrIsolation, level)
	}
	return checkedTx{tx}, nil
}
