//go:build unix

package crash_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/localpg"
	"github.com/kagzi/kagzi/internal/outage"
	"github.com/kagzi/kagzi/internal/pgproxy"
	"github.com/kagzi/kagzi/kind"
)

// TestDatabaseRestarts crashes the server twice while 200 runs are under way in two workers.
func TestDatabaseRestarts(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*await.Patience)
	defer cancel()
	server, pool := kit.OwnServer(ctx, t, 10)
	dbtest.Exec(t, pool, createEffects)
	dbtest.Audit(t, pool)
	c := kit.NewClient(t, pool)
	const n = 200
	runs := kit.StartRuns(t, c, chained, n)
	file := filepath.Join(t.TempDir(), "l")
	kit.StartLocal(t, localWorker(t, c, file, kagzi.WorkerConfig{MaxConcurrent: 10}))
	p := startProcess(t, workerSpec{
		DSN: server.DSN(), Ledger: filepath.Join(t.TempDir(), "p"),
		Config: kagzi.WorkerConfig{MaxConcurrent: 10},
	})
	for _, done := range []int{n / 10, n / 2} {
		await.True(t, "runs complete", func() bool {
			var over int
			err := pool.QueryRow(ctx, `SELECT count(*) FROM kagzi.workflow_runs WHERE status = 'COMPLETED'`).Scan(&over)
			return err == nil && over >= done
		})
		if err := server.Restart(ctx, localpg.Immediate); err != nil {
			t.Fatal(err)
		}
	}
	back := time.Now()
	kit.CheckResults(t, runs, chainedResult)
	t.Logf("all complete %v after the server's second return", time.Since(back).Round(time.Millisecond))
	p.stop(t)
	rows, distinct := 0, 0
	if err := pool.QueryRow(ctx, `SELECT count(*), count(DISTINCT run_id) FROM effects`).Scan(&rows,
		&distinct); err != nil || rows != n || distinct != n {
		t.Errorf("%d effects of %d runs, %v; want one of each of %d", rows, distinct, err, n)
	}
	dbtest.CheckInvariants(t, pool)
}

// TestConnectionsAreTerminated ends every connection again and again while runs are under way.
func TestConnectionsAreTerminated(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	dbtest.Audit(t, db.Pool)
	dbtest.Exec(t, db.Pool, createEffects)
	c := kit.NewClient(t, dbtest.OpenPool(t, db.DSN, dbtest.Conns(6)))
	runs := kit.StartRuns(t, c, chained, 100)
	file := filepath.Join(t.TempDir(), "l")
	stop := kit.StartLocal(t, localWorker(t, c, file, kagzi.WorkerConfig{MaxConcurrent: 10}))
	admin := dbtest.OpenPool(t, db.DSN, dbtest.Conns(1))
	ended := 0
	for range 15 {
		over := dbtest.QueryOne[int](t, admin, `SELECT count(*) FROM kagzi.workflow_runs WHERE status = 'COMPLETED'`)
		ended += dbtest.QueryOne[int](t, admin, `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
			WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'`)
		await.True(t, "something completes", func() bool {
			now := dbtest.QueryOne[int](t, admin, `SELECT count(*) FROM kagzi.workflow_runs WHERE status = 'COMPLETED'`)
			return now > over || now == len(runs)
		})
	}
	kit.CheckResults(t, runs, chainedResult)
	stop()
	t.Logf("%d connections were terminated", ended)
	if n := dbtest.QueryOne[string](t, admin, `SELECT count(*) || ' of ' || count(DISTINCT run_id) FROM effects`); n !=
		"100 of 100" {
		t.Errorf("effects: %s runs", n)
	}
}

// TestDatabaseIsAway shows what a program meets that starts while the database is down: Start fails, a worker waits.
func TestDatabaseIsAway(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*await.Patience)
	defer cancel()
	server, pool := kit.OwnServer(ctx, t, 5)
	run, err := kagzi.Start(ctx, kit.NewClient(t, pool), kit.Nothing, 1)
	if err != nil {
		t.Fatal(err)
	}
	postmaster, err := os.FindProcess(server.PID())
	if err != nil {
		t.Fatal(err)
	}
	if err := postmaster.Signal(syscall.SIGQUIT); err != nil {
		t.Fatal(err)
	}
	await.True(t, "the server is down", func() bool { return pool.Ping(ctx) != nil })
	c := kit.NewClient(t, pool)
	if _, err := kagzi.Start(ctx, c, kit.Nothing, 2); err == nil {
		t.Error("Start succeeded")
	}
	w := localWorker(t, c, filepath.Join(t.TempDir(), "l"), kagzi.WorkerConfig{})
	ended, stop := context.WithCancel(ctx)
	stop()
	if err := w.Run(ended); err != nil {
		t.Errorf("Run with a context that has ended: %v", err)
	}
	kit.StartLocal(t, w)
	waiting := make(chan error, 1)
	go func() {
		_, err := run.Result(ctx)
		waiting <- err
	}()
	select {
	case err := <-waiting:
		t.Errorf("Result returned during the outage: %v", err)
	case <-time.After(outage.Pause):
	}
	if err := server.Restart(ctx, localpg.Immediate); err != nil {
		t.Fatal(err)
	}
	if err := await.Receive(t, waiting); err != nil {
		t.Errorf("after the outage: %v", err)
	}
}

// TestWorkerStopsDuringOutage shows that Run returns in bounded time although the database does not answer at all:
// what is under way when its context ends may take a claim's timeout, 20 s, and what it writes then 10 s more.
func TestWorkerStopsDuringOutage(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	proxy := pgproxy.Start(t, db.DSN)
	cfg := kit.Quick
	cfg.DrainTimeout = 50 * time.Millisecond
	_, _, stop := kit.Gated(t, kit.NewClient(t, dbtest.OpenPool(t, proxy.DSN(), dbtest.Conns(5))), cfg, 3)
	proxy.Freeze()
	begun := time.Now()
	stop() // fails the test if that takes too long
	t.Logf("Run returned %v after the end of its context", time.Since(begun).Round(time.Millisecond))
	proxy.Unfreeze()
}

// TestPoisonFailsAlone shows that a result or output which the server refuses fails its run only, with kind database,
// and not those that share its transaction.
func TestPoisonFailsAlone(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	dbtest.Exec(t, db.Pool, `
		CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
			IF NEW.output = convert_to('"poison"', 'UTF8') THEN RAISE 'poison'; END IF;
			RETURN NEW;
		END $$;
		CREATE TRIGGER refuse BEFORE INSERT OR UPDATE ON kagzi.step_runs FOR EACH ROW EXECUTE FUNCTION refuse();
		CREATE TRIGGER refuse BEFORE UPDATE ON kagzi.workflow_runs FOR EACH ROW EXECUTE FUNCTION refuse();`)
	c := kit.NewClient(t, db.Pool)
	wf := kagzi.Define[int, string]("poisoned")
	w := kit.NewWorker(t, c, kagzi.WorkerConfig{})
	kagzi.Handle(w, wf, func(ctx kagzi.Context, n int) (string, error) {
		step := func(ctx context.Context) (string, error) {
			if n%10 == 3 || n%10 == 4 {
				return "poison", nil
			}
			return "fine", nil
		}
		var got string
		var err error
		if n%10 == 4 {
			got, err = kagzi.StepTx(ctx, "s", func(ctx context.Context, _ pgx.Tx) (string, error) { return step(ctx) },
				kagzi.RetryPolicy{MaxAttempts: 1})
		} else {
			got, err = kagzi.Step(ctx, "s", step)
		}
		if n%10 == 7 {
			return "poison", nil
		}
		return got, err
	}, kagzi.Version(1))
	runs := kit.StartRuns(t, c, wf, 100)
	kit.StartLocal(t, w)
	ctx := kit.Context(t)
	for i, r := range runs {
		got, err := r.Result(ctx)
		if i%10 != 3 && i%10 != 4 && i%10 != 7 {
			if err != nil || got != "fine" {
				t.Errorf("run %d: %q, %v", i, got, err)
			}
			continue
		}
		var failed *kagzi.RunError
		if !errors.As(err, &failed) || failed.Status != kagzi.StatusFailed || failed.Kind != kind.Database ||
			!strings.Contains(failed.Message, "poison") {
			t.Errorf("run %d: %q, %v; want kind database", i, got, err)
		}
	}
}

// TestListenerSaysWhose shows that a process with several clients can tell which of them does not listen.
func TestListenerSaysWhose(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	c, logged := kit.LoggedClient(t, dbtest.OpenPool(t, db.DSN, dbtest.Conns(5)))
	run := kit.StartRuns(t, c, kit.Nothing, 1)[0] // no worker executes it
	ctx, stop := context.WithCancel(t.Context())
	waiting := make(chan error, 1)
	go func() {
		_, err := run.Result(ctx)
		waiting <- err
	}()
	kit.WaitListening(t, db.Pool, 1)
	dbtest.Exec(t, db.Pool, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()
		AND pid <> pg_backend_pid()`)
	logged.WantLine(t, "not listening, polling", "namespace=default")
	logged.WantLine(t, "listening again", "namespace=default")
	stop()
	await.Receive(t, waiting)
}
