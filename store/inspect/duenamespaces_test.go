package inspect

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi/internal/campaign"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/store/internal/plans"
)

const (
	dueRunRow = `INSERT INTO kagzi.workflow_runs (run_id, namespace_id, task_queue, workflow_type, status, available_at)
		VALUES (gen_random_uuid(), $1, 'queue', 'type', `
	anotherRun = `INSERT INTO kagzi.workflow_runs (namespace_id, run_id, task_queue, workflow_type, status,
		available_at, `
	workerRow = `INSERT INTO kagzi.workers (namespace_id, worker_id, task_queues, workflow_types, lease_timeout,
		stale_after, status, heartbeat_at, release_at, recheck_keys) VALUES ($1, gen_random_uuid(), '{queue}', '{type}',
		'5 minutes',
		'30 seconds', `
	scheduleRow = `INSERT INTO kagzi.schedules (namespace_id, schedule_id, name, workflow_type, task_queue, timing,
		max_catchup, cursor_at, priority, next_at, paused) VALUES ($1, gen_random_uuid(), 'daily', 'type', 'queue',
		'{}', 1, now(), 3, `
	placeRow = `INSERT INTO kagzi.limit_places (namespace_id, run_id, step_id, limit_name, asked_at, due_at, state)
		VALUES ($1, gen_random_uuid(), 'pay#1', 'api', now(), now(), `
)

// searched has statements that write a row of a namespace, which is $1, and whether the namespace has something to do
// by it.
var searched = []struct {
	name, sql string
	due       bool
}{
	{"a due run", dueRunRow + `'PENDING', now())`, true},
	{"a run soon due", dueRunRow + `'SLEEPING', now() + interval '5 seconds')`, true},
	{"a run whose worker has died", dueRunRow + `'RUNNING', now() - interval '1 second')`, true},
	{"a sleeping run", dueRunRow + `'SLEEPING', now() + interval '1 hour')`, false},
	{"a run under way", dueRunRow + `'RUNNING', now() + interval '1 hour')`, false},
	{"a run that waits for a signal", dueRunRow + `'SLEEPING', 'infinity')`, false},
	{"a run of another queue", anotherRun + `version)
		VALUES ($1, gen_random_uuid(), 'other', 'type', 'PENDING', now(), 1)`, false},
	{"a run of another workflow", anotherRun + `version)
		VALUES ($1, gen_random_uuid(), 'queue', 'other', 'PENDING', now(), 1)`, false},
	{"a paused run", anotherRun + `paused_at)
		VALUES ($1, gen_random_uuid(), 'queue', 'type', 'PENDING', now(), now())`, false},
	{"a due run of the last priority", anotherRun + `priority)
		VALUES ($1, gen_random_uuid(), 'queue', 'type', 'PENDING', now(), 4)`, true},
	{"an ended run", anotherRun + `finished_at)
		VALUES ($1, gen_random_uuid(), 'queue', 'type', 'COMPLETED', NULL, now())`, false},
	{"an overdue run", anotherRun + `deadline_at) VALUES ($1, gen_random_uuid(), 'other', 'type', 'SLEEPING',
		'infinity', now() - interval '1 second')`, true},
	{"a run with a deadline", anotherRun + `deadline_at) VALUES ($1, gen_random_uuid(), 'other', 'type', 'SLEEPING',
		'infinity', now() + interval '1 hour')`, false},
	{"a run that has not begun in time", anotherRun + `start_by) VALUES ($1, gen_random_uuid(), 'other', 'type',
		'PENDING', now(), now() - interval '1 second')`, true},
	{"a run that is compensated", anotherRun + `outcome) VALUES ($1, gen_random_uuid(), 'other', 'type', 'PENDING',
		now(), '{}')`, true},
	{"a run that is compensated later", anotherRun + `outcome) VALUES ($1, gen_random_uuid(), 'other', 'type',
		'PENDING', now() + interval '1 hour', '{}')`, false},
	{"a run that is being deleted", anotherRun + `finished_at, waiting_on) VALUES ($1, gen_random_uuid(), 'queue',
		'type', 'COMPLETED', NULL, now(), '[{"kind": "deletion"}]')`, true},
	{"a run behind one that has ended", anotherRun + `schedule_id, fire_at, waiting_on) VALUES ($1, gen_random_uuid(),
		'queue', 'type', 'PENDING', 'infinity', gen_random_uuid(), now(), '[{"kind": "previous run"}]')`, true},
	{"a run behind one that sleeps", `WITH schedule AS MATERIALIZED (SELECT gen_random_uuid() AS id) ` + anotherRun +
		`schedule_id, fire_at, waiting_on)
		SELECT $1, gen_random_uuid(), 'queue', 'type', u.status, 'infinity', schedule.id, now() + u.delay,
			u.waits::jsonb
		FROM schedule, (VALUES ('PENDING', interval '1 s', '[{"kind": "previous run"}]'),
			('SLEEPING', interval '0', '[{"kind": "timer"}]')) AS u (status, delay, waits)`, false},
	{"a key in the line", `INSERT INTO kagzi.run_keys (namespace_id, key_scope, run_key, available_at)
		VALUES ($1, 'queue', 'a', now())`, true},
	{"a group in the line", `INSERT INTO kagzi.run_keys (namespace_id, key_scope, run_key, available_at)
		VALUES ($1, '', 'a', now())`, true},
	{"a key that nothing makes due", `INSERT INTO kagzi.run_keys (namespace_id, key_scope, run_key, available_at)
		VALUES ($1, 'queue', 'a', 'infinity')`, false},
	{"a key of another queue", `INSERT INTO kagzi.run_keys (namespace_id, key_scope, run_key, available_at)
		VALUES ($1, 'other', 'a', now())`, false},
	{"a changed key", `INSERT INTO kagzi.key_changes (namespace_id, key_scope, run_key)
		VALUES ($1, 'queue', 'a')`, true},
	{"a changed group", `INSERT INTO kagzi.key_changes (namespace_id, key_scope, run_key) VALUES ($1, '', 'a')`, true},
	{"a due schedule", scheduleRow + `now(), false)`, true},
	{"a schedule", scheduleRow + `now() + interval '1 hour', false)`, false},
	{"a paused schedule", scheduleRow + `now(), true)`, false},
	{"a worker", workerRow + `'ONLINE', now(), NULL, false)`, false},
	{"a silent worker", workerRow + `'ONLINE', now() - interval '1 minute', NULL, false)`, true},
	{"a dead worker", workerRow + `'OFFLINE', now() - interval '1 hour', now(), true)`, true},
	{"a dead worker without runs", workerRow + `'OFFLINE', now() - interval '1 hour', NULL, true)`, false},
	{"a worker that has stopped", workerRow + `'OFFLINE', now() - interval '1 hour', now(), false)`, false},
	{"a step that waits for a limit", placeRow + `'WAITING')`, true},
	{"a step that has its limit", placeRow + `'RUNNING')`, false},
	{"an awaited event", `INSERT INTO kagzi.awaited_events (namespace_id, publication, topic, event_id)
		VALUES ($1, gen_random_uuid(), 'orders', '1')`, true},
	{"paused work", `WITH p AS (
			INSERT INTO kagzi.pauses (namespace_id, workflow_type, paused_at) VALUES ($1, 'type', now())
		) ` + dueRunRow + `'PENDING', now())`, false},
	{"work beside what is paused", `WITH p AS (
			INSERT INTO kagzi.pauses (namespace_id, workflow_type, paused_at) VALUES ($1, 'other', now())
		) ` + dueRunRow + `'PENDING', now())`, true},
}

// A database that does not answer is not one with Citus. The search is repeated later.
func TestOutageIsNoCitus(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	cfg := db.Pool.Config()
	cfg.MaxConns = 1
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := DueNamespaces(ctx, pool, Search{}); err == nil || errors.Is(err, ErrDistributed) {
		t.Errorf("no connection is free: %v", err)
	}
	if _, err := Namespaces(ctx, pool); err == nil || errors.Is(err, ErrDistributed) {
		t.Errorf("no connection is free: %v", err)
	}
}

// TestDueNamespaces checks that each kind of work makes a namespace due, beside namespaces without any.
func TestDueNamespaces(t *testing.T) {
	t.Parallel()
	dbtest.NotOnCitus(t, "no statement reads all namespaces there")
	s := open(t, dbtest.Unchecked())
	var want []string
	for _, row := range searched {
		// also where a namespace is the beginning of another
		for _, namespace := range []string{row.name, row.name + "!"} {
			exec(t, s.pool, row.sql, namespace)
			if row.due {
				want = append(want, namespace)
			}
		}
	}
	slices.Sort(want)
	got, err := DueNamespaces(t.Context(), s.pool, Search{
		Queues: []string{"queue"}, Types: []string{"type", "none"}, Soon: 10 * time.Second, Most: time.Minute,
	})
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, error %v; want %q", got, err, want)
	}
}

// TestDueNamespacesAmongMany checks that a search reads a few pages for each namespace, however many runs it has.
func TestDueNamespacesAmongMany(t *testing.T) {
	t.Parallel()
	s := open(t, dbtest.Unchecked())
	namespaces, runs := campaign.Size(500, 10_000), campaign.Size(20, 100)
	exec(t, s.pool, `
		INSERT INTO kagzi.workflow_runs (run_id, namespace_id, task_queue, workflow_type, status, available_at,
			deadline_at)
		SELECT gen_random_uuid(), 'tenant ' || n, 'queue', 'type', 'SLEEPING', now() + interval '1 hour',
			now() + interval '1 day'
		FROM generate_series(1, $1::int) AS n, generate_series(1, $2::int)`, namespaces, runs)
	exec(t, s.pool, dueRunRow+`'PENDING', now())`, "tenant 7")
	exec(t, s.pool, `VACUUM ANALYZE kagzi.workflow_runs`)
	tx := begin(t, s)
	exec(t, tx, pg.ApplySettings)
	for _, p := range []struct {
		name, sql string
		args      []any
	}{
		{"dueRuns", dueRuns, []any{"queue", []string{"type"}, int64(0)}},
		{"overdueRuns", overdueRuns, []any{int64(0)}},
	} {
		plan := plans.Explain(t, tx, `EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON)`, p.sql, p.args...)
		if rows, n := plan.MaxRows("workflow_runs"), plan.Buffers(); rows > 1 || n > 8*namespaces {
			t.Errorf("%s read %v rows at once, want 1, and %d buffers for %d namespaces\n%s", p.name, rows, n,
				namespaces, plan.Text)
		}
	}
	begun := time.Now()
	due, err := DueNamespaces(t.Context(), s.pool, Search{
		Queues: []string{"queue"}, Types: []string{"type"},
		Most: time.Minute,
	})
	t.Log(namespaces, "namespaces:", time.Since(begun))
	if err != nil || fmt.Sprint(due) != "[tenant 7]" {
		t.Errorf("%q, error %v", due, err)
	}
}
