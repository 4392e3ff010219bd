package inspect

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/store"
	"github.com/kagzi/kagzi/store/internal/clause"
	"github.com/kagzi/kagzi/store/internal/plans"
)

// loadStats inserts n runs as some accident left them. A RUNNING one has a lease that ends at that time.
func loadStats(t *testing.T, s *both, namespace, queue, typ, status, at, key string, n int) {
	t.Helper()
	exec(t, s.pool, `
		INSERT INTO kagzi.workflow_runs (run_id, namespace_id, task_queue, workflow_type, status, available_at, run_key,
			key_scope)
		SELECT gen_random_uuid(), $1, $2, $3, $4, now() + $5::interval, NULLIF($6::text, ''), CASE WHEN $6::text <> ''
			THEN $2::text END FROM generate_series(1, $7::int)`,
		namespace, queue, typ, status, at, key, n)
}

func readStats(t *testing.T, s *both) Stats {
	t.Helper()
	st, err := s.Stats(t.Context(), s.pool, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// countsOf is the counts of a workflow, for comparison.
func countsOf(st Stats, queue, typ string) string {
	for _, r := range st.Routes {
		if r.Queue == queue && r.Type == typ {
			return fmt.Sprintf("due %d/%t keyed %d running %d sleeping %d delayed %d more %t paused %d", r.Due,
				r.DueMore, r.Keyed, r.Running, r.Sleeping, r.Delayed, r.More, r.Paused)
		}
	}
	return "none"
}

// Each run that has not ended is in one count of its queue and workflow; runs of other namespaces are in none. On
// tables that may be distributed, the result is the same.
func TestStatsCounts(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t, dbtest.Unchecked())
	s := newBoth(db.Pool, "test")
	loadStats(t, s, "other", "queue", "type", store.Pending, "-1 hour", "", 7)
	loadStats(t, s, "other", "others", "type", store.Pending, "-1 hour", "", 7)
	loadStats(t, s, "test", "queue", "type", store.Pending, "-1 hour", "", 1)
	loadStats(t, s, "test", "queue", "type", store.Sleeping, "-2 hours", "", 2)
	loadStats(t, s, "test", "queue", "type", store.Running, "-1 second", "", 3) // its lease is over
	loadStats(t, s, "test", "queue", "type", store.Running, "1 minute", "", 4)
	loadStats(t, s, "test", "queue", "type", store.Sleeping, "1 day", "", 2)
	loadStats(t, s, "test", "queue", "type", store.Sleeping, "2 days", "", 3)
	exec(t, s.pool, `UPDATE kagzi.workflow_runs SET available_at = 'infinity'
		WHERE available_at > now() + interval '36 hours'`)
	loadStats(t, s, "test", "queue", "type", store.Pending, "1 minute", "", 6)
	exec(t, s.pool, `UPDATE kagzi.workflow_runs SET priority = 1 WHERE status = 'SLEEPING'`)
	loadStats(t, s, "test", "queue", "keyed", store.Pending, "-3 hours", "a", 2)
	loadStats(t, s, "test", "queue", "keyed", store.Pending, "-4 hours", "b", 3)
	loadStats(t, s, "test", "queue", "keyed", store.Sleeping, "1 hour", "b", 1)
	loadStats(t, s, "test", "queue", "keyed", store.Pending, "1 hour", "b", 2)
	loadStats(t, s, "test", "queue", "keyed", store.Pending, "-1 hour", "stopped", 4)
	loadStats(t, s, "test", "queue", "stopped", store.Pending, "-1 hour", "", 5)
	loadStats(t, s, "test", "queue", "stopped", store.Sleeping, "1 hour", "", 1)
	loadStats(t, s, "test", "queue", "alone", store.Pending, "-1 hour", "", 2)
	exec(t, s.pool, `UPDATE kagzi.workflow_runs SET paused_at = now() WHERE workflow_type = 'alone'`)
	loadStats(t, s, "test", "queue", "undone", store.Sleeping, "-1 hour", "", 2)
	exec(t, s.pool, `UPDATE kagzi.workflow_runs SET outcome = '{}' WHERE workflow_type = 'undone'`)
	for _, p := range []store.Pause{{Type: "stopped"}, {Queue: "queue", Key: store.Key{Name: "stopped"}}} {
		if _, err := s.Pauses.Pause(t.Context(), nil, p); err != nil {
			t.Fatal(err)
		}
	}
	for name, s := range map[string]*both{"plain": s, "Citus": newBoth(pretendCitus(t, db), "test")} {
		st := readStats(t, s)
		if len(st.Routes) != 5 {
			t.Errorf("%s: %+v", name, st.Routes)
		}
		for typ, want := range map[string]string{
			"type":    "due 6/false keyed 0 running 4 sleeping 5 delayed 6 more false paused 0",
			"keyed":   "due 5/false keyed 5 running 0 sleeping 1 delayed 2 more false paused 4",
			"stopped": "due 0/false keyed 0 running 0 sleeping 1 delayed 0 more false paused 5",
			"alone":   "due 0/false keyed 0 running 0 sleeping 0 delayed 0 more false paused 2",
			"undone":  "due 0/false keyed 0 running 0 sleeping 2 delayed 0 more false paused 0",
		} {
			if got := countsOf(st, "queue", typ); got != want {
				t.Errorf("%s: %s: %s, want %s", name, typ, got, want)
			}
		}
		for _, r := range st.Routes {
			if want := map[string]time.Duration{
				"type":  2 * time.Hour,
				"keyed": 4 * time.Hour,
			}[r.Type]; r.Since.IsZero() != (want == 0) || want > 0 &&
				st.Now.Sub(r.Since).Round(time.Hour) != want {
				t.Errorf("%s: %s is due since %v, now %v", name, r.Type, r.Since, st.Now)
			}
		}
	}
}

// The rest of the bound goes to those workflows that have more runs than others.
func TestStatsOfManyWorkflows(t *testing.T) {
	t.Parallel()
	s := open(t, dbtest.Unchecked())
	exec(t, s.pool, `
		INSERT INTO kagzi.workflow_runs (run_id, namespace_id, task_queue, workflow_type, status, available_at)
		SELECT gen_random_uuid(), 'test', 'queue-' || g % 20, 'type-' || g % 300, 'PENDING', now()
			FROM generate_series(0, 2699) AS g`)
	loadStats(t, s, "test", "queue", "large", store.Pending, "-1 hour", "", 7000)
	loadStats(t, s, "test", "queue", "asleep", store.Sleeping, "1 hour", "", 6000)
	st := readStats(t, s)
	if len(st.Routes) != 302 {
		t.Errorf("%d workflows", len(st.Routes))
	}
	for queue, want := range map[[2]string]string{
		{"queue", "large"}: fmt.Sprintf("due %d/true keyed 0 running 0 sleeping 0 delayed 0 more false paused 0",
			mostOfRoutes/2),
		{"queue", "asleep"}: fmt.Sprintf("due 0/false keyed 0 running 0 sleeping %d delayed 0 more true paused 0",
			mostOfRoutes/2),
		{"queue-0", "type-0"}:   "due 9/false keyed 0 running 0 sleeping 0 delayed 0 more false paused 0",
		{"queue-19", "type-99"}: "due 9/false keyed 0 running 0 sleeping 0 delayed 0 more false paused 0",
	} {
		if got := countsOf(st, queue[0], queue[1]); got != want {
			t.Errorf("%v: %s, want %s", queue, got, want)
		}
	}
}

// If each of very many has a backlog, a sample of each is counted.
func TestStatsOfManyBacklogs(t *testing.T) {
	t.Parallel()
	s := open(t, dbtest.Unchecked())
	exec(t, s.pool, `
		INSERT INTO kagzi.workflow_runs (run_id, namespace_id, task_queue, workflow_type, status, available_at)
		SELECT gen_random_uuid(), 'test', 'queue', 'type-' || g % 600, 'PENDING', now()
			FROM generate_series(0, 11999) AS g`)
	if got, want := countsOf(readStats(t, s), "queue", "type-7"), fmt.Sprintf("due %d/true keyed 0 running 0 "+
		"sleeping 0 delayed 0 more false paused 0", routeSample); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// The number of rows that the statements read does not grow with the tables.
func TestStatsReadsLittle(t *testing.T) {
	t.Parallel()
	dbtest.NotOnCitus(t, "the test reads the plans of one server's statements")
	s := open(t, dbtest.Unchecked())
	loadStats(t, s, "other", "queue", "type", store.Sleeping, "1 day", "", 20_000)
	loadStats(t, s, "test", "queue", "asleep", store.Sleeping, "1 day", "", 30_000)
	loadStats(t, s, "test", "queue", "type", store.Pending, "-1 hour", "", 30_000)
	loadStats(t, s, "test", "queue", "type", store.Pending, "-1 hour", "key", 20_000)
	exec(t, s.pool, `UPDATE kagzi.workflow_runs SET run_key = run_key || floor(random() * 2000)
		WHERE run_key IS NOT NULL`)
	exec(t, s.pool, `VACUUM ANALYZE kagzi.workflow_runs`)
	// The last of all, because only the starts of a minute count; both namespaces in one statement, which reads one
	// clock.
	exec(t, s.pool, `
		INSERT INTO kagzi.workflow_runs (run_id, namespace_id, task_queue, workflow_type, status, finished_at)
		SELECT (lpad(to_hex((extract(epoch FROM now()) * 1000)::bigint - 14000 + g), 12,
			'0') || '70' || namespace.nr || '080' || lpad('', 14, '0'))::uuid,
			namespace.id, 'queue', 'type', 'COMPLETED', now()
		FROM generate_series(1, 4000) AS g, (VALUES (0, 'test'), (1, 'other')) AS namespace (nr, id)`)
	tx := begin(t, s)
	exec(t, tx, pg.ApplySettings)
	var lines routeLines
	read(t, tx, lines.read, routes, s.namespace, clause.MaxQueues)
	sample := lines.args(s.namespace)
	read(t, tx, lines.readCounts, routeCounts, sample...)
	var keys keySample
	read(t, tx, keys.read, sampledKeys, s.namespace, mostKeys)
	for _, p := range []struct {
		name, sql     string
		args          []any
		rows, buffers int
	}{
		{"routes", routes, []any{s.namespace, clause.MaxQueues}, 1, 100},
		{"routeCounts", routeCounts, sample, routeSample, 20 * routeSample},
		{"routeCounts again", routeCounts, lines.larger().args(s.namespace), mostOfRoutes / 2, 2 * mostOfRoutes},
		{"sampledKeys", sampledKeys, []any{s.namespace, mostKeys}, 1, 5 * mostKeys},
		{"keyedCounts", keyedCounts, keys.args(s.namespace), mostOfKeys / mostKeys, 3 * mostOfKeys},
		{
			"newestRuns", newestRuns,
			[]any{s.namespace, newestWithin.Milliseconds(), mostNewest},
			mostNewest,
			2 * mostNewest,
		},
	} {
		plan := plans.Explain(t, tx, `EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON)`, p.sql, p.args...)
		if rows, n := plan.MaxRows("workflow_runs"), plan.Buffers(); rows > float64(p.rows) || n > p.buffers {
			t.Errorf("%s read %v rows at once, and %d buffers\n%s", p.name, rows, n, plan.Text)
		}
	}
	st := readStats(t, s)
	if st.Started < mostNewest*4/10 || st.Started > mostNewest*6/10 { // every second run is of the other namespace
		t.Errorf("%d runs of this namespace among the last %d", st.Started, mostNewest)
	}
	// the last one is 10 s old
	if want := 10*time.Second + mostNewest/2*time.Millisecond; st.Within < want || st.Within > want+time.Minute {
		t.Errorf("they were started within %v, want a little over %v", st.Within, want)
	}
}

// read sends a statement and reads its rows.
func read(t *testing.T, db pg.DB, rows func(pgx.Rows) error, sql string, args ...any) {
	t.Helper()
	if err := pg.Ask(t.Context(), db, sql, args, rows); err != nil {
		t.Fatal(err)
	}
}

// Of the workers and failures, Stats returns what Health reads.
func TestStatsOfWorkersAndFailures(t *testing.T) {
	t.Parallel()
	s := open(t, dbtest.Unchecked())
	w := register(t, s)
	if _, err := s.Workers.Heartbeat(t.Context(), s.pool, store.Heartbeat{
		Number: 1, Worker: w.ID, Queues: w.Queues, Active: 3,
		Rates: store.Rates{Completed: 1, Failed: 2, Steps: 3},
	}); err != nil {
		t.Fatal(err)
	}
	for _, queue := range []string{"a", "b", "b"} {
		exec(t, s.pool, `
			INSERT INTO kagzi.workflow_runs (run_id, namespace_id, task_queue, workflow_type, status, error_kind,
				finished_at) VALUES ($1, 'test', $2, 'type', 'FAILED', 'timeout', now())`, uuid.New(), queue)
	}
	start(t, s, newRun(), newRun(), newRun())
	start(t, newBoth(s.pool, "other"), newRun())
	st := readStats(t, s)
	if len(st.Workers) != 1 || st.Workers[0].Active != 3 || st.Workers[0].Rates != (store.Rates{
		Completed: 1, Failed: 2,
		Steps: 3,
	}) {
		t.Errorf("workers %+v", st.Workers)
	}
	if len(st.Failures) != 2 || st.Failures[0].Queue != "b" || st.Failures[0].Count != 2 ||
		st.Failures[1].Queue != "a" || st.Failures[1].Kind != "timeout" {
		t.Errorf("failures %+v", st.Failures)
	}
	if st.Started != 3 || st.Within != time.Minute {
		t.Errorf("%d started within %v", st.Started, st.Within)
	}
}
