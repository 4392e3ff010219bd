//go:build unix

package crash_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/pgproxy"
)

// A step may take longer than the lease timeout. The lease of a fast run is never extended.
func TestLeaseIsExtended(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	dbtest.Audit(t, db.Pool)
	c := kit.NewClient(t, db.Pool)
	cfg := kagzi.WorkerConfig{LeaseTimeout: 15 * time.Second, PollInterval: 50 * time.Millisecond}
	g, runs, _ := kit.Gated(t, c, cfg, 1)
	kit.StartLocal(t, localWorker(t, c, filepath.Join(t.TempDir(), "l"), cfg)) // would claim it
	extended := func() int {
		return dbtest.QueryOne[int](t, db.Pool, `SELECT count(*) FROM kagzi_audit.changes
			WHERE relation = 'workflow_runs'
			AND old_status = 'RUNNING' AND new_status = 'RUNNING' AND old_lease = new_lease`)
	}
	kit.CheckResults(t, kit.StartRuns(t, c, triple, 5), tripleResult)
	if n := dbtest.QueryOne[int](t, db.Pool, `SELECT count(*) FROM kagzi_audit.changes c JOIN kagzi.workflow_runs r
		ON r.run_id = c.run_id
		WHERE c.relation = 'workflow_runs' AND c.old_status = 'RUNNING' AND c.new_status = 'RUNNING'
			AND c.old_lease = c.new_lease
			AND r.finished_at - r.started_at < interval '1 s'`); n > 0 { // a slow machine's runs may take longer
		t.Errorf("%d leases of fast runs were extended", n)
	}
	await.True(t, "the timeout passes", func() bool { // it is long, because a busy machine must not let the lease end
		return dbtest.QueryOne[bool](t, db.Pool, `SELECT now() - started_at > interval '16 s' FROM kagzi.workflow_runs
			WHERE run_id = $1`, string(runs[0].ID()))
	})
	if n := extended(); n == 0 {
		t.Errorf("the lease was not extended, and its timeout has passed")
	}
	close(g.Open)
	kit.CheckResults(t, runs, func(int) string { return "opened" })
	if n := dbtest.QueryOne[int](t, db.Pool, `SELECT count(DISTINCT new_lease) FROM kagzi_audit.changes
		WHERE run_id = $1`, string(runs[0].ID())); n != 1 {
		t.Errorf("the run was claimed %d times, want once", n)
	}
}

// With FixedLease, a run goes to another worker after the lease timeout, and the first worker's result is refused.
func TestFixedLeaseEnds(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	dbtest.Audit(t, db.Pool)
	c := kit.NewClient(t, db.Pool)
	slow := kit.NewGate()
	slow.IgnoresContext = true
	first := kit.NewWorker(t, c, kagzi.WorkerConfig{
		LeaseTimeout: 500 * time.Millisecond, FixedLease: true,
		MaxConcurrent: 1,
	})
	slow.Handle(first)
	runs := kit.StartRuns(t, c, slow.Workflow, 1)
	kit.StartLocal(t, first)
	await.Receive(t, slow.Begun)
	fast := kit.NewGate()
	close(fast.Open)
	second := kit.NewWorker(t, c, kagzi.WorkerConfig{PollInterval: 50 * time.Millisecond})
	fast.Handle(second)
	kit.StartLocal(t, second)
	kit.CheckResults(t, runs, func(int) string { return "opened" })
	before := dbtest.QueryOne[string](t, db.Pool, `SELECT string_agg(s::text || r::text, ' ') FROM kagzi.step_runs s,
		kagzi.workflow_runs r`)
	close(slow.Open)
	// the first worker, too, goes on
	kit.CheckResults(t, kit.StartRuns(t, c, fast.Workflow, 5), func(int) string { return "opened" })
	if after := dbtest.QueryOne[string](t, db.Pool, `SELECT string_agg(s::text || r::text, ' ') FROM kagzi.step_runs s,
		kagzi.workflow_runs r
		WHERE s.run_id = $1 AND r.run_id = $1`, string(runs[0].ID())); after != before {
		t.Errorf("the first worker changed\n%s\nto\n%s", before, after)
	}
}

// A worker sends heartbeats and keeps its leases while the application's transactions hold every connection of its
// pool.
func TestHeartbeatNeedsNoPool(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	pool := dbtest.OpenPool(t, db.DSN, dbtest.Conns(4))
	g, runs, _ := kit.Gated(t, kit.NewClient(t, pool), kagzi.WorkerConfig{
		Heartbeat:    200 * time.Millisecond,
		LeaseTimeout: 8 * time.Second,
	}, 3)
	var held []pgx.Tx
	for range 4 {
		tx, err := pool.Begin(kit.Context(t))
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, tx)
	}
	from := dbtest.QueryOne[time.Time](t, db.Pool, `SELECT clock_timestamp()`)
	await.True(t, "heartbeats are sent, and leases are extended", func() bool {
		return dbtest.QueryOne[bool](t, db.Pool,
			`SELECT (SELECT heartbeat_at FROM kagzi.workers) > $1::timestamptz + interval '1 s'
			AND min(available_at) > $1::timestamptz + interval '9 s' FROM kagzi.workflow_runs`, from)
	})
	for _, tx := range held {
		if err := tx.Rollback(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if len(g.Cause) > 0 {
		t.Errorf("a step's context ended: %v", <-g.Cause)
	}
	close(g.Open)
	kit.CheckResults(t, runs, func(int) string { return "opened" })
}

// While a transaction of the application has locked a run, the records and leases of all others are written. The run's
// own writes are kept and written afterwards: a record, a suspension with its sleep, and an outcome.
func TestOpenTransactionHoldsUpOnlyItsRun(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]kagzi.Call{
		"Record":     oneStep.With(1),
		"Suspension": napping.With(time.Second),
		"Finish":     kit.Nothing.With(1),
		"Retry":      relapse.With(1),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := dbtest.Database(t)
			dbtest.Audit(t, db.Pool)
			c := kit.NewClient(t, db.Pool)
			cfg := kit.Quick
			cfg.MaxConcurrent, cfg.LeaseTimeout = 100, time.Second
			w := localWorker(t, c, filepath.Join(t.TempDir(), "l"), cfg)
			testHeldUp(t, db, c, w, call)
		})
	}
}

func testHeldUp(t *testing.T, db *dbtest.DB, c *kagzi.Client, w *kagzi.Worker, call kagzi.Call) {
	writing, goOn := kit.HangAt(t, w, "before flush")
	defer goOn()
	started, err := c.StartMany(t.Context(), []kagzi.Call{call})
	if err != nil {
		t.Fatal(err)
	}
	id := started[0].ID
	kit.StartLocal(t, w)
	await.Receive(t, writing)
	tx := dbtest.BeginWith(t, dbtest.OpenPool(t, db.DSN, dbtest.Conns(1)), kit.LockRun, string(id))
	goOn()
	begun := time.Now()
	kit.CheckResults(t, kit.StartRuns(t, c, triple, 50), tripleResult)
	t.Logf("50 runs beside it took %v", time.Since(begun).Round(time.Millisecond))
	if info, err := c.Get(t.Context(), id); err != nil || info.Status != kagzi.StatusRunning {
		t.Errorf("INVALID: the run is %s, %v", info.Status, err)
	}
	since := dbtest.QueryOne[time.Time](t, db.Pool, `SELECT clock_timestamp()`)
	await.True(t, "the worker still sends heartbeats", func() bool {
		return dbtest.QueryOne[int](t, db.Pool, `SELECT count(*) FROM kagzi.workers WHERE status = 'ONLINE'
			AND heartbeat_at > $1::timestamptz + interval '700 ms'`, since) == 1
	})
	kit.CommitTx(t, tx)
	run := kit.StartedBy(t, c, id)
	if _, err := run.Result(kit.Context(t)); err != nil {
		t.Error(err)
	}
	if n := dbtest.QueryOne[int](t, db.Pool, `SELECT count(*) FROM kagzi.step_runs WHERE run_id = $1
		AND step_kind = 'SLEEP'
		AND finished_at - started_at > interval '3 s'`, string(id)); n != 0 {
		t.Error("the sleep was begun again")
	}
}

// A worker that cannot reach the database for two thirds of its StaleAfter ends its executions, because others may have
// them. It works again when the database is back.
func TestWorkerFencesItself(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	proxy := pgproxy.Start(t, db.DSN)
	c := kit.NewClient(t, dbtest.OpenPool(t, proxy.DSN(), dbtest.Conns(5)))
	direct := kit.NewClient(t, db.Pool)
	cfg := kit.Quick
	cfg.LeaseTimeout = 2 * time.Second
	g, runs, stop := kit.Gated(t, c, cfg, 3)
	proxy.Freeze()
	frozen := time.Now()
	g.LosesLeases(t, len(runs))
	t.Logf("fenced after %v of a stale threshold of %v", time.Since(frozen).Round(time.Millisecond),
		kit.Quick.StaleAfter)
	h := kit.NewGate()
	close(h.Open)
	w := kit.NewWorker(t, direct, kit.Quick)
	h.Handle(w)
	halt := kit.StartLocal(t, w)
	kit.CheckResults(t, g.Through(t, direct, runs), func(int) string { return "opened" })
	halt()
	proxy.Unfreeze()
	close(g.Open)
	again := kit.StartRuns(t, direct, g.Workflow, 3)
	kit.CheckResults(t, again, func(int) string { return "opened" })
	stop()
}

// A worker gives up its runs while the database does not answer. When the database answers again, they continue at once
// unless another worker has taken them, although their leases have minutes left.
func TestFencedRunsAreGivenBack(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	proxy := pgproxy.Start(t, db.DSN)
	c, logged := kit.LoggedClient(t, dbtest.OpenPool(t, proxy.DSN(), dbtest.Conns(5)))
	g, runs, _ := kit.Gated(t, c, kit.Quick, 3)
	id := "worker=" + string(kit.Only(t, kit.NewClient(t, db.Pool), admin.WorkerFilter{}).ID)
	proxy.Freeze()
	g.LosesLeases(t, len(runs))
	logged.WantLine(t, "WARN", "giving up the runs under way", "no heartbeat was answered for too long", id, "runs=3")
	logged.WantLine(t, "WARN", "the database does not answer", id)
	proxy.Unfreeze()
	logged.WantLine(t, "INFO", "the database is back", id)
	close(g.Open)
	kit.CheckResults(t, g.Through(t, kit.NewClient(t, db.Pool), runs), func(int) string { return "opened" })
}

// A worker whose row was set OFFLINE gives up its runs, registers again under a new ID and continues to work.
func TestDeclaredDeadWorkerRegistersAgain(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	c := kit.NewClient(t, db.Pool)
	cfg := kit.Quick
	cfg.LeaseTimeout, cfg.StaleAfter = time.Second, 30*time.Second // no coordinator declares it dead
	g, runs, _ := kit.Gated(t, c, cfg, 3)
	dbtest.Exec(t, db.Pool, `UPDATE kagzi.workers SET status = 'OFFLINE', stopped_at = now()`)
	g.LosesLeases(t, len(runs))
	close(g.Open)
	kit.CheckResults(t, runs, func(int) string { return "opened" })
	if n := dbtest.QueryOne[int](t, db.Pool, `SELECT count(*) FILTER (WHERE status = 'ONLINE') FROM kagzi.workers
		HAVING count(*) = 2`); n != 1 {
		t.Errorf("%d workers are online, want the one that registered again", n)
	}
}
