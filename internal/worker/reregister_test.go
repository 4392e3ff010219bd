package worker_test

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/worker"
)

// TestClaimAnsweredWhileTheWorkerReregisters lets the answer to a claim arrive while the worker, which was declared
// dead, stops its executions: runs claimed under the dead ID must not begin.
func TestClaimAnsweredWhileTheWorkerReregisters(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	c := kit.NewClient(t, db.Pool)
	cfg := kit.Quick
	cfg.NoCoordinator, cfg.LeaseTimeout, cfg.StaleAfter = true, time.Hour, time.Hour // only the test declares it dead
	w := kit.NewWorker(t, c, cfg)
	g := kit.NewGate()
	g.Handle(w)
	running := func() int {
		return dbtest.QueryOne[int](t, db.Pool, `SELECT count(*) FROM kagzi.workflow_runs WHERE status = 'RUNNING'`)
	}
	claimed, answer := kit.HangAt(t, w, "after claim", func() bool { return running() == 2 })
	first := kit.StartRuns(t, c, g.Workflow, 1)
	s := begun(t, w)
	t.Cleanup(answer)
	await.Receive(t, g.Begun)
	second := kit.StartRuns(t, kit.NewClient(t, db.Pool), g.Workflow, 1) // c would start it in place
	await.Receive(t, claimed)
	dead := dbtest.BeginWith(t, db.Pool, `UPDATE kagzi.workers SET status = 'OFFLINE', stopped_at = now()`)
	// a heartbeat that has passed the worker's row would wait for the run that is held up, and learn nothing
	await.True(t, "a heartbeat waits for the worker's row", func() bool {
		return dbtest.QueryOne[int](t, db.Pool, `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock'`) == 1
	})
	release := worker.HoldUp(s, uuid.MustParse(string(first[0].ID())))
	t.Cleanup(release)
	kit.CommitTx(t, dead)
	await.True(t, "the worker ends all", func() bool { return worker.HasStoppedAll(s) })
	answer()
	await.True(t, "what was claimed is yielded", func() bool {
		return dbtest.QueryOne[bool](t, db.Pool, `SELECT status = 'PENDING' FROM kagzi.workflow_runs WHERE run_id = $1`,
			string(second[0].ID()))
	})
	release()
	close(g.Open)
	kit.CheckResults(t, second, func(int) string { return "opened" })
}
