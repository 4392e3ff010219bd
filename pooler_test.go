//go:build unix

package kagzi

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/kagzi/kagzi/internal/dbtest"
)

// TestTransactionPooler shows that everything works behind a pooler that gives a client another connection for each
// transaction: prepared statements and LISTEN do not exist there. Only migrations need the server itself.
func TestTransactionPooler(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	db := dbtest.Database(t)
	dbtest.Audit(t, db.Pool)
	execSQL(t, db.Pool, createEffects)
	dsn := dbtest.Pooler(t, db)
	c := newTestClient(t, openPool(t, dsn, 10))
	others := openPool(t, dsn, 10)
	other := newTestClient(t, others)
	dir := t.TempDir()
	cfg := WorkerConfig{PollInterval: 200 * time.Millisecond, Heartbeat: 300 * time.Millisecond}
	g := newGate()
	w := localWorker(t, c, filepath.Join(dir, "l"), cfg)
	g.handle(w)
	stop := startLocal(t, w)
	begun := time.Now()
	checkResults(t, startRuns(t, other, chained, 50), chainedResult)
	t.Logf("50 runs of 7 steps took %v", time.Since(begun).Round(time.Millisecond))
	checkOnce(t, db, filepath.Join(dir, "l"), 50)

	t.Run("StartInTx", func(t *testing.T) {
		tx, err := others.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		run, err := Start(ctx, other, nothing, 5, InTx(tx), ID("five"))
		if err != nil {
			t.Fatal(err)
		}
		commitTx(t, tx)
		if got, err := run.Result(ctx); err != nil || got != "5" {
			t.Errorf("got %q, %v", got, err)
		}
	})
	t.Run("ListAndSteps", func(t *testing.T) {
		infos, err := other.List(ctx, RunFilter{Workflow: "chained"})
		if err != nil || len(infos) != 50 {
			t.Fatalf("%d runs, %v; want 50", len(infos), err)
		}
		if steps, err := other.Steps(ctx, infos[0].ID); err != nil || len(steps) != 9 {
			t.Errorf("%d attempts of steps, %v; want 9", len(steps), err)
		}
	})
	t.Run("Timers", func(t *testing.T) {
		run, err := Start(ctx, other, napping, 400*time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := run.Result(ctx); err != nil || got != "rested" {
			t.Errorf("got %q, %v", got, err)
		}
	})
	t.Run("CancelAndResume", func(t *testing.T) {
		run := startRuns(t, other, g.wf, 1)[0]
		receive(t, g.begun)
		if err := run.Cancel(ctx); err != nil {
			t.Fatal(err)
		}
		var failed *RunError
		if _, err := run.Result(ctx); !errors.As(err, &failed) || failed.Status != StatusCancelled {
			t.Errorf("got %v, want a cancelled run", err)
		}
		// No notification tells the worker, but its heartbeat does, or its next write, which is refused.
		if cause := receive(t, g.cause); !errors.Is(cause, KindCancelled) && !errors.Is(cause, ErrLeaseLost) {
			t.Errorf("the step's cause is %v", cause)
		}
		if err := other.Resume(ctx, run.ID()); err != nil {
			t.Fatal(err)
		}
		receive(t, g.begun)
		close(g.open)
		if got, err := run.Result(ctx); err != nil || got != "opened" {
			t.Errorf("got %q, %v", got, err)
		}
	})
	t.Run("Crash", func(t *testing.T) {
		stop()
		release := filepath.Join(dir, "release")
		victim := startProcess(t, workerSpec{DSN: dsn, Ledger: filepath.Join(dir, "victim"), Config: quick})
		run, err := Start(ctx, other, holding, release)
		if err != nil {
			t.Fatal(err)
		}
		waitFor(t, "the step begins", func() bool { return countIn(t, filepath.Join(dir, "victim"), "BEGIN") == 1 })
		if err := victim.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		victim.killed(t)
		touch(t, release)
		rescuer := startProcess(t, workerSpec{DSN: dsn, Ledger: filepath.Join(dir, "rescuer"), Config: quick})
		if got, err := run.Result(ctx); err != nil || got != "held" {
			t.Errorf("got %q, %v", got, err)
		}
		rescuer.stop(t)
	})
}

// TestStartBesideWorkerNeedsNoNotification shows that a run which is started in a worker's own process is claimed at
// once, although no notification comes through and the worker polls once an hour.
func TestStartBesideWorkerNeedsNoNotification(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	c, logged := loggedClient(t, openPool(t, startPooler(t, db), 10))
	startLocal(t, localWorker(t, c, filepath.Join(t.TempDir(), "l"), WorkerConfig{PollInterval: time.Hour}))
	ctx := testContext(t)
	for i := range 20 {
		begun := time.Now()
		run, err := Start(ctx, c, oneStep, i)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := run.Result(ctx); err != nil || got != link(fmt.Sprint(i), "one") {
			t.Fatalf("run %d: %q, %v", i, got, err)
		}
		if i == 19 {
			t.Logf("from Start to Result: %v", time.Since(begun).Round(time.Microsecond))
		}
	}
	logged.wantLine(t, "LISTEN unavailable, polling")
}
