//go:build unix

package crash_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/kind"
)

// TestTransactionPooler shows that everything works behind a pooler that gives a client another connection for each
// transaction: prepared statements and LISTEN do not exist there. Only migrations need the server itself.
func TestTransactionPooler(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*await.Patience)
	defer cancel()
	db := dbtest.Database(t)
	dbtest.Audit(t, db.Pool)
	dbtest.Exec(t, db.Pool, createEffects)
	dsn := dbtest.Pooler(t, db)
	c := kit.NewClient(t, dbtest.OpenPool(t, dsn, dbtest.Conns(10)))
	others := dbtest.OpenPool(t, dsn, dbtest.Conns(10))
	other := kit.NewClient(t, others)
	dir := t.TempDir()
	cfg := kagzi.WorkerConfig{PollInterval: 200 * time.Millisecond, Heartbeat: 300 * time.Millisecond}
	g := kit.NewGate()
	w := localWorker(t, c, filepath.Join(dir, "l"), cfg)
	g.Handle(w)
	stop := kit.StartLocal(t, w)
	begun := time.Now()
	kit.CheckResults(t, kit.StartRuns(t, other, chained, 50), chainedResult)
	t.Logf("50 runs of 7 steps took %v", time.Since(begun).Round(time.Millisecond))
	checkOnce(t, db, filepath.Join(dir, "l"), 50)

	t.Run("StartInTx", func(t *testing.T) {
		tx, err := others.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		run, err := kagzi.Start(ctx, other, kit.Nothing, 5, kagzi.InTx(tx), kagzi.ID("five"))
		if err != nil {
			t.Fatal(err)
		}
		kit.CommitTx(t, tx)
		if got, err := run.Result(ctx); err != nil || got != "5" {
			t.Errorf("got %q, %v", got, err)
		}
	})
	t.Run("ListAndSteps", func(t *testing.T) {
		infos, err := other.List(ctx, kagzi.RunFilter{Workflow: "chained"})
		if err != nil || len(infos) != 50 {
			t.Fatalf("%d runs, %v; want 50", len(infos), err)
		}
		if steps, err := other.Steps(ctx, infos[0].ID); err != nil || len(steps) != 12 {
			t.Errorf("%d attempts of steps, %v; want 12", len(steps), err)
		}
	})
	t.Run("Timers", func(t *testing.T) {
		run, err := kagzi.Start(ctx, other, napping, 400*time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := run.Result(ctx); err != nil || got != "rested" {
			t.Errorf("got %q, %v", got, err)
		}
	})
	t.Run("CancelAndResume", func(t *testing.T) {
		run := kit.StartRuns(t, other, g.Workflow, 1)[0]
		await.Receive(t, g.Begun)
		if err := run.Cancel(ctx); err != nil {
			t.Fatal(err)
		}
		var failed *kagzi.RunError
		if _, err := run.Result(ctx); !errors.As(err, &failed) || failed.Status != kagzi.StatusCancelled {
			t.Errorf("got %v, want a cancelled run", err)
		}
		// No notification tells the worker, but its heartbeat does, or its next write, which is refused.
		if cause := await.Receive(t, g.Cause); !errors.Is(cause, kind.Cancelled) &&
			!errors.Is(cause, kagzi.ErrLeaseLost) {
			t.Errorf("the step's cause is %v", cause)
		}
		if err := admin.New(other).Runs.Resume(ctx, run.ID()); err != nil {
			t.Fatal(err)
		}
		await.Receive(t, g.Begun)
		close(g.Open)
		if got, err := run.Result(ctx); err != nil || got != "opened" {
			t.Errorf("got %q, %v", got, err)
		}
	})
	t.Run("Crash", func(t *testing.T) {
		stop()
		await.True(t, "the pooler serves", func() bool { return others.Ping(ctx) == nil })
		release := filepath.Join(dir, "release")
		victim := startProcess(t, workerSpec{DSN: dsn, Ledger: filepath.Join(dir, "victim"), Config: kit.Quick})
		run, err := kagzi.Start(ctx, other, holding, release)
		if err != nil {
			t.Fatal(err)
		}
		await.True(t, "the step begins", func() bool { return countIn(t, filepath.Join(dir, "victim"), "BEGIN") == 1 })
		if err := victim.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		victim.killed(t)
		kit.Touch(t, release)
		rescuer := startProcess(t, workerSpec{DSN: dsn, Ledger: filepath.Join(dir, "rescuer"), Config: kit.Quick})
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
	c, logged := kit.LoggedClient(t, dbtest.OpenPool(t, dbtest.Pooler(t, db), dbtest.Conns(10)))
	kit.StartLocal(t, localWorker(t, c, filepath.Join(t.TempDir(), "l"), kagzi.WorkerConfig{PollInterval: time.Hour}))
	ctx := kit.Context(t)
	for i := range 20 {
		begun := time.Now()
		run, err := kagzi.Start(ctx, c, oneStep, i)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := run.Result(ctx); err != nil || got != kit.Link(fmt.Sprint(i), "one") {
			t.Fatalf("run %d: %q, %v", i, got, err)
		}
		if i == 19 {
			t.Logf("from Start to Result: %v", time.Since(begun).Round(time.Microsecond))
		}
	}
	logged.WantLine(t, "LISTEN unavailable, polling")
}
