//go:build unix

package crash_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/campaign"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/pgproxy"
)

// For each statement of a run's life, the answer to it is lost, in a long campaign also the statement. The run
// completes nevertheless: each effect exists once, and no step whose record was written is executed again.
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		match string
		nths  []int
	}{
		{"Claim", "limits AS MATERIALIZED", []int{1, 2, 3}},
		{"History", "SELECT DISTINCT ON (s.step_id)", []int{1}},
		{"Record", "INSERT INTO kagzi.step_runs AS s", []int{1, 2, 3, 4, 5}},
		{"Publish", "INSERT INTO kagzi.events ", []int{1, 2, 3}},
		{"Suspend", "u.wake_at > 0", []int{1}},
		{"Finish", "output = u.output", []int{1, 2}},
		{"Heartbeat", "SET heartbeat_at", []int{1}},
		{"Registration", "INSERT INTO kagzi.workers", []int{1}},
		{"Notification", "pg_notify", []int{1}},
	} {
		for _, request := range campaign.Some([]bool{false, true}, 1) {
			t.Run(lossName(tc.name, request), func(t *testing.T) {
				t.Parallel()
				for _, nth := range campaign.Some(tc.nths, 1) {
					loseAnswer(t, pgproxy.Nth(nth, pgproxy.Contains(tc.match)), request)
				}
			})
		}
	}
}

func loseAnswer(t *testing.T, m pgproxy.Match, request bool) {
	t.Helper()
	l := kit.NewLossy(t, request)
	db := l.Db
	dbtest.Audit(t, db.Pool)
	dbtest.Exec(t, db.Pool, createEffects)
	drop := l.Lose(m)
	direct := kit.NewClientWith(t, db.Pool, kagzi.ClientConfig{RunEvents: true})
	runs := kit.StartRuns(t, direct, chained, 3)
	file := filepath.Join(t.TempDir(), "l")
	cfg := kit.Quick
	cfg.LeaseTimeout, cfg.StaleAfter = time.Minute, time.Minute // a lost answer must be found by looking
	stop := kit.StartLocal(t, localWorker(t, l.Client(t, 5), file, cfg))
	kit.CheckResults(t, runs, chainedResult)
	await.True(t, "the loss happens", func() bool { // a heartbeat comes later, and so does a second finish
		if l.Proxy.Dropped() == 0 {
			kit.CheckResults(t, kit.StartRuns(t, direct, kit.Nothing, 1), func(int) string { return "0" })
		}
		return l.Proxy.Dropped() > 0
	})
	await.Receive(t, drop.Done())
	stop()
	checkOnce(t, db, file, len(runs))
	if n := dbtest.QueryOne[int](t, db.Pool, `SELECT coalesce(sum(recoveries), 0) FROM kagzi.workflow_runs`); n != 0 {
		t.Errorf("%d runs were left to their timeout", n)
	}
}

// checkOnce checks that each attempt of a step was executed once and that n effects exist, one for each run.
func checkOnce(t *testing.T, db *dbtest.DB, file string, n int) {
	t.Helper()
	lines, err := readLedger(file)
	if err != nil {
		t.Fatal(err)
	}
	times := map[string]int{}
	for _, l := range lines {
		if l[0] == "BEGIN" {
			times[strings.Join(l[1:4], " ")]++
		}
	}
	for step, n := range times {
		// A transaction that was cut before its commit is made again.
		if n > 1 && !strings.Contains(step, " ledger ") {
			t.Errorf("step %s was executed %d times", step, n)
		}
	}
	checkEffects(t, db, n)
}

func checkEffects(t *testing.T, db *dbtest.DB, n int) {
	t.Helper()
	if err := checkTold(t.Context(), db); err != nil {
		t.Error(err)
	}
	if got := dbtest.QueryOne[string](t, db.Pool, `SELECT count(*) || ' of ' || count(DISTINCT run_id)
		FROM effects`); got != fmt.Sprintf("%d of %d", n, n) {
		t.Errorf("effects: %s runs, want one of each of %d", got, n)
	}
}

// If the answer to the commit of a transactional step is lost, the step is not executed again. If the commit itself is
// lost, it is, and its effect exists once.
func TestLostCommitOfStepTx(t *testing.T) {
	kit.EachLoss(t, func(t *testing.T, l *kit.Lossy) {
		dbtest.Exec(t, l.Db.Pool, createEffects)
		c := l.Client(t, 5)
		wf := kagzi.Define[int, int]("tx")
		w := kit.NewWorker(t, c, kagzi.WorkerConfig{})
		var executed atomic.Int32
		var drop *pgproxy.Drop
		kagzi.Handle(w, wf, func(ctx kagzi.Context, n int) (int, error) {
			return kagzi.StepTx(ctx, "tx", func(ctx context.Context, tx pgx.Tx) (int, error) {
				if executed.Add(1) == 1 {
					drop = l.Lose(pgproxy.After(pgproxy.Contains("INSERT INTO kagzi.step_runs AS s"),
						pgproxy.Exactly("commit")))
				}
				_, err := tx.Exec(ctx, insertEffect, kagzi.CurrentStep(ctx).Run, "tx")
				return n, err
			})
		})
		runs := kit.StartRuns(t, kit.NewClient(t, l.Db.Pool), wf, 1)
		kit.StartLocal(t, w)
		kit.CheckResults(t, runs, func(int) int { return 0 })
		await.Receive(t, drop.Done())
		want := int32(1)
		if l.Requests {
			want = 2
		}
		if n := executed.Load(); n != want {
			t.Errorf("the step was executed %d times, want %d", n, want)
		}
		checkEffects(t, l.Db, 1)
	})
}

// An extension of leases, or the answer to it, is lost. The worker keeps its runs.
func TestLostExtension(t *testing.T) {
	kit.EachLoss(t, func(t *testing.T, l *kit.Lossy) {
		drop := l.Lose(pgproxy.Contains("clock_timestamp() + $4::bigint"))
		cfg := kit.Quick
		cfg.StaleAfter, cfg.Coordinator.Grace = time.Minute, 30*time.Second
		cfg.LeaseTimeout = 10 * time.Second // a busy machine has half of it for the next extension
		g, runs, _ := kit.Gated(t, l.Client(t, 5), cfg, 3)
		await.Receive(t, drop.Done())
		await.True(t, "the leases are extended", func() bool {
			return dbtest.QueryOne[bool](t, l.Db.Pool, `SELECT min(available_at - started_at) > interval '10.5 s'
				FROM kagzi.workflow_runs`)
		})
		close(g.Open)
		kit.CheckResults(t, runs, func(int) string { return "opened" })
		if len(g.Cause) > 0 {
			t.Errorf("a step's context ended: %v", <-g.Cause)
		}
		if n := dbtest.QueryOne[int](t, l.Db.Pool, `SELECT sum(recoveries) FROM kagzi.workflow_runs`); n != 0 {
			t.Errorf("%d recoveries", n)
		}
	})
}

// The answers to Start and Cancel are lost. Both resolve the outcome by a query, and return it.
func TestLostAnswerToClient(t *testing.T) {
	kit.EachLoss(t, func(t *testing.T, l *kit.Lossy) {
		ctx := kit.Context(t)
		c := l.Client(t, 5)
		drop := l.Lose(pgproxy.Contains("INSERT INTO kagzi.workflow_runs"))
		run, err := kagzi.Start(ctx, c, kit.Nothing, 1, kagzi.ID("one"))
		if err != nil || run.Existed() {
			t.Errorf("Start: existed %v, %v", run.Existed(), err)
		}
		await.Receive(t, drop.Done())
		drop = l.Lose(pgproxy.Exactly("commit"))
		many, err := c.StartMany(ctx, []kagzi.Call{
			kit.Nothing.With(1, kagzi.ID("one")),
			kit.Nothing.With(2, kagzi.ID("two")), kit.Nothing.With(3),
		})
		if err != nil || many[0].ID != run.ID() || !many[0].Existed || many[1].Existed || many[2].Existed {
			t.Errorf("StartMany: %+v, %v", many, err)
		}
		await.Receive(t, drop.Done())
		if n := dbtest.QueryOne[int](t, l.Db.Pool, `SELECT count(*) FROM kagzi.workflow_runs`); n != 3 {
			t.Errorf("%d runs, want 3", n)
		}
		for _, m := range []pgproxy.Match{
			pgproxy.Exactly("commit"),
			pgproxy.Contains("coalesce(r.cancel_requested_at, CASE endings.act"),
		} {
			drop = l.Lose(m)
			if err := c.Cancel(ctx, many[2].ID); err != nil {
				t.Errorf("Cancel: %v", err)
			}
			await.Receive(t, drop.Done())
		}
		drop = l.Lose(pgproxy.Exactly("commit"))
		if err := admin.New(c).Runs.Resume(ctx, many[2].ID); err != nil {
			t.Errorf("Resume: %v", err)
		}
		await.Receive(t, drop.Done())
		if info, err := c.Get(ctx, many[2].ID); err != nil || info.Status != kagzi.StatusPending {
			t.Errorf("the run is %s, %v", info.Status, err)
		}
	})
}

// Starts that are made at once share a statement. It is lost, or its answer is: each Start returns its own run, which
// exists once.
func TestLostAnswerToSharedStart(t *testing.T) {
	kit.EachLoss(t, func(t *testing.T, l *kit.Lossy) {
		c := l.Client(t, 5)
		const n = 20
		drop := l.Lose(pgproxy.Nth(2, pgproxy.Contains("INSERT INTO kagzi.workflow_runs")))
		started := map[kagzi.RunID]bool{}
		// the first Start has a statement of its own, and the next statement is the others'
		for l.Proxy.Dropped() == 0 {
			ids := make([]kagzi.RunID, n)
			var wg sync.WaitGroup
			for i := range n {
				wg.Go(func() {
					run, err := kagzi.Start(kit.Context(t), c, kit.Nothing, i)
					if err != nil || run.Existed() {
						t.Errorf("existed %t, %v", run.Existed(), err)
						return
					}
					ids[i] = run.ID()
				})
			}
			wg.Wait()
			for _, id := range ids {
				started[id] = true
			}
		}
		await.Receive(t, drop.Done())
		there := dbtest.QueryOne[[]string](t, l.Db.Pool, `SELECT array_agg(run_id::text) FROM kagzi.workflow_runs`)
		if len(there) != len(started) {
			t.Errorf("%d runs for %d starts", len(there), len(started))
		}
		for _, id := range there {
			if !started[kagzi.RunID(id)] {
				t.Errorf("nobody knows run %s", id)
			}
		}
	})
}
