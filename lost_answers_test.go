//go:build unix

package kagzi

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/pgproxy"
)

// TestLostAnswers loses the answer to each statement of a run's life, or the statement itself, and shows that the run
// completes all the same: each effect exists once, and no step whose record was written is executed again.
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		match string
		nths  []int
	}{
		{"Claim", "WITH due AS MATERIALIZED", []int{1, 2, 3}},
		{"History", "SELECT DISTINCT ON (s.step_id)", []int{1}},
		{"Record", "INSERT INTO kagzi.step_runs AS s", []int{1, 2, 3, 4, 5}},
		{"Park", "u.wake_at > 0", []int{1}},
		{"Finish", "SET output = l.output", []int{1, 2}},
		{"Heartbeat", "SET heartbeat_at", []int{1}},
		{"Registration", "INSERT INTO kagzi.workers", []int{1}},
		{"Notification", "pg_notify", []int{1}},
	} {
		for _, request := range []bool{false, true} {
			name := tc.name
			if request {
				name += "Request"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				for _, nth := range tc.nths {
					loseAnswer(t, pgproxy.Nth(nth, pgproxy.Contains(tc.match)), request)
				}
			})
		}
	}
}

func loseAnswer(t *testing.T, m pgproxy.Match, request bool) {
	t.Helper()
	l := newLossy(t, request)
	db := l.db
	dbtest.Audit(t, db.Pool)
	execSQL(t, db.Pool, createEffects)
	drop := l.lose(m)
	direct := newTestClient(t, db.Pool)
	runs := startRuns(t, direct, chained, 3)
	file := filepath.Join(t.TempDir(), "l")
	cfg := quick
	cfg.LeaseTimeout, cfg.StaleAfter = time.Minute, time.Minute // what is lost must be found by looking
	stop := startLocal(t, localWorker(t, l.client(t, 5), file, cfg))
	checkResults(t, runs, chainedResult)
	waitFor(t, "the loss happens", func() bool { // a heartbeat comes later, and so does a second finish
		if l.proxy.Dropped() == 0 {
			checkResults(t, startRuns(t, direct, nothing, 1), func(int) string { return "0" })
		}
		return l.proxy.Dropped() > 0
	})
	receive(t, drop.Done())
	stop()
	checkOnce(t, db, file, len(runs))
	if n := queryOne[int](t, db.Pool, `SELECT coalesce(sum(recoveries), 0) FROM kagzi.workflow_runs`); n != 0 {
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
	if got := queryOne[string](t, db.Pool, `SELECT count(*) || ' of ' || count(DISTINCT run_id) FROM effects`); got != fmt.Sprintf("%d of %d", n, n) {
		t.Errorf("effects: %s runs, want one of each of %d", got, n)
	}
}

// TestLostCommitOfStepTx loses the answer to the commit of a transactional step: it is not executed again. If the
// commit itself is lost, it is, and its effect exists once.
func TestLostCommitOfStepTx(t *testing.T) {
	eachLoss(t, func(t *testing.T, l *lossy) {
		execSQL(t, l.db.Pool, createEffects)
		c := l.client(t, 5)
		wf := Define[int, int]("tx")
		w := newTestWorker(t, c, WorkerConfig{})
		var executed atomic.Int32
		var drop *pgproxy.Drop
		Handle(w, wf, func(ctx Context, n int) (int, error) {
			return StepTx(ctx, "tx", func(ctx context.Context, tx pgx.Tx) (int, error) {
				if executed.Add(1) == 1 {
					drop = l.lose(pgproxy.After(pgproxy.Contains("INSERT INTO kagzi.step_runs AS s"), pgproxy.Exactly("commit")))
				}
				_, err := tx.Exec(ctx, insertEffect, CurrentStep(ctx).Run, "tx")
				return n, err
			})
		})
		runs := startRuns(t, newTestClient(t, l.db.Pool), wf, 1)
		startLocal(t, w)
		checkResults(t, runs, func(int) int { return 0 })
		receive(t, drop.Done())
		want := int32(1)
		if l.requests {
			want = 2
		}
		if n := executed.Load(); n != want {
			t.Errorf("the step was executed %d times, want %d", n, want)
		}
		checkEffects(t, l.db, 1)
	})
}

// TestLostExtension loses the answer to an extension of leases, or the extension: the runs stay where they are.
func TestLostExtension(t *testing.T) {
	eachLoss(t, func(t *testing.T, l *lossy) {
		drop := l.lose(pgproxy.Contains("clock_timestamp() + $4::bigint"))
		cfg := quick
		cfg.StaleAfter, cfg.LeaseTimeout = time.Minute, 4*time.Second
		g, runs, _ := gated(t, l.client(t, 5), cfg, 3)
		receive(t, drop.Done())
		waitFor(t, "the leases are extended", func() bool {
			return queryOne[bool](t, l.db.Pool, `SELECT min(available_at - started_at) > interval '4.5 s' FROM kagzi.workflow_runs`)
		})
		close(g.open)
		checkResults(t, runs, func(int) string { return "opened" })
		if len(g.cause) > 0 {
			t.Errorf("a step's context ended: %v", <-g.cause)
		}
		if n := queryOne[int](t, l.db.Pool, `SELECT sum(recoveries) FROM kagzi.workflow_runs`); n != 0 {
			t.Errorf("%d recoveries", n)
		}
	})
}

// TestLostAnswerToClient loses the answers to Start and Cancel: both look, and say what is the case.
func TestLostAnswerToClient(t *testing.T) {
	eachLoss(t, func(t *testing.T, l *lossy) {
		ctx := testContext(t)
		c := l.client(t, 5)
		drop := l.lose(pgproxy.Contains("INSERT INTO kagzi.workflow_runs"))
		run, err := Start(ctx, c, nothing, 1, ID("one"))
		if err != nil || run.Existed() {
			t.Errorf("Start: existed %v, %v", run.Existed(), err)
		}
		receive(t, drop.Done())
		drop = l.lose(pgproxy.Exactly("commit"))
		many, err := c.StartMany(ctx, []Call{nothing.With(1, ID("one")), nothing.With(2, ID("two")), nothing.With(3)})
		if err != nil || many[0].ID != run.ID() || !many[0].Existed || many[1].Existed || many[2].Existed {
			t.Errorf("StartMany: %+v, %v", many, err)
		}
		receive(t, drop.Done())
		if n := queryOne[int](t, l.db.Pool, `SELECT count(*) FROM kagzi.workflow_runs`); n != 3 {
			t.Errorf("%d runs, want 3", n)
		}
		for _, m := range []pgproxy.Match{pgproxy.Exactly("commit"), pgproxy.Contains("coalesce(r.cancel_requested_at, l.now)")} {
			drop = l.lose(m)
			if err := c.Cancel(ctx, many[2].ID); err != nil {
				t.Errorf("Cancel: %v", err)
			}
			receive(t, drop.Done())
		}
		drop = l.lose(pgproxy.Exactly("commit"))
		if err := c.Resume(ctx, many[2].ID); err != nil {
			t.Errorf("Resume: %v", err)
		}
		receive(t, drop.Done())
		if info, err := c.Get(ctx, many[2].ID); err != nil || info.Status != StatusPending {
			t.Errorf("the run is %s, %v", info.Status, err)
		}
	})
}
