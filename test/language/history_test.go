//go:build unix

package language_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/pgproxy"
)

// A worker is stopped while it reads the history of a run that it has just claimed, and the read fails. It must give
// the run back, and not execute it as though nothing were recorded.
func TestRunWithoutItsHistoryIsNotExecuted(t *testing.T) {
	t.Parallel()
	ctx := kit.Context(t)
	db := dbtest.Database(t)
	k := &kit.Kit{T: t, Ctx: ctx, Pool: db.Pool, Client: kit.NewClient(t, db.Pool)}
	proxy := pgproxy.Start(t, db.DSN)
	w := kit.NewWorker(t, kit.NewClient(t, dbtest.OpenPool(t, proxy.DSN(), dbtest.Conns(5))),
		kagzi.WorkerConfig{PollInterval: 50 * time.Millisecond})
	wf := kagzi.Define[int, int]("charging")
	var charged atomic.Int64
	charge := func(ctx kagzi.Context, n int) (int, error) {
		if _, err := kagzi.Step(ctx, "charge", kit.Once(&charged, n)); err != nil {
			return 0, err
		}
		return n, kagzi.Sleep(ctx, "nap", time.Hour)
	}
	kagzi.Handle(w, wf, charge)
	run := kit.Begin(k, wf, 7)
	wctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- w.Run(wctx) }()
	k.WaitStatus(run.ID(), kagzi.StatusSleeping)

	reads := pgproxy.Contains("SELECT DISTINCT ON (s.step_id)")
	drop := proxy.DropRequest(func(conn int, sql string) bool {
		hit := reads(conn, sql)
		if hit {
			cancel() // before the worker can know that the history does not come
		}
		return hit
	})
	for range 50 {
		proxy.DropRequest(reads) // nor does it come when it is asked for again
	}
	k.Forward(run.ID())
	await.Receive(t, drop.Done())
	if err := await.Receive(t, done); err != nil {
		t.Errorf("Run returned %v", err)
	}
	if info := k.WaitStatus(run.ID(), kagzi.StatusPending); info.Attempts != 0 {
		t.Errorf("the run that was given back has failed %d attempts", info.Attempts)
	}
	kit.Serve(k, wf, charge)
	if got := kit.ResultOf(k, run); got != 7 {
		t.Errorf("got %d, want 7", got)
	}
	if n := charged.Load(); n != 1 {
		t.Errorf("the recorded step was executed %d times", n)
	}
}

// A claim is lost. It may have timed out because the inputs of its runs were too large, so the next one claims half as
// many runs.
func TestLostClaimIsFollowedByASmallerOne(t *testing.T) {
	t.Parallel()
	ctx := kit.Context(t)
	db := dbtest.Database(t)
	proxy := pgproxy.Start(t, db.DSN)
	g := kit.NewGate()
	w := kit.NewWorker(t, kit.NewClient(t, dbtest.OpenPool(t, proxy.DSN(), dbtest.Conns(5))),
		kagzi.WorkerConfig{MaxConcurrent: 16, PollInterval: 50 * time.Millisecond})
	g.Handle(w)
	c := kit.NewClient(t, db.Pool)
	calls := make([]kagzi.Call, 16)
	for i := range calls {
		calls[i] = g.Workflow.With(i)
	}
	if _, err := c.StartMany(ctx, calls); err != nil {
		t.Fatal(err)
	}
	drop := proxy.DropRequest(pgproxy.Contains("limits AS MATERIALIZED"))
	kit.StartLocal(t, w)
	await.Receive(t, drop.Done())
	for range calls {
		await.Receive(t, g.Begun)
	}
	most := dbtest.QueryOne[int](t, db.Pool, `SELECT max(n) FROM (SELECT count(*) AS n FROM kagzi.workflow_runs
		WHERE status = 'RUNNING' GROUP BY lease) l`)
	if most != 8 {
		t.Errorf("after the claim of 16 runs was lost the largest took %d, want 8", most)
	}
	close(g.Open)
	await.True(t, "all runs are completed", func() bool {
		return dbtest.QueryOne[int](t, db.Pool, `SELECT count(*) FROM kagzi.workflow_runs
			WHERE status = 'COMPLETED'`) == len(calls)
	})
}
