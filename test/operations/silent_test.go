package operations

import (
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/kit"
)

// A run whose worker is dead or silent is not shown as one that is being executed.
func TestRunOfASilentWorker(t *testing.T) {
	k := kit.New(t)
	stop := kit.Serve(k, kit.Noop, func(_ kagzi.Context, n int) (int, error) { return n, nil })
	kit.ResultOf(k, kit.Begin(k, kit.Noop, 1))
	worker := kit.Only(t, k.Client, admin.WorkerFilter{}).ID
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	run := kit.Begin(k, kit.Noop, 2)
	k.Exec(`UPDATE kagzi.workflow_runs SET status = 'RUNNING', locked_by = $2, lease = $2, started_at = now(),
		available_at = now() + interval '4 minutes' WHERE run_id = $1`, string(run.ID()), worker)
	k.Exec(`INSERT INTO kagzi.step_runs (run_id, step_id, attempt_number, namespace_id, status, step_kind, run_attempt,
		first_attempt, worker_id, started_at)
		SELECT run_id, 'charge', 1, namespace_id, 'RUNNING', 'FUNCTION', 1, 1, locked_by, now() FROM kagzi.workflow_runs
			WHERE run_id = $1`, string(run.ID()))
	hour := time.Now().Add(-time.Hour)
	for _, c := range []struct {
		says, change string
		since        time.Time // zero: the worker is live
	}{
		{"a live worker", `UPDATE kagzi.workers SET status = 'ONLINE', heartbeat_at = clock_timestamp()`, time.Time{}},
		{"a silent worker", `UPDATE kagzi.workers SET heartbeat_at = clock_timestamp() - interval '1 hour'`, hour},
		{"a worker that was declared dead", `UPDATE kagzi.workers SET status = 'OFFLINE', stopped_at = now()`, hour},
		{"a worker that was pruned", `DELETE FROM kagzi.workers`, time.Now()},
	} {
		k.Exec(c.change)
		same := func(at time.Time) bool {
			return at.IsZero() == c.since.IsZero() && at.Sub(c.since).Abs() < time.Minute
		}
		info, waits, step := k.InfoOf(run), "takeover", kagzi.StatusPending
		if c.since.IsZero() {
			waits, step = "", kagzi.StatusRunning
		}
		if !same(info.SilentSince) || info.WaitingOn.String() != waits || info.Status != kagzi.StatusRunning {
			t.Errorf("%s: Get says %s on %q, silent since %v", c.says, info.Status, info.WaitingOn, info.SilentSince)
		}
		if got := k.Steps(run)["charge"][0]; got.Status != step {
			t.Errorf("%s: the step is %s, want %s", c.says, got.Status, step)
		}
		runs, err := k.Client.List(k.Ctx, kagzi.RunFilter{Status: []kagzi.Status{kagzi.StatusRunning}})
		if err != nil || len(runs) != 1 || !same(runs[0].SilentSince) {
			t.Errorf("%s: List says %+v, %v", c.says, runs, err)
		}
	}
}
