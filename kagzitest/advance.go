package kagzitest

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"
)

// pollPause is the pause before the tables are read again.
const pollPause = time.Millisecond

// Now returns the time by the database's clock, in UTC.
func (e *Env) Now() time.Time {
	e.t.Helper()
	var now time.Time
	if err := e.Pool.QueryRow(e.ctx, `SELECT kagzitest.clock_timestamp()`).Scan(&now); err != nil {
		e.t.Fatalf("kagzitest: read the clock: %v", err)
	}
	return now.UTC()
}

// Advance moves the database's clock forward by d. It stops at each moment at which something becomes due, and lets it
// happen: runs wake up and continue, steps are retried, deadlines pass, schedules fire. It returns when d has passed
// and no run can continue before the clock moves again. So one Advance covers the 90 days of a workflow that sleeps
// three times for 30 days.
//
// Advance(0) waits until the runs that are due now have continued.
//
// The clock moves on without the function of a step that takes longer than [Config].StepPatience. A step's
// [kagzi.Timeout] is measured in real time. Advance fails the test if the test has an open transaction that has written
// to Kagzi's tables.
func (e *Env) Advance(d time.Duration) {
	e.t.Helper()
	e.StartWorker()
	if d < 0 {
		e.t.Fatalf("kagzitest: Advance(%v): the clock cannot go back", d)
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

// move sets the clock forward to to.
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
		// A deadlock with a transaction that locks the same tables in another order is handled like a lock timeout.
		if pe, ok := errors.AsType[*pgconn.PgError](err); !ok || pe.Code != "55P03" && pe.Code != "40P01" {
			e.t.Fatalf("kagzitest: advance the clock: %v", err)
		}
		if time.Now().After(deadline) {
			e.t.Fatalf("kagzitest: advance the clock: a transaction that has written to Kagzi's tables is open: "+
				"commit it before (%v)", err)
		}
		time.Sleep(pollPause)
	}
}

// A view is the state of the runs at one time.
type view struct {
	asked   time.Time // by this process's clock, before the tables were read
	now     time.Time // by the database's clock
	running []runningRun
	due     []string  // descriptions of runs, schedules and consumers that are due
	late    bool      // runs that no worker executes are past their deadline: the coordinator ends them
	next    time.Time // when something becomes due next; zero: never
}

// A runningRun is a run that a worker executes.
type runningRun struct {
	ID         uuid.UUID
	Worker     uuid.UUID
	Wakeups    int64
	Cancelling bool
}

// goesOnAt is when a run goes on by time alone; NULL: never. A run that waits for an answer or an event looks for it
// again and again, which is no reason to stop a skip.
const goesOnAt = `CASE WHEN r.status = 'SLEEPING' AND (r.waiting_on @> '[{"kind": "event"}]'
			OR r.waiting_on @> '[{"kind": "answer"}]') THEN (r.waiting_on #>> '{0,until}')::timestamptz
		ELSE r.available_at END`

// A run that is paused, or waits for a slot, is not due. A queued run is due once no other run of its schedule is
// active. A run for whose version no worker has code is not due until its deadline, when the coordinator of namespace
// $1 ends it. Its compensations continue without its code.
const readView = `
WITH clock AS MATERIALIZED (SELECT kagzitest.clock_timestamp() AS now),
active AS MATERIALIZED (
	SELECT r.run_id, r.workflow_type, r.task_queue, r.status, r.locked_by, ` + goesOnAt + ` AS available_at,
		r.waiting_on, r.schedule_id,
		r.version,
		r.wakeups, r.outcome IS NOT NULL AS compensating, kagzitest.held_up(r) IS NOT NULL AS held_up,
			r.cancel_requested_at IS NOT NULL AS cancelling, CASE WHEN r.namespace_id = $1 AND r.status <> 'RUNNING'
			THEN LEAST(r.deadline_at, CASE WHEN r.status = 'PENDING' AND r.started_at IS NULL THEN r.start_by END) END
			AS deadline_at
	FROM kagzi.workflow_runs r WHERE r.status IN ('PENDING', 'RUNNING', 'SLEEPING')
	UNION ALL
	SELECT s.schedule_id, s.workflow_type, s.task_queue, 'SCHEDULED', NULL, s.next_at, NULL, NULL, s.version, 0, false,
		false, false, NULL
	FROM kagzi.schedules s WHERE NOT s.paused
	UNION ALL
	SELECT NULL, c.consumer, c.task_queue, 'CONSUMER', NULL, kagzitest.due_at(c), NULL, NULL, NULL, 0, false, false,
		false, NULL
	FROM kagzi.consumers c
)
SELECT clock.now,
	ARRAY(SELECT a.run_id FROM active a WHERE a.status = 'RUNNING' ORDER BY a.run_id),
	ARRAY(SELECT a.locked_by FROM active a WHERE a.status = 'RUNNING' ORDER BY a.run_id),
	ARRAY(SELECT a.wakeups FROM active a WHERE a.status = 'RUNNING' ORDER BY a.run_id),
	ARRAY(SELECT a.cancelling FROM active a WHERE a.status = 'RUNNING' ORDER BY a.run_id),
	ARRAY(
		SELECT concat_ws(' ', CASE a.status WHEN 'SCHEDULED' THEN 'the schedule of' WHEN 'CONSUMER' THEN 'consumer'
			ELSE a.run_id || ' of' END, a.workflow_type, 'version ' || a.version, 'on queue', a.task_queue)
		FROM active a WHERE a.deadline_at <= clock.now OR a.status <> 'RUNNING' AND NOT a.held_up
			AND (a.available_at <= clock.now OR a.status = 'PENDING' AND a.waiting_on = '[{"kind": "previous run"}]'
				AND NOT EXISTS (
			SELECT FROM active p WHERE p.schedule_id = a.schedule_id AND p.run_id <> a.run_id
				AND p.status <> 'SCHEDULED'))
			AND (a.status = 'SCHEDULED' OR a.compensating OR EXISTS (SELECT FROM kagzi.workers w
				WHERE w.status = 'ONLINE' AND a.task_queue = ANY (w.task_queues)
					AND a.workflow_type = ANY (w.workflow_types)
					AND (a.version IS NULL OR w.handlers IS NULL
						OR a.workflow_type || '/' || a.version = ANY (w.handlers))))
		ORDER BY a.run_id LIMIT 5
	) || ARRAY(
		SELECT 'event ' || x.topic || '/' || x.event_id FROM kagzi.awaited_events x WHERE x.namespace_id = $1 LIMIT 5
	),
	(SELECT bool_or(a.deadline_at <= clock.now) IS TRUE FROM active a),
	LEAST((SELECT min(a.available_at) FROM active a WHERE a.status <> 'RUNNING' AND a.available_at > clock.now
		AND a.available_at < 'infinity'),
		(SELECT min(a.deadline_at) FROM active a WHERE a.deadline_at > clock.now AND a.deadline_at < 'infinity'),
		(SELECT min(k.rate_at) FROM kagzi.run_keys k WHERE k.rate_at > clock.now), (SELECT min(q.rate_at)
			FROM kagzi.queues q WHERE q.rate_at > clock.now))
FROM clock`

// view reads the state of the runs.
func (e *Env) view() view {
	e.t.Helper()
	v := view{asked: time.Now()}
	var next *time.Time
	var runs, workers []uuid.UUID
	var wakeups []int64
	var cancelling []bool
	if err := e.Pool.QueryRow(e.ctx, readView, e.coordinated()).Scan(&v.now, &runs, &workers, &wakeups, &cancelling,
		&v.due, &v.late, &next); err != nil {
		e.t.Fatalf("kagzitest: read the runs: %v", err)
	}
	for i := range runs {
		v.running = append(v.running, runningRun{runs[i], workers[i], wakeups[i], cancelling[i]})
	}
	if next != nil {
		v.next = *next
	}
	return v
}

// settle waits until nothing is due and every running run waits, and returns the state of the runs then.
func (e *Env) settle() view {
	e.t.Helper()
	deadline := time.Now().Add(patience)
	unknown := map[uuid.UUID]time.Time{} // since when runs were seen that other workers execute
	for {
		v := e.view()
		e.session.SetClock(v.now, v.asked)
		if len(v.due) == 0 && e.waiting(&v, unknown) && e.unchanged(&v) {
			return v
		}
		if err := e.ctx.Err(); err != nil {
			e.t.Fatalf("kagzitest: the test is over: %v", err)
		}
		e.checkWorker()
		if v.late {
			e.session.Wake() // the last pass of the coordinator may have ended just before
		}
		if time.Now().After(deadline) {
			e.t.Fatalf("kagzitest: after %v runs are still due or running: due: %s; running: %v", patience,
				strings.Join(v.due, ", "), v.running)
		}
		time.Sleep(pollPause)
	}
}

// unchanged reports whether nothing has happened since v was read, and so while waiting examined one execution after
// the other.
func (e *Env) unchanged(v *view) bool {
	e.t.Helper()
	now := e.view()
	if !now.next.IsZero() && (v.next.IsZero() || now.next.Before(v.next)) {
		v.next = now.next
	}
	return len(now.due) == 0 && slices.Equal(now.running, v.running)
}

// waiting reports whether all running runs wait, and lowers v.next to the end of the first wait.
func (e *Env) waiting(v *view, unknown map[uuid.UUID]time.Time) bool {
	for _, r := range v.running {
		does := e.session.Activity(r.ID, r.Wakeups, r.Cancelling)
		if !does.Here {
			if unknown[r.ID].IsZero() {
				unknown[r.ID] = time.Now()
			}
			// it was just claimed, or has just ended
			if r.Worker == e.session.Worker() || time.Since(unknown[r.ID]) < e.cfg.StepPatience {
				return false
			}
			continue
		}
		if does.Busy > e.functions.slow(r.ID, e.cfg.StepPatience) {
			return false
		}
		if !does.Next.IsZero() && (v.next.IsZero() || does.Next.Before(v.next)) {
			v.next = does.Next
		}
	}
	return true
}
