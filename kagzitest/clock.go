package kagzitest

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"
)

// searchPath puts the functions of shadow before the server's of the same names. What is created without a schema goes to
// public, as ever.
const searchPath = `"$user", public, kagzitest, pg_catalog`

// shadow gives a database a clock of its own: functions that say the server's time and what it was set forward by, under
// the names that statements use. A column's default was bound to the server's when its table was made.
//
// move sets the clock forward, to a time at the most. What is measured by it and must not notice moves along: the leases
// of runs under way, and the heartbeats. The locks wait for every transaction that writes runs to end, so none has
// written by one clock what it goes on with by the other; and briefly, because others queue up behind them.
const shadow = `
CREATE SCHEMA kagzitest;
CREATE TABLE kagzitest.clock (micros bigint NOT NULL);
INSERT INTO kagzitest.clock VALUES (0);

CREATE FUNCTION kagzitest.now() RETURNS timestamptz LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
BEGIN
	RETURN pg_catalog.now() + (SELECT c.micros * interval '1 microsecond' FROM kagzitest.clock c);
END $$;
CREATE FUNCTION kagzitest.statement_timestamp() RETURNS timestamptz LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
BEGIN
	RETURN pg_catalog.statement_timestamp() + (SELECT c.micros * interval '1 microsecond' FROM kagzitest.clock c);
END $$;
CREATE FUNCTION kagzitest.clock_timestamp() RETURNS timestamptz LANGUAGE plpgsql VOLATILE PARALLEL SAFE AS $$
BEGIN
	RETURN pg_catalog.clock_timestamp() + (SELECT c.micros * interval '1 microsecond' FROM kagzitest.clock c);
END $$;

CREATE FUNCTION kagzitest.move(target timestamptz) RETURNS timestamptz LANGUAGE plpgsql AS $$
DECLARE
	d bigint;
BEGIN
	PERFORM set_config('lock_timeout', '100ms', true);
	LOCK TABLE kagzi.schedules, kagzi.workflow_runs, kagzi.workers IN EXCLUSIVE MODE;
	d := greatest(0, extract(epoch FROM target - kagzitest.clock_timestamp()) * 1000000);
	UPDATE kagzitest.clock SET micros = micros + d;
	UPDATE kagzi.workflow_runs SET available_at = available_at + d * interval '1 microsecond' WHERE status = 'RUNNING';
	UPDATE kagzi.workers SET heartbeat_at = heartbeat_at + d * interval '1 microsecond',
		stopped_at = stopped_at + d * interval '1 microsecond', release_at = release_at + d * interval '1 microsecond';
	PERFORM pg_notify('kagzi_work', h.hint) FROM (
		SELECT w.namespace_id || ':' || w.task_queue AS hint FROM kagzi.workers w WHERE w.status <> 'OFFLINE'
		UNION SELECT w.namespace_id || ':' FROM kagzi.workers w
	) h;
	PERFORM pg_notify('kagzi_run', w.namespace_id || ':' || w.worker_id) FROM kagzi.workers w WHERE w.status <> 'OFFLINE';
	RETURN kagzitest.clock_timestamp();
END $$;

DO $$
DECLARE
	c record;
BEGIN
	FOR c IN SELECT d.adrelid::regclass AS relation, a.attname FROM pg_attrdef d
		JOIN pg_attribute a ON a.attrelid = d.adrelid AND a.attnum = d.adnum
		JOIN pg_class r ON r.oid = d.adrelid AND r.relnamespace = 'kagzi'::regnamespace
		WHERE pg_get_expr(d.adbin, d.adrelid) ~ '\mnow\(\)'
	LOOP
		EXECUTE format('ALTER TABLE %s ALTER COLUMN %I SET DEFAULT kagzitest.now()', c.relation, c.attname);
	END LOOP;
END $$;`

const (
	// patience bounds what a call waits for while nothing moves on.
	patience = 30 * time.Second

	lookAgain = time.Millisecond
)

// Now returns the time by the database's clock, in UTC.
func (e *Env) Now() time.Time {
	e.t.Helper()
	var now time.Time
	if err := e.Pool.QueryRow(e.ctx, `SELECT kagzitest.clock_timestamp()`).Scan(&now); err != nil {
		e.t.Fatalf("kagzitest: read the clock: %v", err)
	}
	return now.UTC()
}

// Advance moves the database's clock forward by d, from one moment at which something becomes due to the next, and at each
// lets what is due happen: runs wake up and go on, steps are tried again, deadlines pass, schedules fire. It returns when d
// has passed and everything has gone as far as it does by then. So 90 days of a workflow that sleeps three times for 30 are
// one Advance; each such moment takes some milliseconds.
//
// Advance(0) moves nothing, and waits for what is due now.
//
// The function of a step that takes longer than [Config].StepPatience is not waited for: time goes on without it. Its
// [kagzi.Timeout] is measured in real time. A transaction of the test that is open, and has written to Kagzi's tables, makes Advance fail.
func (e *Env) Advance(d time.Duration) {
	e.t.Helper()
	e.StartWorker()
	if d < 0 {
		e.t.Fatalf("kagzitest: Advance(%v): time does not go back", d)
	}
	target := e.settle().now.Add(d)
	for {
		v := e.settle()
		if !v.now.Before(target) {
			return
		}
		next := target
		if !v.next.IsZero() && v.next.Before(target) {
			next = v.next
		}
		e.move(next)
	}
}

// move sets the clock forward to a time.
func (e *Env) move(to time.Time) {
	e.t.Helper()
	deadline := time.Now().Add(patience / 3)
	for {
		var now time.Time
		asked := time.Now()
		err := e.Pool.QueryRow(e.ctx, `SELECT kagzitest.move($1)`, to).Scan(&now)
		if err == nil {
			e.session.SetClock(now, asked)
			e.session.Wake()
			return
		}
		// A deadlock with a transaction that locks the same tables in another order ends like a lock that was not given.
		if pe, ok := errors.AsType[*pgconn.PgError](err); !ok || pe.Code != "55P03" && pe.Code != "40P01" {
			e.t.Fatalf("kagzitest: advance the clock: %v", err)
		}
		if time.Now().After(deadline) {
			e.t.Fatalf("kagzitest: advance the clock: a transaction that has written to Kagzi's tables is open: commit it before (%v)", err)
		}
		time.Sleep(lookAgain)
	}
}

// A view is what the tables say at a time: what is under way, what is due, and when something becomes due next.
type view struct {
	asked   time.Time // by this process's clock
	now     time.Time
	running []running
	due     []string
	late    bool      // runs are over their deadline that no worker executes: the coordinator ends them
	next    time.Time // zero if nothing does
}

// A running is a run that is under way.
type running struct {
	ID         uuid.UUID
	Worker     uuid.UUID
	Wakeups    int64
	Cancelling bool
}

// A run that waits for the one before of its schedule is due once no other of the schedule is active. One that no worker
// has code for, in its version, is somebody else's, until its deadline, when the coordinator of namespace $1 ends it; but
// nobody needs its code to go on with its compensations.
const lookAround = `
WITH t AS MATERIALIZED (SELECT kagzitest.clock_timestamp() AS now),
active AS MATERIALIZED (
	SELECT r.run_id, r.workflow_type, r.task_queue, r.status, r.locked_by, r.available_at, r.waiting_on, r.schedule_id, r.version,
		r.wakeups, r.outcome IS NOT NULL AS compensating, r.cancel_requested_at IS NOT NULL AS cancelling, CASE WHEN r.namespace_id = $1 AND r.status <> 'RUNNING' THEN r.deadline_at END AS deadline_at
	FROM kagzi.workflow_runs r WHERE r.status IN ('PENDING', 'RUNNING', 'SLEEPING')
	UNION ALL
	SELECT s.schedule_id, s.workflow_type, s.task_queue, 'SCHEDULED', NULL, s.next_at, NULL, NULL, s.version, 0, false, false, NULL
	FROM kagzi.schedules s WHERE NOT s.paused
)
SELECT t.now,
	ARRAY(SELECT a.run_id FROM active a WHERE a.status = 'RUNNING' ORDER BY a.run_id),
	ARRAY(SELECT a.locked_by FROM active a WHERE a.status = 'RUNNING' ORDER BY a.run_id),
	ARRAY(SELECT a.wakeups FROM active a WHERE a.status = 'RUNNING' ORDER BY a.run_id),
	ARRAY(SELECT a.cancelling FROM active a WHERE a.status = 'RUNNING' ORDER BY a.run_id),
	ARRAY(
		SELECT concat_ws(' ', CASE WHEN a.status = 'SCHEDULED' THEN 'the schedule of' ELSE a.run_id || ' of' END, a.workflow_type, 'version ' || a.version, 'on queue', a.task_queue)
		FROM active a WHERE a.deadline_at <= t.now OR a.status <> 'RUNNING' AND (a.available_at <= t.now OR a.status = 'PENDING' AND a.waiting_on = 'previous run' AND NOT EXISTS (
			SELECT FROM active p WHERE p.schedule_id = a.schedule_id AND p.run_id <> a.run_id AND p.status <> 'SCHEDULED'))
			AND (a.status = 'SCHEDULED' OR a.compensating OR EXISTS (SELECT FROM kagzi.workers w
				WHERE w.status = 'ONLINE' AND w.task_queue = a.task_queue AND a.workflow_type = ANY (w.workflow_types)
					AND (a.version IS NULL OR w.handlers IS NULL OR a.workflow_type || '/' || a.version = ANY (w.handlers))))
		ORDER BY a.run_id LIMIT 5
	),
	(SELECT bool_or(a.deadline_at <= t.now) IS TRUE FROM active a),
	LEAST((SELECT min(a.available_at) FROM active a WHERE a.status <> 'RUNNING' AND a.available_at > t.now AND a.available_at < 'infinity'),
		(SELECT min(a.deadline_at) FROM active a WHERE a.deadline_at > t.now AND a.deadline_at < 'infinity'))
FROM t`

// coordinated returns the namespace whose coordinator the test's worker hosts, empty if it hosts none.
func (e *Env) coordinated() string {
	if e.cfg.Worker.NoCoordinator {
		return ""
	}
	return e.namespace
}

func (e *Env) look() view {
	e.t.Helper()
	v := view{asked: time.Now()}
	var next *time.Time
	var runs, workers []uuid.UUID
	var wakeups []int64
	var cancelling []bool
	if err := e.Pool.QueryRow(e.ctx, lookAround, e.coordinated()).Scan(&v.now, &runs, &workers, &wakeups, &cancelling, &v.due, &v.late, &next); err != nil {
		e.t.Fatalf("kagzitest: look at the runs: %v", err)
	}
	for i := range runs {
		v.running = append(v.running, running{runs[i], workers[i], wakeups[i], cancelling[i]})
	}
	if next != nil {
		v.next = *next
	}
	return v
}

// settle waits until nothing is due and whatever is under way waits, and returns what is seen then.
func (e *Env) settle() view {
	e.t.Helper()
	deadline := time.Now().Add(patience)
	unknown := map[uuid.UUID]time.Time{} // runs that workers elsewhere execute, and since when that is known
	for {
		v := e.look()
		e.session.SetClock(v.now, v.asked)
		if len(v.due) == 0 && e.waiting(&v, unknown) && e.still(&v) {
			return v
		}
		if err := e.ctx.Err(); err != nil {
			e.t.Fatalf("kagzitest: the test is over: %v", err)
		}
		e.checkWorker()
		if v.late {
			e.session.Wake() // the last look of the coordinator may have been a moment ago
		}
		if time.Now().After(deadline) {
			e.t.Fatalf("kagzitest: after %v runs are still due or under way: due: %s; under way: %v", patience, strings.Join(v.due, ", "), v.running)
		}
		time.Sleep(lookAgain)
	}
}

// still reports whether nothing has happened since v was looked at, and so while the executions were, one after the other.
func (e *Env) still(v *view) bool {
	e.t.Helper()
	now := e.look()
	if !now.next.IsZero() && (v.next.IsZero() || now.next.Before(v.next)) {
		v.next = now.next
	}
	return len(now.due) == 0 && slices.Equal(now.running, v.running)
}

// waiting reports whether the runs under way wait, and notes when the next of their waits ends.
func (e *Env) waiting(v *view, unknown map[uuid.UUID]time.Time) bool {
	for _, r := range v.running {
		look := e.session.Look(r.ID, r.Wakeups, r.Cancelling)
		if !look.Here {
			if unknown[r.ID].IsZero() {
				unknown[r.ID] = time.Now()
			}
			if r.Worker == e.session.Worker() || time.Since(unknown[r.ID]) < e.cfg.StepPatience { // it has just been claimed, or has just ended
				return false
			}
			continue
		}
		if look.Busy > e.slow(r.ID) {
			return false
		}
		if !look.Next.IsZero() && (v.next.IsZero() || look.Next.Before(v.next)) {
			v.next = look.Next
		}
	}
	return true
}
