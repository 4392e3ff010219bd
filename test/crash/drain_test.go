//go:build unix

package crash_test

import (
	"context"
	"errors"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
)

const eventsOfWorkers = `SELECT string_agg(event, ' ' ORDER BY occurred_at) FROM kagzi.worker_events`

// A worker whose context ends claims no more runs, and waits for those that it executes.
func TestDrainFinishesRunningRuns(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	c := kit.NewClient(t, db.Pool)
	g, runs, stop := kit.Gated(t, c, kagzi.WorkerConfig{PollInterval: 10 * time.Millisecond}, 3)
	stopped := kit.Stopping(stop)
	await.True(t, "the worker drains", func() bool {
		return dbtest.QueryOne[string](t, db.Pool, `SELECT status FROM kagzi.workers`) == "DRAINING"
	})
	late := kit.StartRuns(t, c, g.Workflow, 1)[0]
	select {
	case <-stopped:
		t.Error("Run returned with runs under way")
	default:
	}
	close(g.Open)
	await.Receive(t, stopped)
	kit.CheckResults(t, runs, func(int) string { return "opened" })
	if info, err := late.Info(t.Context()); err != nil || info.Status != kagzi.StatusPending ||
		!info.StartedAt.IsZero() {
		t.Errorf("a run that came during the drain is %s, %v", info.Status, err)
	}
	if len(g.Cause) > 0 {
		t.Errorf("a step's context ended: %v", <-g.Cause)
	}
	if got := dbtest.QueryOne[string](t, db.Pool, eventsOfWorkers); got != "STARTED DRAINING STOPPED" {
		t.Errorf("the registry's log says %s", got)
	}
	if n := dbtest.QueryOne[int](t, db.Pool, `SELECT count(*) FROM kagzi.workers WHERE status = 'OFFLINE'
		AND stopped_at IS NOT NULL`); n != 1 {
		t.Errorf("%d workers are OFFLINE, want 1", n)
	}
}

// Runs that do not end within the drain timeout are given back without counting an attempt, and executed elsewhere at
// once, although the other worker polls once an hour.
func TestDrainGivesBackTheRest(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	c, logged := kit.LoggedClient(t, db.Pool)
	g, runs, stop := kit.Gated(t, c, kagzi.WorkerConfig{DrainTimeout: 50 * time.Millisecond}, 3)
	id := "worker=" + string(kit.Only(t, c, admin.WorkerFilter{}).ID)

	// The other worker has another client, so that only the database can notify it.
	other := kit.NewClient(t, dbtest.OpenPool(t, db.DSN, dbtest.Conns(5)))
	h := kit.NewGate()
	w := kit.NewWorker(t, other, kagzi.WorkerConfig{PollInterval: time.Hour})
	h.Handle(w)
	kit.StartLocal(t, w)
	kit.WaitListening(t, db.Pool, 2)
	// The hints of connecting are over once it has executed something.
	if _, err := kagzi.Start(t.Context(), other, h.Workflow, 99); err != nil {
		t.Fatal(err)
	}
	await.Receive(t, h.Begun)

	begun := time.Now()
	stop()
	t.Logf("the drain took %v", time.Since(begun).Round(time.Millisecond))
	logged.WantLine(t, "drain timeout: giving back what is under way", id, "runs=3")
	for range runs {
		if cause := await.Receive(t, g.Cause); !errors.Is(cause, kagzi.ErrShutdown) {
			t.Errorf("the step's cause is %v, want ErrShutdown", cause)
		}
	}
	for range runs {
		await.Receive(t, h.Begun)
	}
	t.Logf("executing elsewhere %v after the end of the context", time.Since(begun).Round(time.Millisecond))
	for _, r := range runs {
		if info, err := r.Info(t.Context()); err != nil || info.Attempts != 0 || info.Recoveries != 0 {
			t.Errorf("%d attempts and %d recoveries used, %v", info.Attempts, info.Recoveries, err)
		}
	}
	close(h.Open)
	kit.CheckResults(t, runs, func(int) string { return "opened" })
	for _, r := range runs {
		steps, err := c.Steps(t.Context(), r.ID())
		if err != nil || len(steps) != 1 || steps[0].Attempt != 1 {
			t.Errorf("steps %+v, %v; want one attempt", steps, err)
		}
	}
}

// A worker suspends a run and stops. At the end of the sleep, another worker, which polls once an hour, executes the
// run.
func TestDrainLeavesTimersToOthers(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	c, other := kit.NewClient(t, db.Pool), kit.NewClient(t, dbtest.OpenPool(t, db.DSN, dbtest.Conns(5)))
	dir := t.TempDir()
	begun, open := make(chan struct{}), make(chan struct{})
	wf := kagzi.Define[int, int]("nap-after-step")
	handle := func(w *kagzi.Worker) *kagzi.Worker {
		kagzi.Handle(w, wf, func(ctx kagzi.Context, n int) (int, error) {
			if err := kagzi.Do(ctx, "wait", func(context.Context) error {
				close(begun)
				<-open
				return nil
			}); err != nil {
				return 0, err
			}
			return n, kagzi.Sleep(ctx, "nap", 2*time.Second)
		})
		return w
	}
	cfg := kagzi.WorkerConfig{PollInterval: time.Hour}
	run := kit.StartRuns(t, c, wf, 1)[0]
	stop := kit.StartLocal(t, handle(localWorker(t, c, filepath.Join(dir, "a"), cfg)))
	await.Receive(t, begun)
	kit.StartLocal(t, handle(localWorker(t, other, filepath.Join(dir, "b"), cfg)))
	kit.WaitListening(t, db.Pool, 2)
	// it has looked, and rests
	kit.CheckResults(t, kit.StartRuns(t, other, kit.Nothing, 1), func(int) string { return "0" })
	close(open)
	await.True(t, "the run sleeps", func() bool {
		info, err := run.Info(t.Context())
		return err == nil && info.Status == kagzi.StatusSleeping
	})
	stop()
	if _, err := run.Result(kit.Context(t)); err != nil {
		t.Error(err)
	}
}

// The result of a step that succeeds during the shutdown of its worker is recorded.
func TestDrainRecordsALateSuccess(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	c := kit.NewClient(t, db.Pool)
	wf := kagzi.Define[int, string]("late")
	w := kit.NewWorker(t, c, kagzi.WorkerConfig{DrainTimeout: 10 * time.Millisecond})
	begun := make(chan struct{})
	var after atomic.Int32
	handle := func(w *kagzi.Worker) {
		kagzi.Handle(w, wf, func(ctx kagzi.Context, n int) (string, error) {
			got, err := kagzi.Step(ctx, "finishes", func(ctx context.Context) (string, error) {
				close(begun) // a second execution would panic
				<-ctx.Done()
				return "kept", nil
			})
			if err != nil {
				return "", err
			}
			return got, kagzi.Do(ctx, "next", func(context.Context) error { after.Add(1); return nil })
		})
	}
	handle(w)
	run := kit.StartRuns(t, c, wf, 1)[0]
	stop := kit.StartLocal(t, w)
	await.Receive(t, begun)
	stop()
	if n := after.Load(); n != 0 {
		t.Error("the run went on after the end of the drain")
	}
	if info, err := run.Info(t.Context()); err != nil || info.Status != kagzi.StatusPending {
		t.Errorf("the run is %s, %v", info.Status, err)
	}
	next := kit.NewWorker(t, c, kagzi.WorkerConfig{})
	handle(next)
	kit.StartLocal(t, next)
	if got, err := run.Result(kit.Context(t)); err != nil || got != "kept" {
		t.Errorf("got %q, %v", got, err)
	}
}

// A step that ignores its context neither prevents Run from returning, nor its run from being executed elsewhere. Its
// late result is refused.
func TestDrainDoesNotWaitForAStepThatIgnoresItsContext(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	c := kit.NewClient(t, db.Pool)
	g := kit.NewGate()
	g.IgnoresContext = true
	w := kit.NewWorker(t, c, kagzi.WorkerConfig{DrainTimeout: 10 * time.Millisecond})
	g.Handle(w)
	runs := kit.StartRuns(t, c, g.Workflow, 2)
	stop := kit.StartLocal(t, w)
	await.Receive(t, g.Begun)
	await.Receive(t, g.Begun)
	stop()
	h := kit.NewGate()
	close(h.Open)
	next := kit.NewWorker(t, c, kagzi.WorkerConfig{})
	h.Handle(next)
	kit.StartLocal(t, next)
	kit.CheckResults(t, runs, func(int) string { return "opened" })
	close(g.Open)
}

// A worker runs twice, and leaves no goroutines or connections behind. The test is not parallel, because it must know
// all goroutines.
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
	dbtest.Exec(t, db.Pool, createEffects) // opens the owner's pool, if it is another
	ignore := goleak.IgnoreCurrent()
	// A connection of the pool whose last write was slow is read by a goroutine of its own until its next use.
	ofPool := goleak.IgnoreAnyFunction("github.com/jackc/pgx/v5/pgconn/internal/bgreader.(*BGReader).bgRead")
	c := kit.NewClient(t, pool)
	w := localWorker(t, c, filepath.Join(t.TempDir(), "l"), kagzi.WorkerConfig{})
	for range 2 {
		stop := kit.StartLocal(t, w)
		kit.CheckResults(t, kit.StartRuns(t, c, chained, 20), chainedResult)
		stop()
		if err := goleak.Find(ignore, ofPool); err != nil {
			t.Errorf("goroutines left over: %v", err)
		}
		// A backend ends a moment after its client.
		await.True(t, "only the pools' own connections are open", func() bool {
			open := dbtest.QueryOne[int](t, db.Pool, `SELECT count(*) FROM pg_stat_activity
				WHERE datname = current_database() AND backend_type = 'client backend'`)
			return open <= int(pool.Stat().TotalConns())+testConns(t, db)
		})
	}
	if got := dbtest.QueryOne[string](t, db.Pool, eventsOfWorkers); got != "STARTED DRAINING STOPPED STARTED "+
		"DRAINING STOPPED" {
		t.Errorf("the registry's log says %s", got)
	}
}

// Run returns although the process keeps starting runs.
func TestDrainWhileOthersStart(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	c := kit.NewClient(t, db.Pool)
	const starters = 16
	stop := kit.StartLocal(t, localWorker(t, c, filepath.Join(t.TempDir(), "l"), kagzi.WorkerConfig{}))
	ctx, cancel := context.WithCancel(t.Context())
	begun := make(chan struct{}, 1)
	starting := make(chan error)
	for range starters {
		go func() {
			for ctx.Err() == nil {
				if _, err := kagzi.Start(ctx, c, kit.Nothing, 1); err != nil && ctx.Err() == nil {
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
	await.Receive(t, begun)
	before := time.Now()
	await.Receive(t, kit.Stopping(stop))
	t.Logf("the drain took %v", time.Since(before).Round(time.Millisecond))
	cancel()
	for range starters {
		if err := await.Receive(t, starting); err != nil {
			t.Error(err)
		}
	}
}

// SIGTERM drains a worker process, as in a deploy.
func TestSIGTERMDrainsAProcess(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	c := kit.NewClient(t, db.Pool)
	dir := t.TempDir()
	file := filepath.Join(dir, "l")
	p := startProcess(t,
		workerSpec{DSN: db.DSN, Ledger: file, Config: kagzi.WorkerConfig{DrainTimeout: 100 * time.Millisecond}})
	run, err := kagzi.Start(t.Context(), c, holding, filepath.Join(dir, "release"))
	if err != nil {
		t.Fatal(err)
	}
	await.True(t, "the step begins", func() bool { return countIn(t, file, "BEGIN") == 1 })
	p.stop(t)
	if n := countIn(t, file, "CAUSE", string(run.ID()), kagzi.ErrShutdown.Error()); n != 1 {
		t.Errorf("the step was told %d times of the shutdown", n)
	}
	info, err := run.Info(t.Context())
	if err != nil || info.Status != kagzi.StatusPending || info.Attempts != 0 || info.Recoveries != 0 ||
		time.Until(info.AvailableAt) > 0 {
		t.Errorf("the run is %+v, %v; want it due, nothing used up", info, err)
	}
	if n := dbtest.QueryOne[int](t, db.Pool, `SELECT count(*) FROM kagzi.workers WHERE status <> 'OFFLINE'`); n != 0 {
		t.Errorf("%d workers are still registered as live", n)
	}
	// A backend ends a moment after its client.
	await.True(t, "its connections end", func() bool {
		return dbtest.QueryOne[int](t, db.Pool, `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND backend_type = 'client backend'`) == testConns(t, db)
	})
}

// A worker whose row has the status DRAINING drains by itself.
func TestRegistryAsksToDrain(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	c := kit.NewClient(t, db.Pool)
	w := localWorker(t, c, filepath.Join(t.TempDir(), "l"), kit.Quick)
	done := make(chan error, 1)
	go func() { done <- w.Run(t.Context()) }()
	kit.CheckResults(t, kit.StartRuns(t, c, kit.Nothing, 1), func(int) string { return "0" })
	dbtest.Exec(t, db.Pool, `UPDATE kagzi.workers SET status = 'DRAINING'`)
	if err := await.Receive(t, done); err != nil {
		t.Error(err)
	}
}
