package kagzi

import (
	"testing"
	"time"
)

// A run whose steps are half deleted goes, although the process that began has died and the next one's retention is
// longer: such a run cannot be resumed, and what is left of it tells nothing.
func TestHalfDeletedRunGoesUnderALongerRetention(t *testing.T) {
	k := newKit(t)
	addOld(t, k.pool, "old", "FAILED", 40, 1)
	addOld(t, k.pool, "kept", "FAILED", 40, 1)
	k.exec(`INSERT INTO kagzi.step_runs (run_id, step_id, attempt_number, namespace_id, status, step_kind, run_attempt, first_attempt)
		SELECT run_id, 'step-' || g, 1, namespace_id, 'COMPLETED', 'FUNCTION', 1, 1
		FROM kagzi.workflow_runs, generate_series(1, 60) AS g WHERE workflow_type = 'old'`)
	r := CoordinatorConfig{}.withDefaults().retention()
	ranges, _, err := k.c.store.BeginWalk(k.ctx, r.Shortest())
	if err != nil {
		t.Fatal(err)
	}
	old, _, err := k.c.store.Old(k.ctx, r, ranges[0], 100)
	if err != nil || len(old) != 2 {
		t.Fatal(err, old)
	}
	long := old[:0]
	for _, id := range old {
		if k.count(`SELECT count(*) FROM kagzi.step_runs WHERE run_id = $1`, id) > 0 {
			long = append(long, id)
		}
	}
	// Transactions of 50 rows: the run is too long for one.
	if p, err := k.c.store.Prune(k.ctx, r, long, 50); err != nil || len(p.Long) != 1 {
		t.Fatal(err, p)
	}
	if n, err := k.c.store.PruneSteps(k.ctx, long[0], 50); err != nil || n != 50 {
		t.Fatal(n, err)
	}
	walkOnce(t, newTestCoordinator(t, k.c, CoordinatorConfig{KeepFailed: 90 * 24 * time.Hour}))
	if got := left(t, k.pool); got != "kept 1" {
		t.Errorf("runs left: %s, want the whole one alone", got)
	}
	if n := k.count(`SELECT count(*) FROM kagzi.step_runs`); n != 0 {
		t.Errorf("%d steps left", n)
	}
}
