//go:build unix

package kagzi

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/pgproxy"
)

// TestRunWithoutItsHistoryIsNotExecuted has a worker told to stop while it reads the history of a run that it has just
// claimed, and cannot: it must give the run back, not execute it as if nothing were recorded.
func TestRunWithoutItsHistoryIsNotExecuted(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	db := dbtest.Database(t)
	k := &kit{t: t, ctx: ctx, pool: db.Pool, c: newTestClient(t, db.Pool)}
	proxy := pgproxy.Start(t, db.DSN)
	w := newTestWorker(t, newTestClient(t, openPool(t, proxy.DSN(), 5)), WorkerConfig{PollInterval: 50 * time.Millisecond})
	wf := Define[int, int]("charging")
	var charged atomic.Int64
	charge := func(ctx Context, n int) (int, error) {
		if _, err := Step(ctx, "charge", once(&charged, n)); err != nil {
			return 0, err
		}
		return n, Sleep(ctx, "nap", time.Hour)
	}
	Handle(w, wf, charge)
	run := begin(k, wf, 7)
	wctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- w.Run(wctx) }()
	k.waitStatus(run.ID(), StatusSleeping)

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
	k.forward(run.ID())
	receive(t, drop.Done())
	if err := receive(t, done); err != nil {
		t.Errorf("Run returned %v", err)
	}
	if info := k.waitStatus(run.ID(), StatusPending); info.Attempts != 0 {
		t.Errorf("the run that was given back has failed %d attempts", info.Attempts)
	}
	serve(k, wf, charge)
	if got := resultOf(k, run); got != 7 {
		t.Errorf("got %d, want 7", got)
	}
	if n := charged.Load(); n != 1 {
		t.Errorf("the recorded step was executed %d times", n)
	}
}

// TestLostClaimIsFollowedByASmallerOne loses a claim. It may have been too large for its time, with the inputs of all
// its runs: the next one takes half as many, so that some runs get through.
func TestLostClaimIsFollowedByASmallerOne(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	db := dbtest.Database(t)
	proxy := pgproxy.Start(t, db.DSN)
	g := newGate()
	w := newTestWorker(t, newTestClient(t, openPool(t, proxy.DSN(), 5)), WorkerConfig{MaxConcurrent: 16, PollInterval: 50 * time.Millisecond})
	g.handle(w)
	c := newTestClient(t, db.Pool)
	calls := make([]Call, 16)
	for i := range calls {
		calls[i] = g.wf.With(i)
	}
	if _, err := c.StartMany(ctx, calls); err != nil {
		t.Fatal(err)
	}
	drop := proxy.DropRequest(pgproxy.Contains("WITH due AS MATERIALIZED"))
	startLocal(t, w)
	receive(t, drop.Done())
	for range calls {
		receive(t, g.begun)
	}
	most := queryOne[int](t, db.Pool, `SELECT max(n) FROM (SELECT count(*) AS n FROM kagzi.workflow_runs WHERE status = 'RUNNING' GROUP BY lease) l`)
	if most != 8 {
		t.Errorf("after the claim of 16 runs was lost the largest took %d, want 8", most)
	}
	close(g.open)
	waitFor(t, "all runs are completed", func() bool {
		return queryOne[int](t, db.Pool, `SELECT count(*) FROM kagzi.workflow_runs WHERE status = 'COMPLETED'`) == len(calls)
	})
}
