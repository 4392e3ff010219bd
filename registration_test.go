//go:build unix

package kagzi

import (
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/pgproxy"
)

// fullPool is a pool all of whose connections are open: it opens none while the test goes on. change may be nil.
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
	waitFor(t, "the pool is full", func() bool { return pool.Stat().IdleConns() == conns })
	return pool
}

// TestLostRegistration loses the answer to the commit of a worker's registration, with the connection: when it has
// registered, the row names the connection that it has, not the one that is gone.
func TestLostRegistration(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	proxy := pgproxy.Start(t, db.DSN)
	drop := proxy.DropAck(pgproxy.After(pgproxy.Contains("INSERT INTO kagzi.workers"), pgproxy.Exactly("commit")))
	w := newTestWorker(t, newTestClient(t, openPool(t, proxy.DSN(), 5)), mute)
	newGate().handle(w)
	h := newHeart(newSession(w.session()))
	if err := h.begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer h.end()
	receive(t, drop.Done())
	if got, want := queryOne[int](t, db.Pool, watchedBackend), int(h.conn.PgConn().PID()); got != want {
		t.Errorf("the row names backend %d, the worker has %d", got, want)
	}
	if got := queryOne[string](t, db.Pool, eventsOfWorkers); got != "STARTED" {
		t.Errorf("the registry's log says %s", got)
	}
	if gone, watched, err := newTestClient(t, db.Pool).store.GoneWorkers(t.Context()); err != nil || len(gone) != 0 || watched != 1 {
		t.Errorf("gone %v of %d, %v", gone, watched, err)
	}
}

// TestSlowConnect ends the connection of a worker while new ones hang: it goes on to beat over the pool's and says that
// there is no evidence for the time being, however long it may be silent.
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
	cfg := mute
	cfg.NoCoordinator = true // fewer to take the pool's connections
	c := newTestClient(t, pool)
	g, runs, _ := gated(t, c, cfg, 2)
	waitFor(t, "the worker listens", c.hints.Listening)
	leases := queryOne[string](t, db.Pool, leasesOfRuns)
	hang.Store(true)
	execSQL(t, db.Pool, `SELECT pg_terminate_backend(backend_pid) FROM kagzi.workers`)
	waitFor(t, "the worker beats over the pool", func() bool { return queryOne[int](t, db.Pool, watchedBackend) == 0 })
	unharmed(t, db, leases)
	hang.Store(false)
	close(g.open)
	checkResults(t, runs, func(int) string { return "opened" })
}

// TestRebornWithoutConnections declares a worker dead that beats over its pool, for the server takes no more connections:
// it registers over the pool, too, and claims its run again under the new ID.
func TestRebornWithoutConnections(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	cfg := mute
	cfg.NoCoordinator = true
	c := newTestClient(t, fullPool(t, db, 5, nil))
	g, _, _ := gated(t, c, cfg, 1)
	waitFor(t, "the worker listens", c.hints.Listening)
	allow := refuseConnections(t, db)
	defer allow()
	execSQL(t, db.Pool, `SELECT pg_terminate_backend(backend_pid) FROM kagzi.workers`)
	waitFor(t, "the worker beats over the pool", func() bool { return queryOne[int](t, db.Pool, watchedBackend) == 0 })
	first := only(t, c, WorkerFilter{Status: []string{"ONLINE"}}).ID
	if err := c.ForceOffline(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	g.losesLeases(t, 1)
	waitFor(t, "the worker is registered anew", func() bool {
		return queryOne[int](t, db.Pool, `SELECT count(*) FROM kagzi.workers WHERE status = 'ONLINE'`) == 1
	})
	waitFor(t, "the worker holds its run under the new ID", func() bool {
		return queryOne[int](t, db.Pool, `SELECT count(*) FROM kagzi.workflow_runs r JOIN kagzi.workers w ON w.worker_id = r.locked_by
			WHERE r.status = 'RUNNING' AND w.status = 'ONLINE'`) == 1
	})
	close(g.open)
}

// TestAfterConnect runs a worker whose pool's connections get their rights from AfterConnect: so do those that it opens
// beside the pool.
func TestAfterConnect(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	owner := db.Pool.Config().ConnConfig.User
	role := "after_connect_" + strings.ReplaceAll(uuid.NewString(), "-", "")
	execSQL(t, db.Pool, `CREATE ROLE `+role+` LOGIN PASSWORD 'secret' NOINHERIT IN ROLE `+pgx.Identifier{owner}.Sanitize())
	t.Cleanup(func() { execSQL(t, db.Pool, `DROP ROLE `+role) })
	pool := fullPool(t, db, 5, func(cfg *pgxpool.Config) {
		cfg.ConnConfig.User, cfg.ConnConfig.Password = role, "secret"
		cfg.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
			_, err := conn.Exec(ctx, `SET ROLE `+pgx.Identifier{owner}.Sanitize())
			return err
		}
	})
	c := newTestClient(t, pool)
	w := newTestWorker(t, c, mute)
	g := newGate()
	g.handle(w)
	runs := startRuns(t, c, g.wf, 1)
	done := runWorker(t, w)
	select {
	case <-g.begun:
	case err := <-done:
		t.Fatalf("Run: %v", err)
	}
	waitFor(t, "the worker listens", c.hints.Listening)
	close(g.open)
	checkResults(t, runs, func(int) string { return "opened" })
	if !only(t, c, WorkerFilter{}).Watched {
		t.Error("the worker's connection is no evidence")
	}
	if _, err := c.DrainQueue(t.Context(), "default"); err != nil {
		t.Error(err)
	}
	if err := receive(t, done); err != nil {
		t.Errorf("Run: %v", err)
	}
}
