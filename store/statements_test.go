package store

import (
	"maps"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/store/internal/plans"
)

// Joined returns the statements that are joined at run time. A test of another package, which may import package
// inspect, sets it.
var Joined func(t *testing.T) map[string]string

// statements returns the SQL statements of the store, and of what it sends them by, by the names of their constants.
func statements(t *testing.T) map[string]string {
	t.Helper()
	all := statementsIn(t, ".", "inspect", "../internal/pg")
	maps.Copy(all, Joined(t))
	return all
}

// statementsIn returns the SQL statements of packages in some folders.
func statementsIn(t *testing.T, folders ...string) map[string]string {
	t.Helper()
	return dbtest.Statements(t, []string{"../internal/pg", "internal/clause"}, folders...)
}

func TestEveryStatementPrepares(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	dbtest.PretendCitus(t, db)
	conn := dbtest.Connect(t, db.DSN)
	all := statements(t)
	// these name a table for its size, or tables of all namespaces
	planned := map[string]bool{
		"prologue": true, "applySettings": true, "ApplySettings": true, "Prologue": true,
		"keepEvents": true, "settledEvents": true, "openPublishers": true,
	}
	if len(all) < 35 {
		t.Errorf("found %d statements only", len(all))
	}
	for name, sql := range all {
		d, err := conn.Prepare(t.Context(), name, sql)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if strings.Contains(sql, "kagzi.") && len(d.ParamOIDs) > 1 && !planned[name] &&
			!strings.Contains(sql, "namespace_id") {
			t.Errorf("%s does not name its namespace", name)
		}
	}
}

// The plans test has all statements that read or write the big tables.
func TestEveryStatementIsPlanned(t *testing.T) {
	t.Parallel()
	ids := []uuid.UUID{uuid.New(), uuid.New()}
	plans.WantAll(t, statementsIn(t, "."), plannedStatements(New(nil, "test"), ids), "insertRuns", "checkRights",
		"missingRights", "migrationRights", "prologue", "applySettings", "findFence")
}

// The schema has the indexes that the statements rely on, and the store recognises a violation of a unique one by its
// code.
func TestIndexes(t *testing.T) {
	t.Parallel()
	s := open(t)
	for _, name := range []string{
		claimIndex, runsKey, stepsKey, externalID, endedID, "workflow_runs_parent", "workflow_runs_metadata",
		"workflow_runs_fire", "workflow_runs_quarantined", "workflow_runs_compensating", deadlineIndex, dueIndex,
		namesIndex, scheduleKey, firedIndex, queuedIndex, "signals_pkey", "signals_signal_id", "signals_set_aside",
		"run_events_pkey", "workers_pkey", "workers_live", "workers_release", "worker_events_pkey",
	} {
		if !one[bool](t, s.pool, `SELECT to_regclass('kagzi.' || $1) IS NOT NULL`, name) {
			t.Errorf("index %s is missing", name)
		}
	}
	ids := start(t, s, newRun(withID("a")), newRun(withID("b")))
	_, err := s.pool.Exec(t.Context(), `UPDATE kagzi.workflow_runs SET external_id = 'a' WHERE run_id = $1`, ids[1])
	if pg.Code(err) != "23505" || !pg.Refused(err) {
		t.Errorf("two active runs with one ID: %v", err)
	}
}
