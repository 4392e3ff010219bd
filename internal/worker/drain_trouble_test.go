package worker_test

import (
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/pgproxy"
	"github.com/kagzi/kagzi/internal/worker"
)

// TestDrainLeavesBusyRun stops a worker while another transaction holds the row of its run, so that it cannot yield the
// run. A coordinator makes the run due as soon as that transaction has ended, long before the lease ends.
func TestDrainLeavesBusyRun(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	c := kit.NewClient(t, dbtest.OpenPool(t, db.DSN, dbtest.Conns(6)))
	cfg := kit.RareHeartbeats
	cfg.DrainTimeout = 10 * time.Millisecond
	_, runs, stop := kit.Gated(t, c, cfg, 1)
	tx := dbtest.BeginWith(t, db.Pool, kit.LockRuns)
	stop()
	await.True(t, "nobody tries to yield it any more", func() bool {
		return dbtest.QueryOne[int](t, db.Pool, `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock'`) == 0
	})
	if got := dbtest.QueryOne[string](t, db.Pool, `SELECT w.status || ' ' || r.status FROM kagzi.workers w
		JOIN kagzi.workflow_runs r ON r.locked_by = w.worker_id`); got != "OFFLINE RUNNING" {
		t.Fatalf("INVALID: worker and run are %s", got)
	}
	d := newDetector(t, db)
	d.check(t) // with the lock held the run cannot be released: a later check does that
	kit.RollbackTx(t, tx)
	await.True(t, "the run is due", func() bool {
		d.check(t)
		return dbtest.QueryOne[bool](t, db.Pool, `SELECT available_at <= now() FROM kagzi.workflow_runs`)
	})
	w, g := kit.NewWorker(t, c, kit.RareHeartbeats), kit.NewGate()
	g.Handle(w)
	close(g.Open)
	kit.StartLocal(t, w)
	kit.CheckResults(t, runs, func(int) string { return "opened" })
}

// TestStopWhileRowLocked stops a worker while another transaction holds its row in the registry: Run returns without
// waiting for that.
func TestStopWhileRowLocked(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	cfg := kit.RareHeartbeats
	cfg.NoCoordinator = true
	c := kit.NewClient(t, dbtest.OpenPool(t, db.DSN, dbtest.Conns(6)))
	h := hintsOf(t, c)
	defer h.Listen()()
	// the beginning of that would cause a heartbeat, which may wait longer
	await.True(t, "the process listens", h.Listening)
	g, _, stop := kit.Gated(t, c, cfg, 1)
	stopped := kit.Stopping(stop)
	await.True(t, "the worker drains", func() bool {
		return dbtest.QueryOne[string](t, db.Pool, `SELECT status FROM kagzi.workers`) == "DRAINING"
	})
	tx := dbtest.BeginWith(t, db.Pool, kit.LockWorkers)
	begun := time.Now()
	close(g.Open)
	await.Receive(t, stopped)
	took := time.Since(begun)
	t.Logf("Run returned %v after the end of its run", took.Round(time.Millisecond))
	if took > 4*worker.RegistryTimeout { // other calls to the database may take 10 s
		t.Errorf("Run returned %v after the end of its run", took)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestReregisterWhileDraining declares a draining worker dead: it registers under a new ID, as one that drains, and
// goes on to drain.
func TestReregisterWhileDraining(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	c := kit.NewClient(t, dbtest.OpenPool(t, db.DSN, dbtest.Conns(6)))
	cfg := kit.RareHeartbeats
	cfg.DrainTimeout, cfg.NoCoordinator = time.Minute, true
	_, _, stop := kit.Gated(t, c, cfg, 1)
	first := kit.Only(t, c, admin.WorkerFilter{}).ID
	tx := dbtest.BeginWith(t, db.Pool, kit.LockRuns) // the run cannot be yielded, so the worker has not drained
	stopped := kit.Stopping(stop)
	await.True(t, "the worker drains", func() bool {
		return dbtest.QueryOne[string](t, db.Pool, `SELECT status FROM kagzi.workers`) == "DRAINING"
	})
	if err := admin.New(c).Workers.ForceOffline(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	await.True(t, "the worker drains under its new ID", func() bool {
		_, total, err := admin.New(c).Workers.List(t.Context(), admin.WorkerFilter{Status: []string{"DRAINING"}})
		return err == nil && total == 1
	})
	if r, err := admin.New(c).Health(t.Context()); err != nil || r.Workers.Live != 0 || r.Workers.Draining != 1 {
		t.Errorf("workers %+v; want one that drains", r.Workers)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Error(err)
	}
	await.Receive(t, stopped)
	if n := dbtest.QueryOne[int](t, db.Pool, `SELECT count(*) FROM kagzi.workers WHERE status = 'OFFLINE'`); n != 2 {
		t.Errorf("%d workers are OFFLINE, want 2", n)
	}
}

// TestDrainWhileReregistering asks a worker to drain and declares it dead, before it learns of either: it drains all
// the same.
func TestDrainWhileReregistering(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	w := kit.NewWorker(t, kit.NewClient(t, dbtest.OpenPool(t, db.DSN, dbtest.Conns(6))),
		kagzi.WorkerConfig{Heartbeat: 100 * time.Millisecond, NoCoordinator: true})
	kit.NewGate().Handle(w)
	done := kit.RunWorker(t, w)
	await.True(t, "the worker is online", func() bool {
		return dbtest.QueryOne[int](t, db.Pool, `SELECT count(*) FROM kagzi.workers WHERE status = 'ONLINE'`) == 1
	})
	// Drain and DeclareDead write these rows. Both come between two heartbeats, without a notification.
	dbtest.Exec(t, db.Pool, `WITH u AS (UPDATE kagzi.workers SET status = 'OFFLINE', stopped_at = now()
		RETURNING worker_id, namespace_id)
		INSERT INTO kagzi.worker_events (worker_id, event_id, namespace_id, event, detail) SELECT worker_id,
			gen_random_uuid(), namespace_id, 'DRAINING', 'asked to' FROM u`)
	if err := await.Receive(t, done); err != nil {
		t.Errorf("Run: %v", err)
	}
	if n := dbtest.QueryOne[int](t, db.Pool, `SELECT count(*) FROM kagzi.workers WHERE status <> 'OFFLINE'`); n != 0 {
		t.Errorf("%d workers are not OFFLINE", n)
	}
}

// TestDrainQueueLostAnswer loses the answer to the commit of DrainQueue: it still counts the workers that it has asked,
// and notifies them, although their next heartbeats are minutes away.
func TestDrainQueueLostAnswer(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	c := kit.NewClient(t, dbtest.OpenPool(t, db.DSN, dbtest.Conns(6)))
	w := kit.NewWorker(t, c, kit.RareHeartbeats)
	kit.NewGate().Handle(w)
	done := kit.RunWorker(t, w)
	await.True(t, "the worker is online", func() bool {
		return dbtest.QueryOne[int](t, db.Pool, `SELECT count(*) FROM kagzi.workers WHERE status = 'ONLINE'`) == 1
	})
	await.True(t, "the worker listens", hintsOf(t, c).Listening)
	proxy := pgproxy.Start(t, db.DSN)
	far := kit.NewClient(t, dbtest.OpenPool(t, proxy.DSN(), dbtest.Conns(3)))
	drop := proxy.DropAck(pgproxy.After(pgproxy.Contains("INSERT INTO kagzi.worker_events"), pgproxy.Exactly("commit")))
	if n, err := admin.New(far).Workers.DrainQueue(t.Context(), "default"); n != 1 || err != nil {
		t.Errorf("%d workers, %v; want 1", n, err)
	}
	await.Receive(t, drop.Done())
	if err := await.Receive(t, done); err != nil {
		t.Errorf("Run: %v", err)
	}
}
