//go:build unix

package kagzi

import (
	"context"
	"errors"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/kagzi/kagzi/internal/dbtest"
)

const eventsOfWorkers = `SELECT string_agg(event, ' ' ORDER BY occurred_at) FROM kagzi.worker_events`

// TestDrainFinishesWhatIsUnderWay shows that a worker whose context ends claims no more and waits for its runs.
func TestDrainFinishesWhatIsUnderWay(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	c := newTestClient(t, db.Pool)
	g, runs, stop := gated(t, c, WorkerConfig{PollInterval: 10 * time.Millisecond}, 3)
	stopped := stopping(stop)
	waitFor(t, "the worker drains", func() bool {
		return queryOne[string](t, db.Pool, `SELECT status FROM kagzi.workers`) == "DRAINING"
	})
	late := startRuns(t, c, g.wf, 1)[0]
	select {
	case <-stopped:
		t.Error("Run returned with runs under way")
	default:
	}
	close(g.open)
	receive(t, stopped)
	checkResults(t, runs, func(int) string { return "opened" })
	if info, err := late.Info(t.Context()); err != nil || info.Status != StatusPending || !info.StartedAt.IsZero() {
		t.Errorf("a run that came during the drain is %s, %v", info.Status, err)
	}
	if len(g.cause) > 0 {
		t.Errorf("a step's context ended: %v", <-g.cause)
	}
	if got := queryOne[string](t, db.Pool, eventsOfWorkers); got != "STARTED DRAINING STOPPED" {
		t.Errorf("the registry's log says %s", got)
	}
	if n := queryOne[int](t, db.Pool, `SELECT count(*) FROM kagzi.workers WHERE status = 'OFFLINE' AND stopped_at IS NOT NULL`); n != 1 {
		t.Errorf("%d workers are OFFLINE, want 1", n)
	}
}

// TestDrainGivesBackTheRest shows that what does not end within the drain timeout is given back with no attempt used,
// and executed elsewhere at once, though the other worker polls once an hour.
func TestDrainGivesBackTheRest(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	c, logged := loggedClient(t, db.Pool)
	g, runs, stop := gated(t, c, WorkerConfig{DrainTimeout: 50 * time.Millisecond}, 3)
	id := "worker=" + string(only(t, c, WorkerFilter{}).ID)

	// The other worker has another client, so that only the database can tell it.
	other := newTestClient(t, openPool(t, db.DSN, 5))
	h := newGate()
	w := newTestWorker(t, other, WorkerConfig{PollInterval: time.Hour})
	h.handle(w)
	startLocal(t, w)
	waitListening(t, db.Pool, 2)
	// The hints of connecting are over once it has executed something.
	if _, err := Start(t.Context(), other, h.wf, 99); err != nil {
		t.Fatal(err)
	}
	receive(t, h.begun)

	begun := time.Now()
	stop()
	t.Logf("the drain took %v", time.Since(begun).Round(time.Millisecond))
	logged.wantLine(t, "drain timeout: giving back what is under way", id, "runs=3")
	for range runs {
		if cause := receive(t, g.cause); !errors.Is(cause, ErrShutdown) {
			t.Errorf("the step's cause is %v, want ErrShutdown", cause)
		}
	}
	for range runs {
		receive(t, h.begun)
	}
	t.Logf("executing elsewhere %v after the end of the context", time.Since(begun).Round(time.Millisecond))
	for _, r := range runs {
		if info, err := r.Info(t.Context()); err != nil || info.Attempts != 0 || info.Recoveries != 0 {
			t.Errorf("%d attempts and %d recoveries used, %v", info.Attempts, info.Recoveries, err)
		}
	}
	close(h.open)
	checkResults(t, runs, func(int) string { return "opened" })
	for _, r := range runs {
		steps, err := c.Steps(t.Context(), r.ID())
		if err != nil || len(steps) != 1 || steps[0].Attempt != 1 {
			t.Errorf("steps %+v, %v; want one attempt", steps, err)
		}
	}
}

// TestDrainLeavesTimersToOthers shows that a run which a worker suspended before it stopped is resumed at its time by
// another, which knew nothing of it and polls once an hour.
func TestDrainLeavesTimersToOthers(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	c, other := newTestClient(t, db.Pool), newTestClient(t, openPool(t, db.DSN, 5))
	dir := t.TempDir()
	begun, open := make(chan struct{}), make(chan struct{})
	wf := Define[int, int]("nap-after-step")
	handle := func(w *Worker) *Worker {
		Handle(w, wf, func(ctx Context, n int) (int, error) {
			if err := Do(ctx, "wait", func(context.Context) error { close(begun); <-open; return nil }); err != nil {
				return 0, err
			}
			return n, Sleep(ctx, "nap", 2*time.Second)
		})
		return w
	}
	cfg := WorkerConfig{PollInterval: time.Hour}
	run := startRuns(t, c, wf, 1)[0]
	stop := startLocal(t, handle(localWorker(t, c, filepath.Join(dir, "a"), cfg)))
	receive(t, begun)
	startLocal(t, handle(localWorker(t, other, filepath.Join(dir, "b"), cfg)))
	waitListening(t, db.Pool, 2)
	checkResults(t, startRuns(t, other, nothing, 1), func(int) string { return "0" }) // it has looked, and rests
	close(open)
	waitFor(t, "the run sleeps", func() bool {
		info, err := run.Info(t.Context())
		return err == nil && info.Status == StatusSleeping
	})
	stop()
	if _, err := run.Result(testContext(t)); err != nil {
		t.Error(err)
	}
}

// TestDrainRecordsALateSuccess shows that the result of a step which succeeds although its worker shuts down is kept.
func TestDrainRecordsALateSuccess(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	c := newTestClient(t, db.Pool)
	wf := Define[int, string]("late")
	w := newTestWorker(t, c, WorkerConfig{DrainTimeout: 10 * time.Millisecond})
	begun := make(chan struct{})
	var after atomic.Int32
	handle := func(w *Worker) {
		Handle(w, wf, func(ctx Context, n int) (string, error) {
			got, err := Step(ctx, "finishes", func(ctx context.Context) (string, error) {
				close(begun) // a second execution would panic
				<-ctx.Done()
				return "kept", nil
			})
			if err != nil {
				return "", err
			}
			return got, Do(ctx, "next", func(context.Context) error { after.Add(1); return nil })
		})
	}
	handle(w)
	run := startRuns(t, c, wf, 1)[0]
	stop := startLocal(t, w)
	receive(t, begun)
	stop()
	if n := after.Load(); n != 0 {
		t.Error("the run went on after the end of the drain")
	}
	if info, err := run.Info(t.Context()); err != nil || info.Status != StatusPending {
		t.Errorf("the run is %s, %v", info.Status, err)
	}
	next := newTestWorker(t, c, WorkerConfig{})
	handle(next)
	startLocal(t, next)
	if got, err := run.Result(testContext(t)); err != nil || got != "kept" {
		t.Errorf("got %q, %v", got, err)
	}
}

// TestDrainDoesNotWaitForTheDeaf shows that a step which ignores its context does not keep Run from returning, nor
// its run from being executed elsewhere; what it returns in the end is refused.
func TestDrainDoesNotWaitForTheDeaf(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	c := newTestClient(t, db.Pool)
	g := newGate()
	g.deaf = true
	w := newTestWorker(t, c, WorkerConfig{DrainTimeout: 10 * time.Millisecond})
	g.handle(w)
	runs := startRuns(t, c, g.wf, 2)
	stop := startLocal(t, w)
	receive(t, g.begun)
	receive(t, g.begun)
	stop()
	h := newGate()
	close(h.open)
	next := newTestWorker(t, c, WorkerConfig{})
	h.handle(next)
	startLocal(t, next)
	checkResults(t, runs, func(int) string { return "opened" })
	close(g.open)
}

// TestRunLeavesNothing runs a worker twice, and looks each time for goroutines and connections left over. It is not
// parallel: it must know all goroutines.
func TestRunLeavesNothing(t *testing.T) {
	db := dbtest.Database(t)
	pool, err := pgxpool.New(t.Context(), db.DSN)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if err := pool.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	ignore := goleak.IgnoreCurrent()
	c := newTestClient(t, pool)
	w := localWorker(t, c, filepath.Join(t.TempDir(), "l"), WorkerConfig{})
	execSQL(t, db.Pool, createEffects)
	for range 2 {
		stop := startLocal(t, w)
		checkResults(t, startRuns(t, c, chained, 20), chainedResult)
		stop()
		if err := goleak.Find(ignore); err != nil {
			t.Errorf("goroutines left over: %v", err)
		}
		// A backend ends a moment after its client.
		waitFor(t, "only the pools' own connections are open", func() bool {
			open := queryOne[int](t, db.Pool, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend'`)
			return open <= int(pool.Stat().TotalConns()+db.Pool.Stat().TotalConns())
		})
	}
	if got := queryOne[string](t, db.Pool, eventsOfWorkers); got != "STARTED DRAINING STOPPED STARTED DRAINING STOPPED" {
		t.Errorf("the registry's log says %s", got)
	}
}

// TestDrainWhileOthersStart shows that Run returns although the process goes on starting runs.
func TestDrainWhileOthersStart(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	c := newTestClient(t, db.Pool)
	const starters = 16
	stop := startLocal(t, localWorker(t, c, filepath.Join(t.TempDir(), "l"), WorkerConfig{}))
	ctx, cancel := context.WithCancel(t.Context())
	begun := make(chan struct{}, 1)
	starting := make(chan error)
	for range starters {
		go func() {
			for ctx.Err() == nil {
				if _, err := Start(ctx, c, nothing, 1); err != nil && ctx.Err() == nil {
					starting <- err
					return
				}
				select {
				case begun <- struct{}{}:
				default:
				}
			}
			starting <- nil
		}()
	}
	receive(t, begun)
	before := time.Now()
	receive(t, stopping(stop))
	t.Logf("the drain took %v", time.Since(before).Round(time.Millisecond))
	cancel()
	for range starters {
		if err := receive(t, starting); err != nil {
			t.Error(err)
		}
	}
}

// TestSIGTERMDrainsAProcess shows it with a real one, as a deploy does it.
func TestSIGTERMDrainsAProcess(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	c := newTestClient(t, db.Pool)
	dir := t.TempDir()
	file := filepath.Join(dir, "l")
	p := startProcess(t, workerSpec{DSN: db.DSN, Ledger: file, Config: WorkerConfig{DrainTimeout: 100 * time.Millisecond}})
	run, err := Start(t.Context(), c, holding, filepath.Join(dir, "release"))
	if err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the step begins", func() bool { return countIn(t, file, "BEGIN") == 1 })
	p.stop(t)
	if n := countIn(t, file, "CAUSE", string(run.ID()), ErrShutdown.Error()); n != 1 {
		t.Errorf("the step was told %d times of the shutdown", n)
	}
	info, err := run.Info(t.Context())
	if err != nil || info.Status != StatusPending || info.Attempts != 0 || info.Recoveries != 0 || time.Until(info.AvailableAt) > 0 {
		t.Errorf("the run is %+v, %v; want it due, nothing used up", info, err)
	}
	if n := queryOne[int](t, db.Pool, `SELECT count(*) FROM kagzi.workers WHERE status <> 'OFFLINE'`); n != 0 {
		t.Errorf("%d workers are still registered as live", n)
	}
	// A backend ends a moment after its client.
	waitFor(t, "its connections end", func() bool {
		return queryOne[int](t, db.Pool, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend'`) == int(db.Pool.Stat().TotalConns())
	})
}

// TestRegistryAsksToDrain shows that a worker whose row says DRAINING stops by itself.
func TestRegistryAsksToDrain(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	c := newTestClient(t, db.Pool)
	w := localWorker(t, c, filepath.Join(t.TempDir(), "l"), quick)
	done := make(chan error, 1)
	go func() { done <- w.Run(t.Context()) }()
	checkResults(t, startRuns(t, c, nothing, 1), func(int) string { return "0" })
	execSQL(t, db.Pool, `UPDATE kagzi.workers SET status = 'DRAINING'`)
	if err := receive(t, done); err != nil {
		t.Error(err)
	}
}
