//go:build unix

package crash_test

import (
	"context"
	"net/url"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/localpg"
)

// bothHosts returns a connection string for whichever of two servers accepts writes.
func bothHosts(t *testing.T, first, second *localpg.Cluster) string {
	t.Helper()
	u, err := url.Parse(first.DSN())
	if err != nil {
		t.Fatal(err)
	}
	other, err := url.Parse(second.DSN())
	if err != nil {
		t.Fatal(err)
	}
	u.Host += "," + other.Host
	q := u.Query()
	q.Set("target_session_attrs", "read-write")
	u.RawQuery = q.Encode()
	return u.String()
}

// synchronousStandby starts a standby without which no commit of the server returns, if it waits for the disk.
func synchronousStandby(ctx context.Context, t *testing.T, server *localpg.Cluster,
	pool *pgxpool.Pool,
) *localpg.Cluster {
	t.Helper()
	standby, err := server.Standby(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := standby.Stop(); err != nil {
			t.Error(err)
		}
	})
	dbtest.Exec(t, pool, `ALTER SYSTEM SET synchronous_standby_names = '*'`)
	dbtest.Exec(t, pool, `SELECT pg_reload_conf()`)
	await.True(t, "the standby is synchronous", func() bool {
		return dbtest.QueryOne[int](t, pool, `SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'`) == 1
	})
	return standby
}

// TestFailoverToTheOtherHost shows that clients and workers whose connection string names both servers find the standby
// that is promoted, and that nothing is lost or done twice.
func TestFailoverToTheOtherHost(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*await.Patience)
	defer cancel()
	primary, admin := kit.OwnServer(ctx, t, 3)
	dbtest.Exec(t, admin, createEffects)
	dbtest.Audit(t, admin)
	standby := synchronousStandby(ctx, t, primary, admin)
	dsn := bothHosts(t, primary, standby)
	pool := dbtest.OpenPool(t, dsn, dbtest.Conns(10))
	c := kit.NewClient(t, pool)
	const n = 200
	runs := kit.StartRuns(t, c, chained, n)
	kit.StartLocal(t, localWorker(t, c, filepath.Join(t.TempDir(), "l"), kagzi.WorkerConfig{MaxConcurrent: 10}))
	p := startProcess(t, workerSpec{
		DSN: dsn, Ledger: filepath.Join(t.TempDir(), "p"),
		Config: kagzi.WorkerConfig{MaxConcurrent: 10},
	})
	await.True(t, "runs complete", func() bool {
		return dbtest.QueryOne[int](t, admin, `SELECT count(*) FROM kagzi.workflow_runs
			WHERE status = 'COMPLETED'`) >= n/4
	})
	if err := primary.Stop(); err != nil {
		t.Fatal(err)
	}
	promoted := dbtest.OpenPool(t, standby.DSN(), dbtest.Conns(2))
	dbtest.Exec(t, promoted, `ALTER SYSTEM RESET synchronous_standby_names`)
	dbtest.Exec(t, promoted, `SELECT pg_promote()`)
	dbtest.Exec(t, promoted, `SELECT pg_reload_conf()`)
	kit.CheckResults(t, runs, chainedResult)
	last, err := kagzi.Start(ctx, c, chained, n)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := last.Result(ctx); err != nil || got != chainedResult(n) {
		t.Errorf("a run that was started after the failover: %q, %v", got, err)
	}
	p.stop(t)
	if n, distinct := dbtest.QueryOne[int](t, promoted, `SELECT count(*) FROM effects`), dbtest.QueryOne[int](t,
		promoted, `SELECT count(DISTINCT run_id) FROM effects`); n != distinct || n != len(runs)+1 {
		t.Errorf("%d effects of %d runs, want one of each of %d", n, distinct, len(runs)+1)
	}
	dbtest.CheckInvariants(t, promoted)
}
