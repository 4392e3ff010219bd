package worker_test

import (
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/pgproxy"
)

// TestSlowRoundTrips makes a round trip to the database take a sixth of Grace, or a little less. Nothing is lost on the
// way, so the worker keeps its runs and the connection of its heartbeats, and extends its leases.
func TestSlowRoundTrips(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ stale, grace, roundTrip time.Duration }{
		// ten times Grace, as by default
		"LongStaleAfter":  {45 * time.Second, 4500 * time.Millisecond, 750 * time.Millisecond},
		"ShortStaleAfter": {9 * time.Second, 6 * time.Second, 500 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := dbtest.Database(t)
			proxy := pgproxy.Start(t, db.DSN)
			proxy.Impose(pgproxy.Trouble{Delay: tt.roundTrip / 2}) // in each direction
			c, logged := kit.LoggedClient(t, dbtest.OpenPool(t, proxy.DSN(), dbtest.Conns(6)))
			g := kit.NewGate()
			w := kit.NewWorker(t, c, kagzi.WorkerConfig{
				Heartbeat: time.Second, StaleAfter: tt.stale, LeaseTimeout: 10 * time.Second, NoCoordinator: true,
				Coordinator: kagzi.CoordinatorConfig{Grace: tt.grace},
			})
			g.Handle(w)
			direct := kit.NewClient(t, db.Pool)
			runs := kit.StartRuns(t, direct, g.Workflow, 2)
			kit.StartLocal(t, w)
			for range runs {
				await.Receive(t, g.Begun)
			}
			const backend = `SELECT coalesce(backend_pid, 0) FROM kagzi.workers`
			first := dbtest.QueryOne[int](t, db.Pool, backend)
			await.True(t, "the leases are extended twice", func() bool {
				return len(g.Cause) > 0 || dbtest.QueryOne[bool](t, db.Pool,
					`SELECT min(available_at - started_at) > interval '20 s' FROM kagzi.workflow_runs`)
			})
			if len(g.Cause) > 0 {
				t.Errorf("a step's context ended: %v", <-g.Cause)
			}
			if now := dbtest.QueryOne[int](t, db.Pool, backend); first == 0 || now != first {
				t.Errorf("the heartbeats came from backend %d at first, and now from %d", first, now)
			}
			if logged.Has("take this worker for dead") {
				t.Errorf("the worker gave its runs up:\n%s", logged)
			}
			close(g.Open)
			kit.CheckResults(t, g.Through(t, direct, runs), func(int) string { return "opened" })
		})
	}
}
