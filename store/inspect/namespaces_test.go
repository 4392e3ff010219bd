package inspect

import (
	"fmt"
	"testing"

	"github.com/kagzi/kagzi/internal/campaign"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/store/internal/plans"
)

func TestNamespaces(t *testing.T) {
	t.Parallel()
	dbtest.NotOnCitus(t, "no statement reads all namespaces there")
	s := open(t, dbtest.Unchecked())
	for _, row := range searched {
		exec(t, s.pool, row.sql, row.name)
	}
	got, err := Namespaces(t.Context(), s.pool)
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]bool{}
	for _, name := range got {
		have[name] = true
	}
	for _, row := range searched {
		switch row.name {
		case "a key in the line", "a group in the line", "a key that nothing makes due", "a key of another queue",
			"a changed key", "a changed group", "a dead worker", "a dead worker without runs",
			"a worker that has stopped", "an awaited event",
			"a step that waits for a limit", "a step that has its limit", "a paused schedule":
			continue // without a run
		}
		if !have[row.name] {
			t.Errorf("%s: the namespace is missing", row.name)
		}
	}
}

// TestNamespacesAmongManyRuns checks that the search reads a few pages for each namespace, however many runs it has.
func TestNamespacesAmongManyRuns(t *testing.T) {
	t.Parallel()
	s := open(t, dbtest.Unchecked())
	namespaces, runs := campaign.Size(300, 2_000), campaign.Size(30, 200)
	for _, status := range []string{"COMPLETED", "FAILED", "SLEEPING", "PENDING"} {
		exec(t, s.pool, `
			INSERT INTO kagzi.workflow_runs (run_id, namespace_id, task_queue, workflow_type, status, available_at,
				finished_at)
			SELECT gen_random_uuid(), 'tenant ' || n, 'queue', 'type', $3,
				CASE WHEN $3 IN ('SLEEPING', 'PENDING') THEN now() END,
				CASE WHEN $3 IN ('COMPLETED', 'FAILED') THEN now() END
			FROM generate_series(1, $1::int) AS n, generate_series(1, $2::int)`, namespaces, runs, status)
	}
	exec(t, s.pool, `VACUUM ANALYZE kagzi.workflow_runs`)
	tx := begin(t, s)
	exec(t, tx, pg.ApplySettings)
	for name, sql := range map[string]string{
		"completed": completedNamespaces, "stopped": stoppedNamespaces, "waiting": waitingNamespaces,
		"claimable": claimableNamespaces,
	} {
		plan := plans.Explain(t, tx, `EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON)`, sql)
		if rows, n := plan.MaxRows("workflow_runs"), plan.Buffers(); rows > 1 || n > 8*namespaces {
			t.Errorf("%s read %v rows at once, want 1, and %d buffers for %d namespaces\n%s", name, rows, n, namespaces,
				plan.Text)
		}
	}
	all, err := Namespaces(t.Context(), s.pool)
	if err != nil || len(all) != namespaces || all[0] != "tenant 1" || all[1] != fmt.Sprint("tenant 1", 0) {
		t.Errorf("%d namespaces: %q …, error %v", len(all), all[:min(len(all), 3)], err)
	}
}
