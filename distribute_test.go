package kagzi

import (
	"strings"
	"testing"

	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/store"
)

func TestDistributeTellsWhatItDid(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t, dbtest.Unchecked())
	dbtest.PretendCitus(t, db)
	execSQL(t, db.Pool, `INSERT INTO kagzi.worker_events (worker_id, event_id, namespace_id, event) VALUES (gen_random_uuid(), gen_random_uuid(), 'a', 'LOST')`)
	for _, want := range [][]string{
		{
			"kagzi.workflow_runs: distributed by namespace_id", "kagzi.worker_events: distributed by namespace_id; removed 8 kB of rows from this server, which are on the nodes",
			"kagzi.schema_migrations: on every node",
		},
		{"kagzi.workflow_runs: distributed by namespace_id, as before", "kagzi.worker_events: distributed by namespace_id, as before", "kagzi.schema_migrations: on every node, as before"},
	} {
		tables, err := Distribute(t.Context(), db.Pool)
		if err != nil {
			t.Fatal(err)
		}
		var lines []string
		for _, table := range tables {
			lines = append(lines, table.String())
		}
		for _, line := range want {
			if text := "\n" + strings.Join(lines, "\n") + "\n"; !strings.Contains(text, "\n"+line) { // an earlier test may have left empty pages in a table
				t.Errorf("no line %q in:%s", line, text)
			}
		}
	}
}

func TestDistributeWithoutAPool(t *testing.T) {
	t.Parallel()
	if _, err := Distribute(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "pgxpool.New") {
		t.Errorf("error %v", err)
	}
}

// Doctor sees of distributed tables what the nodes tell of them: those here are empty.
func TestDoctorOnCitus(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t, dbtest.Unchecked())
	wantAdvice(t, diagnose(t, db.Pool), "distribution", SeverityFine, "no Citus")
	dbtest.PretendCitus(t, db)
	wantAdvice(t, diagnose(t, db.Pool), "distribution", SeverityFine, "are not distributed")

	execSQL(t, db.Pool, `SELECT create_distributed_table('kagzi.workflow_runs', 'namespace_id')`)
	wantAdvice(t, diagnose(t, db.Pool), "distribution", SeverityProblem, "kagzi.step_runs", "→ Stop the workers, and call kagzi.Distribute.")

	if _, err := Distribute(t.Context(), db.Pool); err != nil {
		t.Fatal(err)
	}
	found := diagnose(t, db.Pool)
	wantAdvice(t, found, "distribution", SeverityFine, "distributed by namespace")
	wantAdvice(t, found, "distribution", SeverityUnseen, "of this server alone")
	wantAdvice(t, found, "tables", SeverityFine, "2 nodes")

	execSQL(t, db.Pool, `INSERT INTO kagzi.worker_events (worker_id, event_id, namespace_id, event) VALUES (gen_random_uuid(), gen_random_uuid(), 'a', 'LOST')`)
	wantAdvice(t, diagnose(t, db.Pool), "distribution", SeverityWarning, "kagzi.worker_events", "→ Call kagzi.Distribute.")

	execSQL(t, db.Pool, `DROP FUNCTION pg_catalog.run_command_on_all_nodes`)
	wantAdvice(t, diagnose(t, db.Pool), "tables", SeverityUnseen, "the nodes cannot be asked")
}

// What is wrong with a node's part of a table is said of that node.
func TestDoctorAboutNodes(t *testing.T) {
	t.Parallel()
	d := &doctor{}
	d.tablesOn("node-2:5432", []store.Table{{Name: "signals", Live: 10, Dead: 2 * manyDead, Autovacuum: true, Analyzed: true}})
	wantAdvice(t, d.found, "tables", SeverityWarning, "kagzi.signals on node-2:5432 has 40000 dead rows beside 10 live ones", "VACUUM (ANALYZE, VERBOSE) kagzi.signals;")
}
