package fault

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

func lockFaults() []Fault {
	return []Fault{
		// F18: a snapshot is held, as by a long report: no dead row goes.
		{Name: "F18 old snapshot", Kind: "F18", Inject: oldSnapshot},
		// F18: an ACCESS EXCLUSIVE lock on each of Kagzi's tables, one after the other.
		{Name: "F18 lock each table", Kind: "F18", Inject: lockTables},
		// F18: an ACCESS EXCLUSIVE lock on all of Kagzi's tables at once.
		{Name: "F18 lock all tables", Kind: "F18", Inject: lockAll},
		// F18: an open transaction of a client locks a run that is due. The runs behind it may not wait.
		{Name: "F18 lock a due run", Kind: "F18", Inject: lockDueRun, Alone: true},
		// F18: VACUUM FULL of the tables that change most.
		{Name: "F18 VACUUM FULL", Kind: "F18", Inject: vacuumFull},
		// F19: eight sessions lock rows of the runs that workers execute, in order. None may run into a deadlock.
		{Name: "F19 storm of locks", Kind: "F19", Inject: lockStorm},
		// F19: eight operators cancel, resume, change and delete the same runs in bulk. None may run into a deadlock.
		{Name: "F19 storm of verbs", Kind: "F19", Inject: verbStorm},
	}
}

// oldSnapshot counts the transactions that began to write while the snapshot was held.
func oldSnapshot(ctx context.Context, w *World, _ *rand.Rand, d time.Duration) (effect int, note string, err error) {
	conn, err := w.connect(ctx)
	if err != nil {
		return 0, "", err
	}
	defer closeSession(conn) // which ends the transaction
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return 0, "", err
	}
	if _, err := tx.Exec(ctx, "SELECT count(*) FROM kagzi.workflow_runs"); err != nil {
		return 0, "", err
	}
	begun := time.Now()
	until(ctx, d+patience, func() bool {
		if time.Since(begun) < d {
			return false
		}
		effect, err = ask[int](ctx, w, `SELECT coalesce(max(age(backend_xmin)), 0) FROM pg_stat_activity
			WHERE pid = $1`, conn.PgConn().PID())
		return err != nil || effect > 0
	})
	return effect, fmt.Sprintf("%d transactions wrote while the snapshot was held", effect), errors.Join(err, ctx.Err())
}

const kagziTables = `SELECT c.oid::regclass::text FROM pg_class c WHERE c.relnamespace = 'kagzi'::regnamespace
	AND c.relkind IN ('r', 'p')
	AND NOT c.relispartition AND c.relname <> 'schema_migrations' ORDER BY 1`

// waiters counts the sessions that wait for one of these.
const waiters = `SELECT count(*) FROM pg_stat_activity a WHERE pg_blocking_pids(a.pid) && $1::int[]`

// holding executes lock in a transaction that it keeps open for d, and longer until a session waits if must is true. It
// returns the most that waited at once.
func (w *World) holding(ctx context.Context, lock string, d time.Duration, must bool) (most int, err error) {
	limit := d
	if must {
		limit += patience
	}
	err = w.with(ctx, func(conn *pgx.Conn) error {
		if err := lockSoon(ctx, conn, lock); err != nil {
			return err
		}
		var failed error
		begun := time.Now()
		until(ctx, limit, func() bool {
			var n int
			n, failed = ask[int](ctx, w, waiters, []uint32{conn.PgConn().PID()})
			most = max(most, n)
			return failed != nil || time.Since(begun) >= d && (most > 0 || !must)
		})
		return failed
	})
	return most, err
}

// lockSoon begins a transaction that executes lock. It gives up soon, as a rule before the server looks for a deadlock,
// and tries again, for no longer than patience: then it returns the server's refusal.
func lockSoon(ctx context.Context, conn *pgx.Conn, lock string) (err error) {
	for begun := time.Now(); ; {
		_, err = conn.Exec(ctx, "BEGIN; SET LOCAL lock_timeout = '500ms'; "+lock)
		if refused, ok := errors.AsType[*pgconn.PgError](err); !ok || refused.Code != "55P03" ||
			time.Since(begun) > patience {
			return err
		}
		if _, err := conn.Exec(ctx, "ROLLBACK"); err != nil {
			return err
		}
	}
}

func lockTables(ctx context.Context, w *World, r *rand.Rand, d time.Duration) (effect int, note string, err error) {
	tables, err := list[string](ctx, w, kagziTables)
	if err != nil {
		return 0, "", err
	}
	r.Shuffle(len(tables), func(i, j int) { tables[i], tables[j] = tables[j], tables[i] })
	for _, t := range tables {
		n, err := w.holding(ctx, "LOCK TABLE "+t+" IN ACCESS EXCLUSIVE MODE",
			max(50*time.Millisecond, d/time.Duration(len(tables))), t == "kagzi.workflow_runs")
		if err != nil {
			return effect, note, fmt.Errorf("lock %s: %w", t, err)
		}
		if effect += n; n > 0 {
			note += fmt.Sprintf("%d waited for %s; ", n, t)
		}
	}
	return effect, note, ctx.Err()
}

func lockAll(ctx context.Context, w *World, _ *rand.Rand, d time.Duration) (int, string, error) {
	all, err := ask[string](ctx, w, `SELECT string_agg(t, ', ') FROM (`+kagziTables+`) k (t)`)
	if err != nil {
		return 0, "", err
	}
	n, err := w.holding(ctx, "LOCK TABLE "+all+" IN ACCESS EXCLUSIVE MODE", d, true)
	return n, fmt.Sprintf("%d waited", n), errors.Join(err, ctx.Err())
}

// Locks a run that is not due yet and was made since.
const lockEarly = `
SELECT r.run_id FROM kagzi.workflow_runs r
WHERE r.created_at >= $1 AND r.status = 'PENDING' AND r.started_at IS NULL
	AND r.available_at > clock_timestamp() + interval '100 ms'
ORDER BY r.available_at LIMIT 1 FOR UPDATE`

// Counts the runs made since that were begun after the locked one was due, although they were due later.
const begunBehind = `
SELECT count(*) FROM kagzi.workflow_runs r
JOIN kagzi.workflow_runs l ON l.run_id = $1 AND l.task_queue = r.task_queue AND l.workflow_type = r.workflow_type
	AND l.priority = r.priority
WHERE r.run_id <> l.run_id AND r.created_at >= l.available_at AND r.started_at > l.available_at`

// lockDueRun counts the runs that were begun while one that is due before them was locked. If there is none, it is a
// violation: a claim passes over what others have locked.
func lockDueRun(ctx context.Context, w *World, _ *rand.Rand, d time.Duration) (effect int, note string, err error) {
	const ahead = 2 * time.Second
	// a slow machine has begun the run already
	for tries := 0; tries == 0 || errors.Is(err, pgx.ErrNoRows) && tries < 5; tries++ {
		var since time.Time
		if since, err = ask[time.Time](ctx, w, "SELECT clock_timestamp()"); err != nil {
			break
		}
		if _, err = w.burst(ctx, 1, since.Add(ahead)); err != nil {
			break
		}
		err = w.with(ctx, func(conn *pgx.Conn) error {
			return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
				var run uuid.UUID
				if err := tx.QueryRow(ctx, lockEarly, since).Scan(&run); err != nil {
					return err
				}
				pause(ctx, ahead) // by then it is due
				var failed error
				effect, failed = w.passOver(ctx, run, d)
				return failed
			})
		})
	}
	return effect, fmt.Sprintf("%d runs were begun behind a locked one", effect), errors.Join(err, ctx.Err())
}

// passOver starts runs that are due behind a locked one, and returns how many were begun after d, or later if there was
// none by then.
func (w *World) passOver(ctx context.Context, locked uuid.UUID, d time.Duration) (begun int, err error) {
	const behind, bound = 5, 3 * patience
	if _, err := w.burst(ctx, behind, time.Time{}); err != nil {
		return 0, err
	}
	from := time.Now()
	until(ctx, d+bound, func() bool {
		begun, err = ask[int](ctx, w, begunBehind, locked)
		return err != nil || begun > 0 && time.Since(from) >= d
	})
	if err == nil && begun == 0 && ctx.Err() == nil {
		return 0, &Violation{fmt.Sprintf("a run that is due was locked for %v, and none of those behind it "+
			"was begun", d+bound)}
	}
	return begun, err
}

// vacuumFull counts the tables that got new files.
func vacuumFull(ctx context.Context, w *World, _ *rand.Rand, d time.Duration) (effect int, note string, err error) {
	file := func(table string) (string, error) {
		return ask[string](ctx, w, "SELECT pg_relation_filepath($1)", table)
	}
	for end := time.Now().Add(d); ; {
		for _, t := range []string{"kagzi.workflow_runs", "kagzi.step_runs", "kagzi.workers"} {
			before, err := file(t)
			if err != nil {
				return effect, note, err
			}
			if err := w.exec(ctx, "VACUUM FULL "+t); err != nil {
				return effect, note, fmt.Errorf("VACUUM FULL %s: %w", t, err)
			}
			after, err := file(t)
			if err != nil {
				return effect, note, err
			}
			if after != before {
				effect++
			}
		}
		if ctx.Err() != nil || time.Now().After(end) {
			return effect, fmt.Sprintf("%d new files", effect), ctx.Err()
		}
	}
}

// Some runs, in the order of their IDs, as Kagzi locks them.
const lockSome = `
SELECT r.run_id FROM kagzi.workflow_runs r
WHERE r.run_id = ANY (ARRAY (SELECT k.run_id FROM kagzi.workflow_runs k WHERE k.finished_at IS NULL ORDER BY random()
	LIMIT 10))
ORDER BY r.run_id FOR UPDATE`

// stormers is how many sessions a storm has.
const stormers = 8

// storm calls do from some goroutines, again and again until end is called. The server looks for deadlocks soon,
// because most statements wait for a lock only a tenth of a second; the driver finds them in the server's log.
func (w *World) storm(ctx context.Context, r *rand.Rand,
	do func(ctx context.Context, stormer int, r *rand.Rand),
) (end func() error, err error) {
	lift, err := w.impose(ctx, ofServer, "deadlock_timeout", "10ms")
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	var all sync.WaitGroup
	for i := range stormers {
		r := rand.New(rand.NewPCG(r.Uint64(), 0))
		all.Go(func() {
			for ctx.Err() == nil {
				do(ctx, i, r)
			}
		})
	}
	return func() error {
		stop()
		all.Wait()
		return lift()
	}, nil
}

// lockStorm counts how often it saw sessions wait for its locks. It gives no transaction a reason for a deadlock: Kagzi
// locks runs in the order of their IDs, and the storm does, too.
func lockStorm(ctx context.Context, w *World, r *rand.Rand, d time.Duration) (effect int, note string, err error) {
	var locks atomic.Int64
	var pids [stormers]atomic.Uint32
	end, err := w.storm(ctx, r, func(ctx context.Context, stormer int, r *rand.Rand) {
		_ = w.with(ctx, func(conn *pgx.Conn) error { // its errors are those of the other faults
			pids[stormer].Store(conn.PgConn().PID())
			return lockAndWait(ctx, conn, r, &locks)
		})
	})
	if err != nil {
		return 0, "", err
	}
	begun := time.Now()
	until(ctx, d+patience, func() bool {
		var now []uint32
		for i := range pids {
			now = append(now, pids[i].Load())
		}
		n, failed := ask[int](ctx, w, waiters+` AND application_name <> '`+application+`'`, now)
		effect += n
		return failed != nil || time.Since(begun) >= d && effect > 0
	})
	err = errors.Join(end(), ctx.Err())
	return effect, fmt.Sprintf("%d transactions locked runs; others were seen waiting for them %d times", locks.Load(),
		effect), err
}

// verbStorm counts the changes that the operators were told to have made.
func verbStorm(ctx context.Context, w *World, r *rand.Rand, d time.Duration) (effect int, note string, err error) {
	if w.Bulk == nil {
		return 0, "", errors.New("this world has no operators")
	}
	var by [stormers]atomic.Int64
	busy := func() (operators, changes int) {
		for i := range by {
			if n := int(by[i].Load()); n > 0 {
				operators, changes = operators+1, changes+n
			}
		}
		return operators, changes
	}
	end, err := w.storm(ctx, r, func(ctx context.Context, stormer int, r *rand.Rand) {
		by[stormer].Add(int64(w.Bulk(ctx, r)))
		pause(ctx, look)
	})
	if err != nil {
		return 0, "", err
	}
	begun := time.Now()
	until(ctx, d+patience, func() bool {
		operators, _ := busy()
		return time.Since(begun) >= d && operators > 1 // one alone is no storm
	})
	err = errors.Join(end(), ctx.Err())
	operators, changes := busy()
	if operators > 1 {
		effect = changes
	}
	return effect, fmt.Sprintf("%d operators changed runs %d times", operators, changes), err
}

// lockAndWait locks some runs for a moment, again and again.
func lockAndWait(ctx context.Context, conn *pgx.Conn, r *rand.Rand, locks *atomic.Int64) error {
	for ctx.Err() == nil {
		err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, lockSome)
			pause(ctx, time.Duration(10+r.IntN(60))*time.Millisecond)
			return err
		})
		if err != nil {
			return err
		}
		locks.Add(1)
	}
	return nil
}
