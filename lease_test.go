//go:build unix

package kagzi

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/pgproxy"
)

// TestLeaseIsExtended shows that a step may take longer than the lease timeout, and that a fast run's lease is
// never extended.
func TestLeaseIsExtended(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	dbtest.Audit(t, db.Pool)
	c := newTestClient(t, db.Pool)
	cfg := WorkerConfig{LeaseTimeout: 6 * time.Second, PollInterval: 50 * time.Millisecond}
	g, runs, _ := gated(t, c, cfg, 1)
	startLocal(t, localWorker(t, c, filepath.Join(t.TempDir(), "l"), cfg)) // would claim it
	extended := func() int {
		return queryOne[int](t, db.Pool, `SELECT count(*) FROM kagzi_audit.changes WHERE relation = 'workflow_runs'
			AND old_status = 'RUNNING' AND new_status = 'RUNNING' AND old_lease = new_lease`)
	}
	checkResults(t, startRuns(t, c, triple, 5), tripleResult)
	if n := queryOne[int](t, db.Pool, `SELECT count(*) FROM kagzi_audit.changes c JOIN kagzi.workflow_runs r ON r.run_id = c.run_id
		WHERE c.relation = 'workflow_runs' AND c.old_status = 'RUNNING' AND c.new_status = 'RUNNING' AND c.old_lease = c.new_lease
			AND r.finished_at - r.started_at < interval '1 s'`); n > 0 { // a slow machine's runs may take longer
		t.Errorf("%d leases of fast runs were extended", n)
	}
	waitFor(t, "two timeouts pass", func() bool {
		return queryOne[bool](t, db.Pool, `SELECT now() - started_at > interval '12 s' FROM kagzi.workflow_runs WHERE run_id = $1`, string(runs[0].ID()))
	})
	if n := extended(); n < 2 {
		t.Errorf("the lease was extended %d times in two timeouts", n)
	}
	close(g.open)
	checkResults(t, runs, func(int) string { return "opened" })
	if n := queryOne[int](t, db.Pool, `SELECT count(DISTINCT new_lease) FROM kagzi_audit.changes WHERE run_id = $1`, string(runs[0].ID())); n != 1 {
		t.Errorf("the run was claimed %d times, want once", n)
	}
}

// TestFixedLeaseEnds shows that with FixedLease a run goes to another worker after the lease timeout, and that the
// first worker's result is refused.
func TestFixedLeaseEnds(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	dbtest.Audit(t, db.Pool)
	c := newTestClient(t, db.Pool)
	slow := newGate()
	slow.deaf = true
	first := newTestWorker(t, c, WorkerConfig{LeaseTimeout: 500 * time.Millisecond, FixedLease: true, MaxConcurrent: 1})
	slow.handle(first)
	runs := startRuns(t, c, slow.wf, 1)
	startLocal(t, first)
	receive(t, slow.begun)
	fast := newGate()
	close(fast.open)
	second := newTestWorker(t, c, WorkerConfig{PollInterval: 50 * time.Millisecond})
	fast.handle(second)
	startLocal(t, second)
	checkResults(t, runs, func(int) string { return "opened" })
	before := queryOne[string](t, db.Pool, `SELECT string_agg(s::text || r::text, ' ') FROM kagzi.step_runs s, kagzi.workflow_runs r`)
	close(slow.open)
	checkResults(t, startRuns(t, c, fast.wf, 5), func(int) string { return "opened" }) // the first worker, too, goes on
	if after := queryOne[string](t, db.Pool, `SELECT string_agg(s::text || r::text, ' ') FROM kagzi.step_runs s, kagzi.workflow_runs r
		WHERE s.run_id = $1 AND r.run_id = $1`, string(runs[0].ID())); after != before {
		t.Errorf("the first worker changed\n%s\nto\n%s", before, after)
	}
}

// TestHeartbeatNeedsNoPool shows that a worker lives on, and keeps its leases, while the application's transactions
// hold every connection of its pool.
func TestHeartbeatNeedsNoPool(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	pool := openPool(t, db.DSN, 4)
	g, runs, _ := gated(t, newTestClient(t, pool), WorkerConfig{Heartbeat: 200 * time.Millisecond, LeaseTimeout: 4 * time.Second}, 3)
	var held []pgx.Tx
	for range 4 {
		tx, err := pool.Begin(testContext(t))
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, tx)
	}
	from := queryOne[time.Time](t, db.Pool, `SELECT clock_timestamp()`)
	waitFor(t, "the heart beats, and leases are extended", func() bool {
		return queryOne[bool](t, db.Pool, `SELECT (SELECT heartbeat_at FROM kagzi.workers) > $1::timestamptz + interval '1 s'
			AND min(available_at) > $1::timestamptz + interval '5 s' FROM kagzi.workflow_runs`, from)
	})
	for _, tx := range held {
		if err := tx.Rollback(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if len(g.cause) > 0 {
		t.Errorf("a step's context ended: %v", <-g.cause)
	}
	close(g.open)
	checkResults(t, runs, func(int) string { return "opened" })
}

// TestOpenTransactionHoldsUpOnlyItsRun shows that while a transaction of the application has locked a run, the records
// and leases of all others go on, and that what the run itself has to say is kept and written afterwards: a
// record, a suspension with its sleep, and an end.
func TestOpenTransactionHoldsUpOnlyItsRun(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]Call{
		"Record":     oneStep.With(1),
		"Suspension": napping.With(time.Second),
		"Finish":     nothing.With(1),
		"Retry":      relapse.With(1),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := dbtest.Database(t)
			dbtest.Audit(t, db.Pool)
			c := newTestClient(t, db.Pool)
			cfg := quick
			cfg.MaxConcurrent, cfg.LeaseTimeout = 100, time.Second
			w := localWorker(t, c, filepath.Join(t.TempDir(), "l"), cfg)
			testHeldUp(t, db, c, w, call)
		})
	}
}

func testHeldUp(t *testing.T, db *dbtest.DB, c *Client, w *Worker, call Call) {
	writing, goOn := hangAt(t, w, "before flush")
	defer goOn()
	started, err := c.StartMany(t.Context(), []Call{call})
	if err != nil {
		t.Fatal(err)
	}
	id := started[0].ID
	startLocal(t, w)
	receive(t, writing)
	tx := locking(t, openPool(t, db.DSN, 1), lockRun, string(id))
	goOn()
	begun := time.Now()
	checkResults(t, startRuns(t, c, triple, 50), tripleResult)
	t.Logf("50 runs beside it took %v", time.Since(begun).Round(time.Millisecond))
	if info, err := c.Get(t.Context(), id); err != nil || info.Status != StatusRunning {
		t.Errorf("INVALID: the run is %s, %v", info.Status, err)
	}
	beat := queryOne[time.Time](t, db.Pool, `SELECT clock_timestamp()`)
	waitFor(t, "the worker's heart beats on", func() bool {
		return queryOne[int](t, db.Pool, `SELECT count(*) FROM kagzi.workers WHERE status = 'ONLINE' AND heartbeat_at > $1::timestamptz + interval '700 ms'`, beat) == 1
	})
	commitTx(t, tx)
	run := startedBy(t, c, id)
	if _, err := run.Result(testContext(t)); err != nil {
		t.Error(err)
	}
	if n := queryOne[int](t, db.Pool, `SELECT count(*) FROM kagzi.step_runs WHERE run_id = $1 AND step_kind = 'SLEEP'
		AND finished_at - started_at > interval '3 s'`, string(id)); n != 0 {
		t.Error("the sleep was begun again")
	}
}

// TestWorkerFencesItself shows that a worker which cannot reach the database for two thirds of its stale threshold
// ends its executions, for others may have them, and works again when the database is back.
func TestWorkerFencesItself(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	proxy := pgproxy.Start(t, db.DSN)
	c := newTestClient(t, openPool(t, proxy.DSN(), 5))
	direct := newTestClient(t, db.Pool)
	cfg := quick
	cfg.LeaseTimeout = 2 * time.Second
	g, runs, stop := gated(t, c, cfg, 3)
	proxy.Freeze()
	frozen := time.Now()
	g.losesLeases(t, len(runs))
	t.Logf("fenced after %v of a stale threshold of %v", time.Since(frozen).Round(time.Millisecond), quick.StaleAfter)
	h := newGate()
	close(h.open)
	w := newTestWorker(t, direct, quick)
	h.handle(w)
	halt := startLocal(t, w)
	checkResults(t, g.through(t, direct, runs), func(int) string { return "opened" })
	halt()
	proxy.Unfreeze()
	close(g.open)
	again := startRuns(t, direct, g.wf, 3)
	checkResults(t, again, func(int) string { return "opened" })
	stop()
}

// TestFencedRunsAreGivenBack shows that runs which a worker gave up while the database did not answer go on once it
// does, if nobody has taken them, though their leases have minutes left.
func TestFencedRunsAreGivenBack(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	proxy := pgproxy.Start(t, db.DSN)
	c, logged := loggedClient(t, openPool(t, proxy.DSN(), 5))
	g, runs, _ := gated(t, c, quick, 3)
	id := "worker=" + string(only(t, newTestClient(t, db.Pool), WorkerFilter{}).ID)
	proxy.Freeze()
	g.losesLeases(t, len(runs))
	logged.wantLine(t, "WARN", "giving up the runs under way", "no heartbeat was answered for too long", id, "runs=3")
	logged.wantLine(t, "WARN", "the database does not answer", id)
	proxy.Unfreeze()
	logged.wantLine(t, "INFO", "the database is back", id)
	close(g.open)
	checkResults(t, g.through(t, newTestClient(t, db.Pool), runs), func(int) string { return "opened" })
}

// TestDeclaredDeadWorkerIsReborn shows that a worker whose row was set OFFLINE gives its runs up, registers under a
// new ID and works on.
func TestDeclaredDeadWorkerIsReborn(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	c := newTestClient(t, db.Pool)
	cfg := quick
	cfg.LeaseTimeout = time.Second
	g, runs, _ := gated(t, c, cfg, 3)
	execSQL(t, db.Pool, `UPDATE kagzi.workers SET status = 'OFFLINE', stopped_at = now()`)
	g.losesLeases(t, len(runs))
	close(g.open)
	checkResults(t, runs, func(int) string { return "opened" })
	if n := queryOne[int](t, db.Pool, `SELECT count(*) FILTER (WHERE status = 'ONLINE') FROM kagzi.workers HAVING count(*) = 2`); n != 1 {
		t.Errorf("%d workers are online, want the reborn one", n)
	}
}
