package kagzi

import (
	"strings"
	"testing"

	"github.com/kagzi/kagzi/internal/dbtest"
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
