//go:build unix

package kagzi

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/localpg"
	"github.com/kagzi/kagzi/internal/pgproxy"
	"github.com/kagzi/kagzi/store"
)

// mute is a worker whose heartbeats come too rarely for a test to see one that nothing has caused.
var mute = WorkerConfig{Heartbeat: 10 * time.Minute, StaleAfter: 30 * time.Minute, VisibilityTimeout: time.Hour}

// TestKillIsNoticedByTheConnection kills a worker process of default settings: another one, of default settings too,
// executes its run long before anybody could miss a heartbeat.
func TestKillIsNoticedByTheConnection(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	c := quietClient(t, db.Pool)
	dir := t.TempDir()
	release := filepath.Join(dir, "release")
	victim := startProcess(t, workerSpec{DSN: db.DSN, Ledger: filepath.Join(dir, "victim")})
	run, err := Start(t.Context(), c, holding, release)
	if err != nil {
		t.Fatal(err)
	}
	pollUntil(t, "the step begins", func() bool { return countIn(t, filepath.Join(dir, "victim"), "BEGIN") == 1 })
	startProcess(t, workerSpec{DSN: db.DSN, Ledger: filepath.Join(dir, "rescuer")})
	pollUntil(t, "the other worker starts", func() bool {
		return queryOne[int](t, db.Pool, `SELECT count(*) FROM kagzi.workers WHERE backend_pid IS NOT NULL`) == 2
	})
	if err := victim.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	victim.killed(t)
	pollUntil(t, "the step begins elsewhere", func() bool { return countIn(t, filepath.Join(dir, "rescuer"), "BEGIN") == 1 })
	took := time.Since(killed)
	t.Logf("executing elsewhere %v after the kill", took.Round(time.Millisecond))
	if took > 15*time.Second { // 5 on a machine that has time
		t.Errorf("that took %v", took)
	}
	if info, err := run.Info(t.Context()); err != nil || info.Recoveries != 1 || info.Attempts != 0 {
		t.Errorf("recoveries %d, attempts %d, %v; want 1 and 0", info.Recoveries, info.Attempts, err)
	}
	page, total, err := c.Workers(t.Context(), WorkerFilter{Status: []WorkerStatus{WorkerOffline}})
	if err != nil || total != 1 || page[0].PID != victim.cmd.Process.Pid || page[0].StoppedAt.IsZero() || page[0].Active != 0 {
		t.Fatalf("offline %+v, %v; want the victim", page, err)
	}
	events, err := c.WorkerEvents(t.Context(), page[0].ID)
	if err != nil || len(events) != 2 || events[1].Event != "LOST" || events[1].Detail != "connection gone" {
		t.Errorf("events %+v, %v", events, err)
	}
	touch(t, release)
	if got, err := run.Result(testContext(t)); err != nil || got != "held" {
		t.Errorf("got %q, %v", got, err)
	}
}

// watchedBackend is the process ID of the worker's connection, zero if there is no evidence.
const watchedBackend = `SELECT coalesce(min(backend_pid), 0) FROM kagzi.workers WHERE status = 'ONLINE'`

// unharmed fails the test unless all runs are where they were.
func unharmed(t *testing.T, db *dbtest.DB, leases string) {
	t.Helper()
	if got := queryOne[string](t, db.Pool, leasesOfRuns); got != leases {
		t.Errorf("leases %s, want %s", got, leases)
	}
	if n := queryOne[int](t, db.Pool, `SELECT count(*) FROM kagzi.worker_events WHERE event = 'LOST'`); n != 0 {
		t.Errorf("%d workers were declared dead", n)
	}
}

const leasesOfRuns = `SELECT string_agg(concat_ws(' ', run_id, status, lease, recoveries, available_at < now()), ', ' ORDER BY run_id) FROM kagzi.workflow_runs`

// TestLostConnectionsOfALiveWorker ends the connections of a worker that lives, all of them and again: it reconnects and
// says so, though no heartbeat is due for minutes, and keeps its runs.
func TestLostConnectionsOfALiveWorker(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	c := quietClient(t, openPool(t, db.DSN, 6))
	g, runs, _ := gated(t, c, mute, 3)
	leases := queryOne[string](t, db.Pool, leasesOfRuns)
	pollUntil(t, "the worker listens", c.hub.listening)
	direct := quietClient(t, db.Pool)
	for _, all := range []bool{false, true, true} { // first the heart's alone: no other that is lost wakes it
		old := queryOne[int](t, db.Pool, watchedBackend)
		if old == 0 {
			t.Fatal("the worker's connection is no evidence")
		}
		n := queryOne[int](t, db.Pool, `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
			WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> ALL ($1::int[]) AND ($2 OR pid = $3)`, backendsOf(t, db), all, old)
		if n == 0 || all && n < 3 {
			t.Errorf("INVALID: %d connections were ended, want the heart's, the listener's and some of the pool's", n)
		}
		pollUntil(t, "the worker says over which connection it lives", func() bool {
			return queryOne[int](t, db.Pool, watchedBackend) != old
		})
		if gone, watched, err := direct.store.GoneWorkers(t.Context()); err != nil || len(gone) != 0 || watched != 1 {
			t.Errorf("gone %v of %d, %v", gone, watched, err)
		}
		unharmed(t, db, leases)
		pollUntil(t, "the worker listens again", c.hub.listening)
	}
	close(g.open)
	checkResults(t, runs, func(int) string { return "opened" })
	if len(g.cause) > 0 {
		t.Errorf("a step's context ended: %v", <-g.cause)
	}
}

// backendsOf are the process IDs of the test's own connections.
func backendsOf(t *testing.T, db *dbtest.DB) (pids []int32) {
	t.Helper()
	for _, conn := range db.Pool.AcquireAllIdle(t.Context()) {
		pids = append(pids, int32(conn.Conn().PgConn().PID()))
		conn.Release()
	}
	return pids
}

// TestServerTakesNoConnections ends the connection of a worker while the server refuses new ones: it goes on to beat over
// the pool's, and says that there is no evidence for the time being.
func TestServerTakesNoConnections(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	cfg := mute
	g, runs, _ := gated(t, quietClient(t, openPool(t, db.DSN, 6)), cfg, 2)
	leases := queryOne[string](t, db.Pool, leasesOfRuns)
	admin := maintenance(t, db)
	name := queryOne[string](t, db.Pool, `SELECT current_database()`)
	allow := func(yes string) {
		t.Helper()
		if _, err := admin.Exec(context.Background(), `ALTER DATABASE `+name+` ALLOW_CONNECTIONS `+yes); err != nil {
			t.Fatal(err)
		}
	}
	allow("false")
	defer allow("true")
	execSQL(t, db.Pool, `SELECT pg_terminate_backend(backend_pid) FROM kagzi.workers`)
	pollUntil(t, "the worker beats over the pool", func() bool { return queryOne[int](t, db.Pool, watchedBackend) == 0 })
	unharmed(t, db, leases)
	allow("true")
	close(g.open)
	checkResults(t, runs, func(int) string { return "opened" })
}

// maintenance is a connection to another database of the server's.
func maintenance(t *testing.T, db *dbtest.DB) *pgx.Conn {
	t.Helper()
	cfg := db.Pool.Config().ConnConfig
	cfg.Database = "postgres"
	conn, err := pgx.ConnectConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// TestServerRestartJudgesNobody restarts the server below a worker that lives: that its old connection is gone says
// nothing to a server that never had it.
func TestServerRestartJudgesNobody(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	server, err := localpg.Start(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	pool := openPool(t, server.DSN(), 10)
	if err := Migrate(ctx, pool); err != nil {
		t.Fatal(err)
	}
	cfg := mute
	cfg.Coordinator.Grace = 50 * time.Millisecond
	g, runs, _ := gated(t, quietClient(t, pool), cfg, 3)
	answers := func(sql string) func() bool {
		return func() bool {
			var yes bool
			return pool.QueryRow(ctx, sql).Scan(&yes) == nil && yes
		}
	}
	pollUntil(t, "the worker is registered", answers(`SELECT server_start = pg_postmaster_start_time() FROM kagzi.workers`))
	execSQL(t, pool, `CHECKPOINT`) // a claim's commit does not wait for the disk
	if err := server.Restart(ctx, localpg.Immediate); err != nil {
		t.Fatal(err)
	}
	pollUntil(t, "the worker lives on the new server", answers(`SELECT server_start = pg_postmaster_start_time() FROM kagzi.workers WHERE status = 'ONLINE'`))
	close(g.open)
	checkResults(t, runs, func(int) string { return "opened" })
	if n := queryOne[int](t, pool, `SELECT (SELECT count(*) FROM kagzi.worker_events WHERE event = 'LOST') + (SELECT sum(recoveries) FROM kagzi.workflow_runs)`); n != 0 {
		t.Errorf("%d workers and runs were lost", n)
	}
	if len(g.cause) > 0 {
		t.Errorf("a step's context ended: %v", <-g.cause)
	}
}

// TestPoolerLeavesNoEvidence shows that nothing is concluded from connections that a pooler shares out.
func TestPoolerLeavesNoEvidence(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	c := quietClient(t, openPool(t, startPooler(t, db), 10))
	g, runs, _ := gated(t, c, WorkerConfig{Heartbeat: 50 * time.Millisecond}, 1)
	from := queryOne[time.Time](t, db.Pool, `SELECT clock_timestamp()`)
	pollUntil(t, "the worker has sent heartbeats", func() bool {
		return queryOne[bool](t, db.Pool, `SELECT heartbeat_at > $1::timestamptz + interval '200 ms' FROM kagzi.workers`, from)
	})
	page, _, err := c.Workers(t.Context(), WorkerFilter{})
	if err != nil || len(page) != 1 || page[0].Watched {
		t.Errorf("workers %+v, %v; want one that is not watched", page, err)
	}
	if gone, watched, err := c.store.GoneWorkers(t.Context()); err != nil || len(gone) != 0 || watched != 0 {
		t.Errorf("gone %v of %d, %v", gone, watched, err)
	}
	conn, err := c.store.Pool().Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	if b, err := c.store.BackendOf(t.Context(), conn.Conn()); err != nil || b != (store.Backend{}) {
		t.Errorf("a connection through the pooler has the backend %+v, %v", b, err)
	}
	close(g.open)
	checkResults(t, runs, func(int) string { return "opened" })
}

// TestSharedBackendIsNoEvidence lets a heart believe in a backend that is not its connection's: the first beat finds out.
func TestSharedBackendIsNoEvidence(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	w := newTestWorker(t, quietClient(t, db.Pool), mute)
	newGate().handle(w)
	h := newHeart(newSession(w))
	if err := h.begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer h.end()
	h.backend.PID++
	if err := h.beat(); err != nil {
		t.Fatal(err)
	}
	if pid := queryOne[int](t, db.Pool, watchedBackend); pid != 0 || h.backend != (store.Backend{}) {
		t.Errorf("the evidence is %d", pid)
	}
}

// ---- the coordinator's memory ----

// insertGone registers a worker whose connection is gone.
const insertGone = `INSERT INTO kagzi.workers (worker_id, namespace_id, task_queue, workflow_types, status, visibility_timeout, stale_after, backend_pid, backend_start, server_start)
	SELECT gen_random_uuid(), 'default', 'default', ARRAY['w'], 'ONLINE', interval '5 minutes', interval '30 s', 2147483647, now(), pg_postmaster_start_time()`

func TestWatchJudges(t *testing.T) {
	t.Parallel()
	const grace = 3 * time.Second
	begun := time.Now()
	one, two := uuid.New(), uuid.New()
	type look struct {
		at   time.Duration
		gone []store.Suspect
		dead []uuid.UUID
		next time.Duration
	}
	suspect := func(id uuid.UUID, beat, backend int) store.Suspect {
		return store.Suspect{ID: id, HeartbeatAt: time.UnixMicro(int64(beat)), Backend: int32(backend)}
	}
	for name, looks := range map[string][]look{
		"Dies": {
			{0, []store.Suspect{suspect(one, 1, 1)}, nil, grace},
			{time.Second, []store.Suspect{suspect(one, 1, 1)}, nil, 2 * time.Second},
			{grace, []store.Suspect{suspect(one, 1, 1)}, []uuid.UUID{one}, grace},
		},
		"Reconnects": {
			{0, []store.Suspect{suspect(one, 1, 1)}, nil, grace},
			{time.Second, nil, nil, grace},
			{4 * time.Second, []store.Suspect{suspect(one, 1, 1)}, nil, grace},
		},
		"BeatsOverAnotherThatIsGoneAgain": {
			{0, []store.Suspect{suspect(one, 1, 1)}, nil, grace},
			{4 * time.Second, []store.Suspect{suspect(one, 2, 2)}, nil, grace},
			{6 * time.Second, []store.Suspect{suspect(one, 3, 2)}, nil, grace},
		},
		"EachInItsTime": {
			{0, []store.Suspect{suspect(one, 1, 1)}, nil, grace},
			{2 * time.Second, []store.Suspect{suspect(one, 1, 1), suspect(two, 1, 2)}, nil, time.Second},
			{grace, []store.Suspect{suspect(one, 1, 1), suspect(two, 1, 2)}, []uuid.UUID{one}, 2 * time.Second},
		},
	} {
		var w watch
		for i, l := range looks {
			dead, next := w.judge(l.gone, begun.Add(l.at), grace)
			var ids []uuid.UUID
			for _, d := range dead {
				ids = append(ids, d.ID)
			}
			if len(ids) != len(l.dead) || len(ids) > 0 && ids[0] != l.dead[0] || next != l.next {
				t.Errorf("%s, look %d: dead %v, next look in %v; want %v, %v", name, i, ids, next, l.dead, l.next)
			}
		}
	}
}

// TestWatchForgetsInAnOutage shows that a coordinator which could not look concludes nothing from what it saw before, and
// for a while from what it sees.
func TestWatchForgetsInAnOutage(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	proxy, err := pgproxy.Listen(db.DSN)
	if err != nil {
		t.Fatal(err)
	}
	pool := openPool(t, proxy.DSN(), 2)
	c := quietClient(t, pool)
	k, err := NewCoordinator(c, CoordinatorConfig{Grace: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	execSQL(t, db.Pool, insertGone)
	dead := func() int {
		return queryOne[int](t, db.Pool, `SELECT count(*) FROM kagzi.workers WHERE status = 'OFFLINE'`)
	}
	if _, err := k.watchConnections(t.Context()); err != nil || len(k.watch.gone) != 1 {
		t.Fatalf("%d gone, %v", len(k.watch.gone), err)
	}
	if err := proxy.Close(); err != nil {
		t.Error(err)
	}
	if _, err := k.watchConnections(t.Context()); !store.Away(err) {
		t.Errorf("INVALID: %v", err)
	}
	k.client = quietClient(t, db.Pool)
	for range 3 {
		if _, err := k.watchConnections(t.Context()); err != nil || dead() != 0 || len(k.watch.gone) != 0 {
			t.Errorf("%d dead, %v", dead(), err)
		}
	}
	k.watch.quiet = time.Time{}
	if _, err := k.watchConnections(t.Context()); err != nil || len(k.watch.gone) != 1 {
		t.Errorf("%d gone, %v", len(k.watch.gone), err)
	}
	k.watch.last = time.Now().Add(-time.Minute) // as if the process had been frozen
	if _, err := k.watchConnections(t.Context()); err != nil || dead() != 0 || len(k.watch.gone) != 0 {
		t.Errorf("after a pause: %d dead, %v", dead(), err)
	}
	k.watch.quiet = time.Time{}
	pollUntil(t, "it is declared dead at last", func() bool {
		if _, err := k.watchConnections(t.Context()); err != nil {
			t.Error(err)
		}
		return dead() == 1
	})
}

func TestWatchPause(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		hosted  bool
		grace   time.Duration
		workers int
		most    time.Duration
	}{
		{true, 3 * time.Second, 1, time.Second},
		{true, 3 * time.Second, 60, 3 * time.Second},
		{true, 3 * time.Second, 5000, 5 * time.Second},
		{false, 3 * time.Second, 5000, time.Second},
		{false, 100 * time.Millisecond, 1, 100 * time.Millisecond},
	} {
		k := &Coordinator{hosted: tt.hosted, cfg: CoordinatorConfig{Grace: tt.grace}.withDefaults()}
		if got := k.watchPause(tt.workers); got > tt.most || got < tt.most*3/4-time.Millisecond {
			t.Errorf("%+v: %v", tt, got)
		}
	}
}

// TestNoGrace shows that without the rule a connection that is gone means nothing.
func TestNoGrace(t *testing.T) {
	t.Parallel()
	for name, off := range map[string]bool{"Off": true, "On": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := dbtest.Database(t)
			k, err := NewCoordinator(quietClient(t, db.Pool), CoordinatorConfig{Interval: 5 * time.Millisecond, Grace: 5 * time.Millisecond, NoGrace: off})
			if err != nil {
				t.Fatal(err)
			}
			execSQL(t, db.Pool, insertGone)
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- k.Run(ctx) }()
			for i := 1; i <= 20; i++ { // as many sweeps
				execSQL(t, db.Pool, `INSERT INTO kagzi.workers (worker_id, namespace_id, task_queue, workflow_types, status, visibility_timeout, stale_after, heartbeat_at)
					SELECT gen_random_uuid(), 'default', 'default', ARRAY['w'], 'ONLINE', interval '5 minutes', interval '30 s', now() - interval '1 hour'`)
				pollUntil(t, "the silent one is lost", func() bool {
					return queryOne[int](t, db.Pool, `SELECT count(*) FROM kagzi.worker_events WHERE detail = 'no heartbeat'`) == i
				})
			}
			if lost := queryOne[bool](t, db.Pool, `SELECT EXISTS (SELECT FROM kagzi.worker_events WHERE detail = 'connection gone')`); lost == off {
				t.Errorf("lost: %t", lost)
			}
			stop()
			if err := receive(t, done); err != nil {
				t.Error(err)
			}
		})
	}
}
