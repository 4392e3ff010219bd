package worker_test

import (
	"context"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/hints"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/localpg"
	"github.com/kagzi/kagzi/internal/worker"
	"github.com/kagzi/kagzi/store"
)

// hintsOf returns the hints of the client c.
func hintsOf(t *testing.T, c *kagzi.Client) *hints.Hints {
	t.Helper()
	return configOf(t, idleWorker(t, c, kagzi.WorkerConfig{})).Hints
}

// watchedBackend returns the process ID of the worker's connection, zero if the connection is no evidence.
const watchedBackend = `SELECT coalesce(min(backend_pid), 0) FROM kagzi.workers WHERE status = 'ONLINE'`

// unharmed fails the test if a run has changed its holder, or if a worker was declared dead.
func unharmed(t *testing.T, db *dbtest.DB, leases string) {
	t.Helper()
	if got := dbtest.QueryOne[string](t, db.Pool, leasesOfRuns); got != leases {
		t.Errorf("leases %s, want %s", got, leases)
	}
	if n := dbtest.QueryOne[int](t, db.Pool, `SELECT count(*) FROM kagzi.worker_events WHERE event = 'LOST'`); n != 0 {
		t.Errorf("%d workers were declared dead", n)
	}
}

const leasesOfRuns = `SELECT string_agg(concat_ws(' ', run_id, status, lease, recoveries, available_at < now()), ', '
	ORDER BY run_id) FROM kagzi.workflow_runs`

// patientGrace is a Grace within which a worker replaces its connection also on a machine that stands still for a few
// seconds. A worker that takes longer gives up its runs.
const patientGrace = 15 * time.Second

// TestLostConnectionsOfALiveWorker ends the connections of a live worker, repeatedly: the worker reconnects, reports
// its new connection although no heartbeat is due for minutes, and keeps its runs.
func TestLostConnectionsOfALiveWorker(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	c := kit.NewClient(t, dbtest.OpenPool(t, db.DSN, dbtest.Conns(6)))
	cfg := kit.RareHeartbeats
	cfg.Coordinator.Grace = patientGrace
	g, runs, _ := kit.Gated(t, c, cfg, 3)
	leases := dbtest.QueryOne[string](t, db.Pool, leasesOfRuns)
	h := hintsOf(t, c)
	await.True(t, "the worker listens", h.Listening)
	direct := store.New(db.Pool, "default")
	// first only the heartbeater's, so that no other lost connection wakes it
	for _, all := range []bool{false, true, true} {
		old := dbtest.QueryOne[int](t, db.Pool, watchedBackend)
		if old == 0 {
			t.Fatal("the worker's connection is no evidence")
		}
		n := dbtest.QueryOne[int](t, db.Pool, `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
			WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()
				AND pid <> ALL ($1::int[]) AND ($2 OR pid = $3)`, backendsOf(t, db), all, old)
		if n == 0 || all && n < 3 {
			t.Errorf("INVALID: %d connections were ended, want the heartbeater's, the listener's and some of "+
				"the pool's", n)
		}
		await.True(t, "the worker reports its new connection", func() bool {
			return dbtest.QueryOne[int](t, db.Pool, watchedBackend) != old
		})
		if fleet, err := direct.Workers.CheckFleet(t.Context()); err != nil || len(fleet.Disconnected) != 0 ||
			fleet.Watched != 1 {
			t.Errorf("fleet %+v, %v", fleet, err)
		}
		unharmed(t, db, leases)
		await.True(t, "the worker listens again", h.Listening)
	}
	close(g.Open)
	kit.CheckResults(t, runs, func(int) string { return "opened" })
	if len(g.Cause) > 0 {
		t.Errorf("a step's context ended: %v", <-g.Cause)
	}
}

// backendsOf returns the process IDs of the test's own connections.
func backendsOf(t *testing.T, db *dbtest.DB) (pids []int32) {
	t.Helper()
	pids = []int32{} // not nil: SQL compares nothing with NULL
	for _, conn := range db.Pool.AcquireAllIdle(t.Context()) {
		pids = append(pids, int32(conn.Conn().PgConn().PID()))
		conn.Release()
	}
	return pids
}

// refuseConnections makes the database refuse new connections until allow is called. The test's pool has one already.
func refuseConnections(t *testing.T, db *dbtest.DB) (allow func()) {
	t.Helper()
	admin := maintenance(t, db)
	name := dbtest.QueryOne[string](t, db.Pool, `SELECT current_database()`)
	let := func(yes string) {
		t.Helper()
		if _, err := admin.Exec(context.Background(), `ALTER DATABASE `+name+` ALLOW_CONNECTIONS `+yes); err != nil {
			t.Fatal(err)
		}
	}
	let("false")
	return func() { t.Helper(); let("true") }
}

// TestServerTakesNoConnections ends a worker's connection while the server refuses new ones: the heartbeats go over the
// pool, and report that no connection is evidence.
func TestServerTakesNoConnections(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	cfg := kit.RareHeartbeats
	cfg.Coordinator.Grace = patientGrace
	g, runs, _ := kit.Gated(t, kit.NewClient(t, dbtest.OpenPool(t, db.DSN, dbtest.Conns(6))), cfg, 2)
	leases := dbtest.QueryOne[string](t, db.Pool, leasesOfRuns)
	allow := refuseConnections(t, db)
	defer allow()
	dbtest.Exec(t, db.Pool, `SELECT pg_terminate_backend(backend_pid) FROM kagzi.workers`)
	await.True(t, "heartbeats go over the pool", func() bool {
		return dbtest.QueryOne[int](t, db.Pool, watchedBackend) == 0
	})
	unharmed(t, db, leases)
	allow()
	close(g.Open)
	kit.CheckResults(t, runs, func(int) string { return "opened" })
}

// maintenance returns the owner's connection to another database of the server.
func maintenance(t *testing.T, db *dbtest.DB) *pgx.Conn {
	t.Helper()
	cfg := dbtest.Owner(t, db.Pool).Config().ConnConfig
	cfg.Database = "postgres"
	conn, err := pgx.ConnectConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// TestServerRestartDeclaresNobodyDead restarts the server below a live worker, or kills one of its processes, which
// ends all connections: a connection that went with the server is no evidence against the worker.
func TestServerRestartDeclaresNobodyDead(t *testing.T) {
	t.Parallel()
	for name, disturb := range map[string]func(t *testing.T, server *localpg.Cluster, backend int){
		"Restart": func(t *testing.T, server *localpg.Cluster, _ int) {
			if err := server.Restart(t.Context(), localpg.Immediate); err != nil {
				t.Fatal(err)
			}
		},
		"Crash": func(t *testing.T, _ *localpg.Cluster, backend int) {
			if err := syscall.Kill(backend, syscall.SIGKILL); err != nil {
				t.Fatalf("kill the backend: %v", err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := kit.Context(t)
			server, pool := kit.OwnServer(ctx, t, 10)
			cfg := kit.RareHeartbeats
			cfg.Coordinator.Grace = patientGrace
			if name == "Restart" {
				// short: the new server knows that it never had the connection
				cfg.Coordinator.Grace = worker.LeastGrace
			}
			g, runs, _ := kit.Gated(t, kit.NewClient(t, pool), cfg, 3)
			old := dbtest.QueryOne[int](t, pool, watchedBackend)
			dbtest.Exec(t, pool, `CHECKPOINT`) // a claim's commit does not wait for the disk
			disturb(t, server, old)
			await.True(t, "the worker has reconnected", func() bool {
				var yes bool
				err := pool.QueryRow(ctx, `SELECT backend_pid <> $1 AND server_start = pg_postmaster_start_time()
					FROM kagzi.workers WHERE status = 'ONLINE'`, old).Scan(&yes)
				return err == nil && yes
			})
			close(g.Open)
			kit.CheckResults(t, runs, func(int) string { return "opened" })
			if n := dbtest.QueryOne[int](t, pool, `SELECT (SELECT count(*) FROM kagzi.worker_events
				WHERE event = 'LOST') + (SELECT sum(recoveries) FROM kagzi.workflow_runs)`); n != 0 {
				t.Errorf("%d workers and runs were lost", n)
			}
			// a worker that cannot reconnect within so short a Grace fences itself
			if len(g.Cause) > 0 && name != "Restart" {
				t.Errorf("a step's context ended: %v", <-g.Cause)
			}
		})
	}
}

// TestPoolerLeavesNoEvidence checks that nothing is concluded from the connections that a pooler shares out.
func TestPoolerLeavesNoEvidence(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	pool := dbtest.OpenPool(t, dbtest.Pooler(t, db), dbtest.Conns(10))
	c, s := kit.NewClient(t, pool), store.New(pool, "default")
	g, runs, _ := kit.Gated(t, c, kagzi.WorkerConfig{Heartbeat: 50 * time.Millisecond}, 1)
	from := dbtest.QueryOne[time.Time](t, db.Pool, `SELECT clock_timestamp()`)
	await.True(t, "the worker has sent heartbeats", func() bool {
		return dbtest.QueryOne[bool](t, db.Pool, `SELECT heartbeat_at > $1::timestamptz + interval '200 ms'
			FROM kagzi.workers`, from)
	})
	page, _, err := admin.New(c).Workers.List(t.Context(), admin.WorkerFilter{})
	if err != nil || len(page) != 1 || page[0].Watched {
		t.Errorf("workers %+v, %v; want one that is not watched", page, err)
	}
	if fleet, err := s.Workers.CheckFleet(t.Context()); err != nil || len(fleet.Disconnected) != 0 ||
		fleet.Watched != 0 {
		t.Errorf("fleet %+v, %v", fleet, err)
	}
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	if b, err := s.Workers.PrepareHeartbeats(t.Context(), conn.Conn()); err != nil || b != (store.Backend{}) {
		t.Errorf("a connection through the pooler has the backend %+v, %v", b, err)
	}
	close(g.Open)
	kit.CheckResults(t, runs, func(int) string { return "opened" })
}

// TestSharedBackendIsNoEvidence makes a heartbeater believe that its connection has another backend: the first
// heartbeat finds out.
func TestSharedBackendIsNoEvidence(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	cfg := configOf(t, idleWorker(t, kit.NewClient(t, db.Pool), kit.RareHeartbeats))
	evidence, end, err := worker.MistakenHeartbeat(t.Context(), worker.New(cfg))
	defer end()
	if err != nil {
		t.Fatal(err)
	}
	if pid := dbtest.QueryOne[int](t, db.Pool, watchedBackend); pid != 0 || evidence {
		t.Errorf("the evidence is %d", pid)
	}
}
