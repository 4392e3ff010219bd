package worker_test

import (
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/pgproxy"
	"github.com/kagzi/kagzi/internal/worker"
	"github.com/kagzi/kagzi/store"
)

// fullPool is a pool with all its connections open, so that it opens none during the test. change may be nil.
func fullPool(t *testing.T, db *dbtest.DB, conns int32, change func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(db.DSN)
	if err != nil {
		t.Fatal(err)
	}
	cfg.MaxConns, cfg.MinConns = conns, conns
	if change != nil {
		change(cfg)
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	await.True(t, "the pool is full", func() bool { return pool.Stat().IdleConns() == conns })
	return pool
}

// TestLostRegistration loses the answer to the commit of a worker's registration, with the connection: in the end the
// row names the worker's new connection, not the lost one.
func TestLostRegistration(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	proxy := pgproxy.Start(t, db.DSN)
	drop := proxy.DropAck(pgproxy.After(pgproxy.Contains("INSERT INTO kagzi.workers"), pgproxy.Exactly("commit")))
	c := kit.NewClient(t, dbtest.OpenPool(t, proxy.DSN(), dbtest.Conns(5)))
	want, end, err := worker.Register(t.Context(), worker.New(configOf(t, idleWorker(t, c, kit.RareHeartbeats))))
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	await.Receive(t, drop.Done())
	if got := dbtest.QueryOne[int](t, db.Pool, watchedBackend); got != want {
		t.Errorf("the row names backend %d, the worker has %d", got, want)
	}
	if got := dbtest.QueryOne[string](t, db.Pool, `SELECT string_agg(event, ' ' ORDER BY occurred_at)
		FROM kagzi.worker_events`); got != "STARTED" {
		t.Errorf("the registry's log says %s", got)
	}
	if fleet, err := store.New(db.Pool, "default").Workers.CheckFleet(t.Context()); err != nil ||
		len(fleet.Disconnected) != 0 || fleet.Watched != 1 {
		t.Errorf("fleet %+v, %v", fleet, err)
	}
}

// TestSlowConnect ends the connection of a worker while new ones hang: its heartbeats go on over the pool's
// connections, and say that there is no connection as evidence for the time being, however long the worker may be
// silent.
func TestSlowConnect(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	var hang atomic.Bool
	pool := fullPool(t, db, 5, func(cfg *pgxpool.Config) {
		dial := cfg.ConnConfig.DialFunc
		cfg.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
			if hang.Load() {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return dial(ctx, network, addr)
		}
	})
	cfg := kit.RareHeartbeats
	cfg.NoCoordinator = true // so that nothing else takes the pool's connections
	cfg.Coordinator.Grace = patientGrace
	c := kit.NewClient(t, pool)
	g, runs, _ := kit.Gated(t, c, cfg, 2)
	await.True(t, "the worker listens", configOf(t, idleWorker(t, c, kit.RareHeartbeats)).Hints.Listening)
	leases := dbtest.QueryOne[string](t, db.Pool, leasesOfRuns)
	hang.Store(true)
	dbtest.Exec(t, db.Pool, `SELECT pg_terminate_backend(backend_pid) FROM kagzi.workers`)
	await.True(t, "heartbeats go over the pool", func() bool {
		return dbtest.QueryOne[int](t, db.Pool, watchedBackend) == 0
	})
	unharmed(t, db, leases)
	hang.Store(false)
	close(g.Open)
	kit.CheckResults(t, runs, func(int) string { return "opened" })
}

// TestReregisterWithoutConnections declares a worker dead whose heartbeats go over its pool, because the server accepts
// no more connections: it registers over the pool, too, and claims its run again under the new ID.
func TestReregisterWithoutConnections(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	cfg := kit.RareHeartbeats
	cfg.NoCoordinator = true
	c := kit.NewClient(t, fullPool(t, db, 5, nil))
	g, _, _ := kit.Gated(t, c, cfg, 1)
	await.True(t, "the worker listens", configOf(t, idleWorker(t, c, kit.RareHeartbeats)).Hints.Listening)
	allow := refuseConnections(t, db)
	defer allow()
	dbtest.Exec(t, db.Pool, `SELECT pg_terminate_backend(backend_pid) FROM kagzi.workers`)
	await.True(t, "heartbeats go over the pool", func() bool {
		return dbtest.QueryOne[int](t, db.Pool, watchedBackend) == 0
	})
	first := kit.Only(t, c, admin.WorkerFilter{Status: []string{"ONLINE"}}).ID
	if err := admin.New(c).Workers.ForceOffline(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	g.LosesLeases(t, 1)
	await.True(t, "the worker is registered again", func() bool {
		return dbtest.QueryOne[int](t, db.Pool, `SELECT count(*) FROM kagzi.workers WHERE status = 'ONLINE'`) == 1
	})
	await.True(t, "the worker holds its run under the new ID", func() bool {
		return dbtest.QueryOne[int](t, db.Pool, `SELECT count(*) FROM kagzi.workflow_runs r JOIN kagzi.workers w
			ON w.worker_id = r.locked_by
			WHERE r.status = 'RUNNING' AND w.status = 'ONLINE'`) == 1
	})
	close(g.Open)
}

// TestAfterConnect runs a worker whose pool's connections get their rights from AfterConnect: the connections that the
// worker opens beside the pool do, too.
func TestAfterConnect(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t, dbtest.AsOwner()) // after SET ROLE, only a superuser sees when the connection began
	owner := db.Pool.Config().ConnConfig.User
	role := "after_connect_" + strings.ReplaceAll(uuid.NewString(), "-", "")
	dbtest.Exec(t, db.Pool, `CREATE ROLE `+role+` LOGIN PASSWORD 'secret' NOINHERIT IN ROLE `+
		pgx.Identifier{owner}.Sanitize())
	t.Cleanup(func() { dbtest.Exec(t, db.Pool, `DROP ROLE `+role) })
	pool := fullPool(t, db, 5, func(cfg *pgxpool.Config) {
		cfg.ConnConfig.User, cfg.ConnConfig.Password = role, "secret"
		cfg.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
			_, err := conn.Exec(ctx, `SET ROLE `+pgx.Identifier{owner}.Sanitize())
			return err
		}
	})
	c := kit.NewClient(t, pool)
	w := kit.NewWorker(t, c, kit.RareHeartbeats)
	g := kit.NewGate()
	g.Handle(w)
	runs := kit.StartRuns(t, c, g.Workflow, 1)
	done := kit.RunWorker(t, w)
	select {
	case <-g.Begun:
	case err := <-done:
		t.Fatalf("Run: %v", err)
	}
	await.True(t, "the worker listens", configOf(t, idleWorker(t, c, kit.RareHeartbeats)).Hints.Listening)
	close(g.Open)
	kit.CheckResults(t, runs, func(int) string { return "opened" })
	if !kit.Only(t, c, admin.WorkerFilter{}).Watched {
		t.Error("the worker's connection does not count as evidence")
	}
	if _, err := admin.New(c).Workers.DrainQueue(t.Context(), "default"); err != nil {
		t.Error(err)
	}
	if err := await.Receive(t, done); err != nil {
		t.Errorf("Run: %v", err)
	}
}
