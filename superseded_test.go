//go:build unix

package kagzi

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/kagzi/kagzi/internal/batch"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/testhook"
	"github.com/kagzi/kagzi/store"
)

// TestWorkerThatClaimsItsOwnRunAgain ends the old execution: its step is told, and it holds no slot of the worker.
func TestWorkerThatClaimsItsOwnRunAgain(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	c := newTestClient(t, db.Pool)
	const slots = 2 // were they not freed, the worker would starve
	w := newTestWorker(t, c, WorkerConfig{
		// The write that shows the attempt in the table, and a heartbeat, would tell the step too.
		LeaseTimeout: visibleAfter + 300*time.Millisecond, FixedLease: true, Heartbeat: 10 * time.Second,
		MaxConcurrent: slots, PollInterval: 50 * time.Millisecond, DrainTimeout: 100 * time.Millisecond,
	})
	g := newGate()
	g.handle(w)
	runs := startRuns(t, c, g.wf, 1)
	startLocal(t, w)
	for range slots {
		receive(t, g.begun)
		if cause := receive(t, g.cause); !errors.Is(cause, ErrLeaseLost) {
			t.Errorf("the step's context ended with %v, want ErrLeaseLost", cause)
		}
	}
	close(g.open)
	checkResults(t, runs, func(int) string { return "opened" })
	checkResults(t, startRuns(t, c, g.wf, 2*slots), func(int) string { return "opened" })
}

// A heldSession is one whose executions' writes the test makes itself, when and in the order it wants.
type heldSession struct {
	*session
	t    *testing.T
	db   *dbtest.DB
	come chan *execution // those that have something to write
}

// newHeldSession registers a worker that has neither heart nor loops: the test calls their passes.
func newHeldSession(t *testing.T, db *dbtest.DB, w *Worker) *heldSession {
	t.Helper()
	cfg := w.session()
	cfg.Hooks = testhook.From(hookedContext(t.Context(), w))
	h := &heldSession{session: newSession(cfg), t: t, db: db, come: make(chan *execution, 100)}
	h.writer = batch.New(batch.Config[*execution]{Flush: func(es []*execution) {
		for _, e := range es {
			h.come <- e
		}
	}})
	if err := h.store.RegisterWorker(t.Context(), db.Pool, w.registration(h.workerID())); err != nil {
		t.Fatal(err)
	}
	return h
}

// enqueued waits until an execution has so many writes, and returns them.
func (h *heldSession) enqueued(e *execution, n int) (writes []*write) {
	h.t.Helper()
	waitFor(h.t, "the execution has something to write", func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		writes = slices.Clone(e.outbox.writes)
		return len(writes) >= n
	})
	return writes
}

// take claims what is due, though it be held, as one does whose lease has ended.
func (h *heldSession) take() {
	h.t.Helper()
	execSQL(h.t, h.db.Pool, `UPDATE kagzi.workflow_runs SET available_at = now()`)
	h.claim(h.t.Context(), 1)
}

// flushAll writes what comes, until the run has ended.
func (h *heldSession) flushAll() {
	waitFor(h.t, "the run's end is written", func() bool {
		select {
		case e := <-h.come:
			h.flush([]*execution{e})
		default:
		}
		return len(h.held()) == 0
	})
	h.writer.Wait()
	h.retries.Wait()
}

// TestCancelAndResumeAtOnce cancels and resumes a run in one transaction, and has its worker claim it again before it
// looks at what it executes: the step of the old execution is told all the same.
func TestCancelAndResumeAtOnce(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	db := dbtest.Database(t)
	c := newTestClient(t, db.Pool)
	w := newTestWorker(t, c, WorkerConfig{})
	g := newGate()
	g.handle(w)
	runs := startRuns(t, c, g.wf, 1)
	s := newHeldSession(t, db, w)
	s.take()
	receive(t, g.begun)
	tx := callersTx(t, db.Pool)
	id := runs[0].ID()
	if err := errors.Join(c.Cancel(ctx, id, InTx(tx)), c.Resume(ctx, id, InTx(tx)), tx.Commit(ctx)); err != nil {
		t.Fatal(err)
	}
	s.take()
	if cause := receive(t, g.cause); !errors.Is(cause, ErrLeaseLost) {
		t.Errorf("the step's context ended with %v, want ErrLeaseLost", cause)
	}
	receive(t, g.begun)
	close(g.open)
	s.flushAll()
	checkResults(t, runs, func(int) string { return "opened" })
}

// TestSupersededRecordDisplacesNone has two executions of one run, by one worker, record the same attempt of a step in
// one write, with the attempt's RUNNING row: the newer one's record must be there when its step returns.
func TestSupersededRecordDisplacesNone(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	db := dbtest.Database(t)
	c := newTestClient(t, db.Pool)
	wf := Define[int, string]("twice")
	w := newTestWorker(t, c, WorkerConfig{})
	begun, returns := make(chan chan string, 2), make(chan string, 1)
	Handle(w, wf, func(ctx Context, _ int) (string, error) {
		v, err := Step(ctx, "slow", func(context.Context) (string, error) {
			result := make(chan string)
			begun <- result
			return <-result, nil
		})
		if err != nil {
			return "", err
		}
		returns <- v
		return v, nil
	})
	run, err := Start(ctx, c, wf, 1)
	if err != nil {
		t.Fatal(err)
	}
	s := newHeldSession(t, db, w)
	s.take()
	old := receive(t, begun)
	s.take()
	holder := receive(t, begun)
	both := []*execution{receive(t, s.come), receive(t, s.come)}
	for _, e := range both {
		if r := s.enqueued(e, 1)[0].record(); r.Status != store.Running {
			t.Fatalf("INVALID: %+v is not an attempt under way", r)
		}
	}
	holder <- "holder"
	s.enqueued(both[1], 2)
	old <- "superseded"
	s.enqueued(both[0], 2)
	s.flush(both)
	if v := receive(t, returns); v != "holder" {
		t.Errorf("the step returned %q", v)
	}
	got := queryOne[string](t, db.Pool, `SELECT coalesce(string_agg(status || ' ' || convert_from(output, 'UTF8'), ', '), 'nothing') FROM kagzi.step_runs`)
	if want := `COMPLETED "holder"`; got != want {
		t.Errorf("the workflow went on while the table has %s of the step, want %s", got, want)
	}
	s.flushAll()
	if v, err := run.Result(ctx); v != "holder" || err != nil {
		t.Errorf("got %q, %v", v, err)
	}
}

// TestSupersededEndIsNotTheResult has two executions of one run, by one worker, write its end at once: who waits for
// the result in this process gets what the table has.
func TestSupersededEndIsNotTheResult(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	db := dbtest.Database(t)
	c := newTestClient(t, db.Pool)
	wf := Define[int, string]("twice")
	w := newTestWorker(t, c, WorkerConfig{})
	ends := make(chan string, 2)
	Handle(w, wf, func(Context, int) (string, error) { return <-ends, nil })
	run, err := Start(ctx, c, wf, 1)
	if err != nil {
		t.Fatal(err)
	}
	last := c.hints.LastWaiter()
	got := make(chan string, 1)
	go func() {
		v, err := run.Result(ctx)
		if err != nil {
			t.Error(err)
		}
		got <- v
	}()
	waitFor(t, "somebody waits", func() bool { return c.hints.LastWaiter() > last })
	s := newHeldSession(t, db, w)
	s.take()
	ends <- "superseded"
	both := []*execution{receive(t, s.come)}
	s.take()
	ends <- "holder"
	both = append(both, receive(t, s.come))
	s.flush(both)
	if v := receive(t, got); v != "holder" {
		t.Errorf("Result returned %q", v)
	}
	info, err := run.Info(ctx)
	if err != nil || string(info.Output) != `"holder"` {
		t.Errorf("the table has %s, %v", info.Output, err)
	}
	s.flushAll()
}
