//go:build unix

package kagzi

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/localpg"
	"github.com/kagzi/kagzi/internal/pgproxy"
)

// ---- lost answers ----

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
	direct := quietClient(t, db.Pool)
	runs := startRuns(t, direct, chained, 3)
	file := filepath.Join(t.TempDir(), "l")
	cfg := quick
	cfg.VisibilityTimeout, cfg.StaleAfter = time.Minute, time.Minute // what is lost must be found by looking
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
		runs := startRuns(t, quietClient(t, l.db.Pool), wf, 1)
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
		cfg.StaleAfter, cfg.VisibilityTimeout = time.Minute, 4*time.Second
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

// ---- the database goes away ----

// ownServer starts a Postgres for one test, which may crash it, and a migrated database.
func ownServer(ctx context.Context, t *testing.T, conns int32) (*localpg.Cluster, *pgxpool.Pool) {
	t.Helper()
	server, err := localpg.Start(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	pool := openPool(t, server.DSN(), conns)
	if err := Migrate(ctx, pool); err != nil {
		t.Fatal(err)
	}
	return server, pool
}

// TestDatabaseRestarts crashes the server twice while 200 runs are under way in two workers.
func TestDatabaseRestarts(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	defer cancel()
	server, pool := ownServer(ctx, t, 10)
	execSQL(t, pool, createEffects)
	dbtest.Audit(t, pool)
	c := quietClient(t, pool)
	const n = 200
	runs := startRuns(t, c, chained, n)
	file := filepath.Join(t.TempDir(), "l")
	startLocal(t, localWorker(t, c, file, WorkerConfig{MaxConcurrent: 10}))
	p := startProcess(t, workerSpec{DSN: server.DSN(), Ledger: filepath.Join(t.TempDir(), "p"), Config: WorkerConfig{MaxConcurrent: 10}})
	for _, done := range []int{n / 10, n / 2} {
		waitFor(t, "runs complete", func() bool {
			var over int
			err := pool.QueryRow(ctx, `SELECT count(*) FROM kagzi.workflow_runs WHERE status = 'COMPLETED'`).Scan(&over)
			return err == nil && over >= done
		})
		if err := server.Restart(ctx, localpg.Immediate); err != nil {
			t.Fatal(err)
		}
	}
	back := time.Now()
	checkResults(t, runs, chainedResult)
	t.Logf("all complete %v after the server's second return", time.Since(back).Round(time.Millisecond))
	p.stop(t)
	rows, distinct := 0, 0
	if err := pool.QueryRow(ctx, `SELECT count(*), count(DISTINCT run_id) FROM effects`).Scan(&rows, &distinct); err != nil || rows != n || distinct != n {
		t.Errorf("%d effects of %d runs, %v; want one of each of %d", rows, distinct, err, n)
	}
	dbtest.CheckInvariants(t, pool)
}

// TestConnectionsAreTerminated ends every connection again and again while runs are under way.
func TestConnectionsAreTerminated(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	dbtest.Audit(t, db.Pool)
	execSQL(t, db.Pool, createEffects)
	c := quietClient(t, openPool(t, db.DSN, 6))
	runs := startRuns(t, c, chained, 100)
	file := filepath.Join(t.TempDir(), "l")
	stop := startLocal(t, localWorker(t, c, file, WorkerConfig{MaxConcurrent: 10}))
	admin := openPool(t, db.DSN, 1)
	ended := 0
	for range 15 {
		over := queryOne[int](t, admin, `SELECT count(*) FROM kagzi.workflow_runs WHERE status = 'COMPLETED'`)
		ended += queryOne[int](t, admin, `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
			WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'`)
		waitFor(t, "something completes", func() bool {
			now := queryOne[int](t, admin, `SELECT count(*) FROM kagzi.workflow_runs WHERE status = 'COMPLETED'`)
			return now > over || now == len(runs)
		})
	}
	checkResults(t, runs, chainedResult)
	stop()
	t.Logf("%d connections were terminated", ended)
	if n := queryOne[string](t, admin, `SELECT count(*) || ' of ' || count(DISTINCT run_id) FROM effects`); n != "100 of 100" {
		t.Errorf("effects: %s runs", n)
	}
}

// TestDatabaseIsAway shows what a program meets that starts while the database is down: Start fails, a worker waits.
func TestDatabaseIsAway(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	defer cancel()
	server, pool := ownServer(ctx, t, 5)
	run, err := Start(ctx, quietClient(t, pool), nothing, 1)
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
	waitFor(t, "the server is down", func() bool { return pool.Ping(ctx) != nil })
	c := quietClient(t, pool)
	if _, err := Start(ctx, c, nothing, 2); err == nil {
		t.Error("Start succeeded")
	} else {
		t.Log(err)
	}
	w := localWorker(t, c, filepath.Join(t.TempDir(), "l"), WorkerConfig{})
	ended, stop := context.WithCancel(ctx)
	stop()
	if err := w.Run(ended); err != nil {
		t.Errorf("Run with a context that has ended: %v", err)
	}
	startLocal(t, w)
	waiting := make(chan error, 1)
	go func() {
		_, err := (&Run[string]{client: c, workflow: "nothing", id: run.ID()}).Result(ctx)
		waiting <- err
	}()
	select {
	case err := <-waiting:
		t.Errorf("Result returned during the outage: %v", err)
	case <-time.After(databasePause):
	}
	if err := server.Restart(ctx, localpg.Immediate); err != nil {
		t.Fatal(err)
	}
	if err := receive(t, waiting); err != nil {
		t.Errorf("after the outage: %v", err)
	}
}

// TestWorkerStopsDuringOutage shows that Run returns in bounded time although the database does not answer at all:
// what is under way when its context ends may take a claim's timeout, 20 s, and what it writes then 10 s more.
func TestWorkerStopsDuringOutage(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	proxy := pgproxy.Start(t, db.DSN)
	cfg := quick
	cfg.DrainTimeout = 50 * time.Millisecond
	_, _, stop := gated(t, quietClient(t, openPool(t, proxy.DSN(), 5)), cfg, 3)
	proxy.Freeze()
	begun := time.Now()
	stop() // fails the test if that takes too long
	t.Logf("Run returned %v after the end of its context", time.Since(begun).Round(time.Millisecond))
	proxy.Unfreeze()
}

// ---- poison ----

// TestPoisonFailsAlone shows that a result or output which the server refuses fails its run only, with kind database,
// and not those that share its transaction.
func TestPoisonFailsAlone(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	execSQL(t, db.Pool, `
		CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
			IF NEW.output = convert_to('"poison"', 'UTF8') THEN RAISE 'poison'; END IF;
			RETURN NEW;
		END $$;
		CREATE TRIGGER refuse BEFORE INSERT OR UPDATE ON kagzi.step_runs FOR EACH ROW EXECUTE FUNCTION refuse();
		CREATE TRIGGER refuse BEFORE UPDATE ON kagzi.workflow_payloads FOR EACH ROW EXECUTE FUNCTION refuse();`)
	c := quietClient(t, db.Pool)
	wf := Define[int, string]("poisoned")
	w := newTestWorker(t, c, WorkerConfig{})
	Handle(w, wf, func(ctx Context, n int) (string, error) {
		step := func(ctx context.Context) (string, error) {
			if n%10 == 3 || n%10 == 4 {
				return "poison", nil
			}
			return "fine", nil
		}
		var got string
		var err error
		if n%10 == 4 {
			got, err = StepTx(ctx, "s", func(ctx context.Context, _ pgx.Tx) (string, error) { return step(ctx) }, RetryPolicy{MaxAttempts: 1})
		} else {
			got, err = Step(ctx, "s", step)
		}
		if n%10 == 7 {
			return "poison", nil
		}
		return got, err
	}, Version(1))
	runs := startRuns(t, c, wf, 100)
	startLocal(t, w)
	ctx := testContext(t)
	for i, r := range runs {
		got, err := r.Result(ctx)
		if i%10 != 3 && i%10 != 4 && i%10 != 7 {
			if err != nil || got != "fine" {
				t.Errorf("run %d: %q, %v", i, got, err)
			}
			continue
		}
		var failed *RunError
		if !errors.As(err, &failed) || failed.Status != StatusFailed || failed.Kind != KindDatabase || !strings.Contains(failed.Message, "poison") {
			t.Errorf("run %d: %q, %v; want kind database", i, got, err)
		}
	}
}

// TestListenerSaysWhose shows that a process with several clients can tell which of them does not listen.
func TestListenerSaysWhose(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	c, logged := loggedClient(t, openPool(t, db.DSN, 5))
	defer c.hub.acquire()()
	waitFor(t, "the client listens", c.hub.listening)
	execSQL(t, db.Pool, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`)
	logged.wantLine(t, "not listening, polling", "namespace=default")
	logged.wantLine(t, "listening again", "namespace=default")
}
