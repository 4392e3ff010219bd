//go:build unix

package kagzi

import (
	"testing"
	"time"

	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/pgproxy"
)

// TestDrainLeavesBusyRun stops a worker while somebody's transaction holds the row of its run, which it cannot give back
// therefore: a coordinator makes the run due as soon as that transaction has ended, long before the lease does.
func TestDrainLeavesBusyRun(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	c := newTestClient(t, openPool(t, db.DSN, 6))
	cfg := mute
	cfg.DrainTimeout = 10 * time.Millisecond
	_, runs, stop := gated(t, c, cfg, 1)
	tx := locking(t, db.Pool, lockRuns)
	stop()
	waitFor(t, "nobody tries to give it back any more", func() bool {
		return queryOne[int](t, db.Pool, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) == 0
	})
	if got := queryOne[string](t, db.Pool, `SELECT w.status || ' ' || r.status FROM kagzi.workers w JOIN kagzi.workflow_runs r ON r.locked_by = w.worker_id`); got != "OFFLINE RUNNING" {
		t.Fatalf("INVALID: worker and run are %s", got)
	}
	d := newDetector(t, db)
	d.check(t) // with the lock held the run cannot be released: a later check does that
	rollbackTx(t, tx)
	waitFor(t, "the run is due", func() bool {
		d.check(t)
		return queryOne[bool](t, db.Pool, `SELECT available_at <= now() FROM kagzi.workflow_runs`)
	})
	w, g := newTestWorker(t, c, mute), newGate()
	g.handle(w)
	close(g.open)
	startLocal(t, w)
	checkResults(t, runs, func(int) string { return "opened" })
}

// TestStopWhileRowLocked stops a worker while somebody's transaction holds its row in the registry: Run does not wait for
// the end of that.
func TestStopWhileRowLocked(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	cfg := mute
	cfg.NoCoordinator = true
	c := newTestClient(t, openPool(t, db.DSN, 6))
	defer c.hints.Listen()()
	waitFor(t, "the process listens", c.hints.Listening) // that it begins to would cause a heartbeat, which may wait longer
	g, _, stop := gated(t, c, cfg, 1)
	stopped := stopping(stop)
	waitFor(t, "the worker drains", func() bool {
		return queryOne[string](t, db.Pool, `SELECT status FROM kagzi.workers`) == "DRAINING"
	})
	tx := locking(t, db.Pool, lockWorkers)
	begun := time.Now()
	close(g.open)
	receive(t, stopped)
	took := time.Since(begun)
	t.Logf("Run returned %v after the end of its run", took.Round(time.Millisecond))
	if took > 4*noteTimeout { // other calls to the database may take 10 s
		t.Errorf("Run returned %v after the end of its run", took)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestRebornWhileDraining declares a worker dead that drains: it goes on to drain under its new ID, and says so.
func TestRebornWhileDraining(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	c := newTestClient(t, openPool(t, db.DSN, 6))
	cfg := mute
	cfg.DrainTimeout, cfg.NoCoordinator = time.Minute, true
	_, _, stop := gated(t, c, cfg, 1)
	first := only(t, c, WorkerFilter{}).ID
	tx := locking(t, db.Pool, lockRuns) // the run cannot be given back, so the worker has not drained
	stopped := stopping(stop)
	waitFor(t, "the worker drains", func() bool {
		return queryOne[string](t, db.Pool, `SELECT status FROM kagzi.workers`) == "DRAINING"
	})
	if err := c.ForceOffline(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the worker drains under its new ID", func() bool {
		_, total, err := c.Workers(t.Context(), WorkerFilter{Status: []string{"DRAINING"}})
		return err == nil && total == 1
	})
	if r, err := c.Health(t.Context()); err != nil || r.Workers.Live != 0 || r.Workers.Draining != 1 {
		t.Errorf("workers %+v; want one that drains", r.Workers)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Error(err)
	}
	receive(t, stopped)
	if n := queryOne[int](t, db.Pool, `SELECT count(*) FROM kagzi.workers WHERE status = 'OFFLINE'`); n != 2 {
		t.Errorf("%d workers are OFFLINE, want 2", n)
	}
}

// TestDrainOfReborn asks a worker to drain, which is declared dead before it learns of that: it drains all the same.
func TestDrainOfReborn(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	w := newTestWorker(t, newTestClient(t, openPool(t, db.DSN, 6)), WorkerConfig{Heartbeat: 100 * time.Millisecond, NoCoordinator: true})
	newGate().handle(w)
	done := runWorker(t, w)
	waitFor(t, "the worker is online", func() bool {
		return queryOne[int](t, db.Pool, `SELECT count(*) FROM kagzi.workers WHERE status = 'ONLINE'`) == 1
	})
	// What Drain and Bury write, between two heartbeats, with nobody told.
	execSQL(t, db.Pool, `WITH u AS (UPDATE kagzi.workers SET status = 'OFFLINE', stopped_at = now() RETURNING worker_id, namespace_id)
		INSERT INTO kagzi.worker_events (worker_id, event_id, namespace_id, event, detail) SELECT worker_id, gen_random_uuid(), namespace_id, 'DRAINING', 'asked to' FROM u`)
	if err := receive(t, done); err != nil {
		t.Errorf("Run: %v", err)
	}
	if n := queryOne[int](t, db.Pool, `SELECT count(*) FROM kagzi.workers WHERE status <> 'OFFLINE'`); n != 0 {
		t.Errorf("%d workers are not OFFLINE", n)
	}
}

// TestDrainQueueLostAnswer loses the answer to the commit of DrainQueue: it counts the workers that it has asked, and tells
// them, whose next heartbeats are minutes away.
func TestDrainQueueLostAnswer(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	c := newTestClient(t, openPool(t, db.DSN, 6))
	w := newTestWorker(t, c, mute)
	newGate().handle(w)
	done := runWorker(t, w)
	waitFor(t, "the worker is online", func() bool {
		return queryOne[int](t, db.Pool, `SELECT count(*) FROM kagzi.workers WHERE status = 'ONLINE'`) == 1
	})
	waitFor(t, "the worker listens", c.hints.Listening)
	proxy := pgproxy.Start(t, db.DSN)
	far := newTestClient(t, openPool(t, proxy.DSN(), 3))
	drop := proxy.DropAck(pgproxy.After(pgproxy.Contains("INSERT INTO kagzi.worker_events"), pgproxy.Exactly("commit")))
	if n, err := far.DrainQueue(t.Context(), "default"); n != 1 || err != nil {
		t.Errorf("%d workers, %v; want 1", n, err)
	}
	receive(t, drop.Done())
	if err := receive(t, done); err != nil {
		t.Errorf("Run: %v", err)
	}
}
