//go:build unix

package crash_test

import (
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/pgproxy"
)

// spy counts the statements that contain part, and changes nothing.
func spy(proxy *pgproxy.Proxy, part string) *atomic.Int64 {
	var seen atomic.Int64
	proxy.DropAck(func(_ int, sql string) bool {
		if strings.Contains(sql, part) {
			seen.Add(1)
		}
		return false
	})
	return &seen
}

const (
	claimStatement   = "limits AS MATERIALIZED"
	resolveStatement = "AND q.lease = ANY ($5::uuid[]) AND q.status = 'RUNNING'"
)

// The connection of a slow claim is lost. The claim commits only after the worker has looked for it twice, found
// nothing, and claimed again. The runs of the lost claim are executed nevertheless, long before their leases expire.
func TestClaimThatCommitsAfterItWasResolved(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	dbtest.Exec(t, db.Pool, `
		CREATE TABLE gate (open bool);
		CREATE FUNCTION pass_gate() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
			WHILE NOT EXISTS (SELECT FROM gate) LOOP PERFORM pg_sleep(0.01); END LOOP;
			RETURN NEW;
		END $$;
		CREATE TRIGGER pass_gate BEFORE UPDATE ON kagzi.workflow_runs FOR EACH ROW
			WHEN (OLD.status = 'PENDING' AND NEW.status = 'RUNNING') EXECUTE FUNCTION pass_gate()`)
	proxy := pgproxy.Start(t, db.DSN)
	claims, resolves := spy(proxy, claimStatement), spy(proxy, resolveStatement)
	cut := proxy.DropLink(pgproxy.Contains(claimStatement))
	runs := kit.StartRuns(t, kit.NewClient(t, db.Pool), kit.Nothing, 3)
	cfg := kit.NotifiedOnly
	cfg.NoCoordinator = true
	w := kit.NewWorker(t, kit.NewClient(t, dbtest.OpenPool(t, proxy.DSN(), dbtest.Conns(6))), cfg)
	handleWorkloads(w, nil, nil)
	kit.StartLocal(t, w)
	await.Receive(t, cut.Done())
	await.True(t, "the worker has resolved the claim twice", func() bool { return resolves.Load() > 1 })
	kit.WakeWorkers(t, db.Pool)
	await.True(t, "the worker claims again", func() bool { return claims.Load() > 1 })
	if n := dbtest.QueryOne[int](t, db.Pool, `SELECT count(*) FROM kagzi.workflow_runs
		WHERE status = 'RUNNING'`); n != 0 {
		t.Fatalf("INVALID: the claim took %d runs before the worker resolved it", n)
	}
	dbtest.Exec(t, db.Pool, `INSERT INTO gate VALUES (true)`)
	kit.CheckResults(t, runs, strconv.Itoa)
	if n := dbtest.QueryOne[int](t, db.Pool, `SELECT sum(recoveries) + sum(attempts)
		FROM kagzi.workflow_runs`); n != 0 {
		t.Errorf("%d recoveries and attempts were counted", n)
	}
}

// A worker's context ends while its claim has no answer. The drain begins without it, and the claimed runs are given
// back.
func TestDrainDoesNotWaitForAClaim(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"Context", "Asked"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := dbtest.Database(t)
			proxy := pgproxy.Start(t, db.DSN)
			direct := kit.NewClient(t, db.Pool)
			runs := kit.StartRuns(t, direct, kit.Nothing, 3)
			held := proxy.HoldAck(pgproxy.Contains(claimStatement))
			defer held.Release()
			c := kit.NewClient(t, dbtest.OpenPool(t, proxy.DSN(), dbtest.Conns(6)))
			cfg := kit.NotifiedOnly
			cfg.NoCoordinator = true
			w := kit.NewWorker(t, c, cfg)
			handleWorkloads(w, nil, nil)
			stop := kit.StartLocal(t, w)
			await.Receive(t, held.Done())
			kit.WaitListening(t, db.Pool, 1)
			if name == "Asked" {
				only := kit.Only(t, direct, admin.WorkerFilter{})
				if err := admin.New(direct).Workers.Drain(t.Context(), only.ID); err != nil {
					t.Fatal(err)
				}
			}
			stopped := kit.Stopping(stop)
			await.True(t, "the worker drains", func() bool {
				return dbtest.QueryOne[string](t, db.Pool, `SELECT status FROM kagzi.workers`) == "DRAINING"
			})
			await.True(t, "the runs are due", func() bool {
				return dbtest.QueryOne[int](t, db.Pool, `SELECT count(*) FROM kagzi.workflow_runs
					WHERE status = 'PENDING' AND available_at <= now()`) == len(runs)
			})
			if !held.Holds() {
				t.Error("the drain began when the claim was given up")
			}
			held.Release()
			await.Receive(t, stopped)
			if n := dbtest.QueryOne[int](t, db.Pool, `SELECT count(*) FROM kagzi.workflow_runs WHERE status = 'PENDING'
				AND attempts = 0 AND recoveries = 0 AND version IS NULL AND started_at IS NULL`); n != len(runs) {
				t.Errorf("%d of %d runs are as they were", n, len(runs))
			}
		})
	}
}
