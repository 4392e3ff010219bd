package worker_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/worker"
	"github.com/kagzi/kagzi/store"
)

// TestWorkerThatClaimsItsOwnRunAgain shows that a second claim of a run stops its old execution: the step's context
// ends, and the slot is free.
func TestWorkerThatClaimsItsOwnRunAgain(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	c := kit.NewClient(t, db.Pool)
	const slots = 2 // were they not freed, the worker would starve
	w := kit.NewWorker(t, c, kagzi.WorkerConfig{
		// The write that shows the attempt in the table, and a heartbeat, would end the step's context, too.
		LeaseTimeout: 1300 * time.Millisecond, FixedLease: true, Heartbeat: 10 * time.Second,
		MaxConcurrent: slots, PollInterval: 50 * time.Millisecond, DrainTimeout: 100 * time.Millisecond,
	})
	g := kit.NewGate()
	g.Handle(w)
	runs := kit.StartRuns(t, c, g.Workflow, 1)
	kit.StartLocal(t, w)
	for range slots {
		await.Receive(t, g.Begun)
		if cause := await.Receive(t, g.Cause); !errors.Is(cause, kagzi.ErrLeaseLost) {
			t.Errorf("the step's context ended with %v, want ErrLeaseLost", cause)
		}
	}
	close(g.Open)
	kit.CheckResults(t, runs, func(int) string { return "opened" })
	kit.CheckResults(t, kit.StartRuns(t, c, g.Workflow, 2*slots), func(int) string { return "opened" })
}

// newHeldSession returns a session of w. The test calls its passes.
func newHeldSession(t *testing.T, w *kagzi.Worker) *worker.HeldSession {
	t.Helper()
	s, err := worker.NewHeldSession(t.Context(), configOf(t, w))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// waitWrites waits until an execution has at least n unsettled writes.
func waitWrites(t *testing.T, e worker.HeldExecution, n int) {
	t.Helper()
	await.True(t, "the execution has something to write", func() bool { return e.Writes() >= n })
}

// claimDue makes all runs due and claims. A run that is held is claimed, too, as if its lease had ended.
func claimDue(t *testing.T, db *dbtest.DB, s *worker.HeldSession) {
	t.Helper()
	dbtest.Exec(t, db.Pool, `UPDATE kagzi.workflow_runs SET available_at = now()`)
	s.Claim(t.Context(), 1)
}

// flushAll flushes executions until none is left.
func flushAll(t *testing.T, s *worker.HeldSession) {
	t.Helper()
	await.True(t, "the run's end is written", func() bool {
		select {
		case e := <-s.Come:
			s.Flush(e)
		default:
		}
		return !s.Executes()
	})
	s.WaitForBatches()
}

// TestCancelAndResumeAtOnce cancels and resumes a run in one transaction, and has its worker claim it again before a
// refresh: the context of the old execution's step ends all the same.
func TestCancelAndResumeAtOnce(t *testing.T) {
	t.Parallel()
	ctx := kit.Context(t)
	db := dbtest.Database(t)
	c := kit.NewClient(t, db.Pool)
	w := kit.NewWorker(t, c, kagzi.WorkerConfig{})
	g := kit.NewGate()
	g.Handle(w)
	runs := kit.StartRuns(t, c, g.Workflow, 1)
	s := newHeldSession(t, w)
	claimDue(t, db, s)
	await.Receive(t, g.Begun)
	tx := dbtest.Begin(t, db.Pool)
	id := runs[0].ID()
	if err := errors.Join(c.Cancel(ctx, id, kagzi.InTx(tx)), admin.New(c).Runs.Resume(ctx, id, kagzi.InTx(tx)),
		tx.Commit(ctx)); err != nil {
		t.Fatal(err)
	}
	claimDue(t, db, s)
	if cause := await.Receive(t, g.Cause); !errors.Is(cause, kagzi.ErrLeaseLost) {
		t.Errorf("the step's context ended with %v, want ErrLeaseLost", cause)
	}
	await.Receive(t, g.Begun)
	close(g.Open)
	flushAll(t, s)
	kit.CheckResults(t, runs, func(int) string { return "opened" })
}

// TestSupersededRecordDisplacesNone has two executions of one run, by one worker, record the same attempt of a step in
// one flush, with the attempt's RUNNING row: the newer execution's record must be in the table when its next step
// begins.
func TestSupersededRecordDisplacesNone(t *testing.T) {
	t.Parallel()
	ctx := kit.Context(t)
	db := dbtest.Database(t)
	c := kit.NewClient(t, db.Pool)
	wf := kagzi.Define[int, string]("twice")
	w := kit.NewWorker(t, c, kagzi.WorkerConfig{})
	begun, returns := make(chan chan string, 2), make(chan string, 1)
	kagzi.Handle(w, wf, func(ctx kagzi.Context, _ int) (string, error) {
		v, err := kagzi.Step(ctx, "slow", func(context.Context) (string, error) {
			result := make(chan string)
			begun <- result
			return <-result, nil
		})
		if err != nil {
			return "", err
		}
		return v, kagzi.Do(ctx, "next", func(context.Context) error { returns <- v; return nil })
	})
	run, err := kagzi.Start(ctx, c, wf, 1)
	if err != nil {
		t.Fatal(err)
	}
	s := newHeldSession(t, w)
	var both []worker.HeldExecution
	for _, result := range []string{"superseded", "holder"} {
		claimDue(t, db, s)
		step := await.Receive(t, begun)
		e := await.Receive(t, s.Come)
		waitWrites(t, e, 1)
		if status := e.BeginsWith(); status != store.Running {
			t.Fatalf("INVALID: an attempt that is %s is not under way", status)
		}
		step <- result
		waitWrites(t, e, 2)
		both = append(both, e)
	}
	s.Flush(both...)
	if v := await.Receive(t, returns); v != "holder" {
		t.Errorf("the next step begins after %q", v)
	}
	got := dbtest.QueryOne[string](t, db.Pool,
		`SELECT coalesce(string_agg(status || ' ' || convert_from(output, 'UTF8'), ', '), 'nothing')
			FROM kagzi.step_runs WHERE step_id = 'slow'`)
	if want := `COMPLETED "holder"`; got != want {
		t.Errorf("the workflow went on while the table has %s of the step, want %s", got, want)
	}
	flushAll(t, s)
	if v, err := run.Result(ctx); v != "holder" || err != nil {
		t.Errorf("got %q, %v", v, err)
	}
}

// TestSupersededEndIsNotTheResult has two executions of one run, by one worker, write its end at once: waiters in this
// process get the result that is in the table.
func TestSupersededEndIsNotTheResult(t *testing.T) {
	t.Parallel()
	ctx := kit.Context(t)
	db := dbtest.Database(t)
	c := kit.NewClient(t, db.Pool)
	wf := kagzi.Define[int, string]("twice")
	w := kit.NewWorker(t, c, kagzi.WorkerConfig{})
	ends := make(chan string, 2)
	kagzi.Handle(w, wf, func(kagzi.Context, int) (string, error) { return <-ends, nil })
	run, err := kagzi.Start(ctx, c, wf, 1)
	if err != nil {
		t.Fatal(err)
	}
	hints := configOf(t, w).Hints
	last := hints.LastWaiter()
	got := make(chan string, 1)
	go func() {
		v, err := run.Result(ctx)
		if err != nil {
			t.Error(err)
		}
		got <- v
	}()
	await.True(t, "somebody waits", func() bool { return hints.LastWaiter() > last })
	s := newHeldSession(t, w)
	claimDue(t, db, s)
	ends <- "superseded"
	both := []worker.HeldExecution{await.Receive(t, s.Come)}
	claimDue(t, db, s)
	ends <- "holder"
	both = append(both, await.Receive(t, s.Come))
	s.Flush(both...)
	if v := await.Receive(t, got); v != "holder" {
		t.Errorf("Result returned %q", v)
	}
	info, err := run.Info(ctx)
	if err != nil || string(info.Output) != `"holder"` {
		t.Errorf("the table has %s, %v", info.Output, err)
	}
	flushAll(t, s)
}
