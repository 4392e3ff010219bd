package inspect

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/store/internal/plans"
)

// loadCompleted inserts n completed runs that ended so long ago. The first took a second and waited for a tenth of it,
// the second twice as long, and so on.
func loadCompleted(t *testing.T, s *both, namespace, queue, typ string, ended time.Duration, n int) {
	t.Helper()
	exec(t, s.pool, `
		INSERT INTO kagzi.workflow_runs (run_id, namespace_id, task_queue, workflow_type, version, status, created_at,
			started_at, finished_at)
		SELECT (lpad(to_hex((extract(epoch FROM f.started) * 1000)::bigint), 12,
			'0') || '7' || substr(md5(g::text || $3), 1, 3) || '8' || substr(md5(g::text || $3), 4, 15))::uuid,
			$1, $2, $3, 1, 'COMPLETED', f.started, f.started + g * interval '100 ms', f.started + g * interval '1 s'
		FROM generate_series(1, $4::int) AS g
		CROSS JOIN LATERAL (SELECT now() - $5::bigint * interval '1 microsecond' - g * interval '1 s' AS started) f`,
		namespace, queue, typ, n, ended.Microseconds())
}

func readLatencies(t *testing.T, s *both) string {
	t.Helper()
	all, err := s.Latencies(t.Context(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, l := range all {
		out = append(out, fmt.Sprintf("%s/%s %d %v %v", l.Queue, l.Type, l.Runs, l.Wait, l.Took))
	}
	return strings.Join(out, "; ")
}

// Latencies are those of the namespace's runs that completed lately, by queue and workflow.
func TestLatencies(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t, dbtest.Unchecked())
	s := newBoth(db.Pool, "test")
	if got := readLatencies(t, s); got != "" {
		t.Errorf("without runs: %s", got)
	}
	loadCompleted(t, s, "test", "a", "one", time.Minute, 1)
	loadCompleted(t, s, "test", "b", "many", time.Minute, 100)
	loadCompleted(t, s, "test", "b", "old", 2*time.Hour, 100)
	loadCompleted(t, s, "other", "a", "one", time.Minute, 9)
	want := "a/one 1 {100ms 100ms 100ms} {1s 1s 1s}; b/many 100 {5s 9.5s 10s} {50s 1m35s 1m40s}"
	if got := readLatencies(t, s); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	exec(t, s.pool, `UPDATE kagzi.workflow_runs SET status = 'FAILED' WHERE workflow_type = 'many'`)
	if got := readLatencies(t, s); got != "a/one 1 {100ms 100ms 100ms} {1s 1s 1s}" {
		t.Errorf("with failed runs: %s", got)
	}
}

// With many runs a bounded number of rows is read, by the index, whatever statistics the planner has.
func TestLatenciesOfManyRuns(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t, dbtest.Unchecked())
	s := newBoth(db.Pool, "test")
	exec(t, s.pool, `ALTER TABLE kagzi.workflow_runs SET (autovacuum_enabled = off)`)
	for i := range 4 {
		loadCompleted(t, s, "test", fmt.Sprint("queue-", i%2), fmt.Sprint("type-", i), time.Minute, 20_000)
	}
	for _, analyzed := range []bool{false, true} {
		if analyzed {
			exec(t, s.pool, `ANALYZE kagzi.workflow_runs`)
		}
		p := plans.Explain(t, s.pool, "EXPLAIN (ANALYZE, FORMAT JSON)", latencies, "test", mostLatencyRoutes,
			mostLatencyRuns,
			time.Hour.Microseconds())
		if wrong := p.Wrong(plans.Statement{
			SQL:     latencies,
			Indexes: map[string][]string{"workflow_runs_completed": {"namespace_id"}},
		}); len(wrong) > 0 {
			t.Errorf("analyzed %t: %s\n%s", analyzed, strings.Join(wrong, "; "), p.Text)
		}
		if rows := p.MaxRows("workflow_runs"); rows > mostLatencyRuns {
			t.Errorf("analyzed %t: a scan reads %v rows\n%s", analyzed, rows, p.Text)
		}
	}
	for _, l := range strings.Split(readLatencies(t, s), "; ") {
		if !strings.Contains(l, " 1250 ") {
			t.Errorf("%s: want an equal share of %d runs for each", l, mostLatencyRuns)
		}
	}
}
