package housekeeping

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/internal/pgproxy"
	"github.com/kagzi/kagzi/internal/testlog"
	"github.com/kagzi/kagzi/store"
)

// insertDisconnected registers a worker whose connection is gone.
const insertDisconnected = `INSERT INTO kagzi.workers (worker_id, namespace_id, task_queues, workflow_types, status,
	lease_timeout, stale_after, backend_pid, backend_start, server_start)
	SELECT gen_random_uuid(), 'default', ARRAY['default'], ARRAY['w'], 'ONLINE', interval '5 minutes', interval '30 s',
		2147483647, now(), pg_postmaster_start_time()`

// insertSilent registers a worker that has sent no heartbeat for an hour.
const insertSilent = `INSERT INTO kagzi.workers (worker_id, namespace_id, task_queues, workflow_types, status,
	lease_timeout, stale_after, heartbeat_at)
	SELECT gen_random_uuid(), 'default', ARRAY['default'], ARRAY['w'], 'ONLINE', interval '5 minutes', interval '30 s',
		now() - interval '1 hour'`

func TestFailureDetector(t *testing.T) {
	t.Parallel()
	const patience = 3 * time.Second
	begun := time.Now()
	one, two := uuid.New(), uuid.New()
	type check struct {
		at      time.Duration
		workers []store.UnresponsiveWorker
		dead    []uuid.UUID
		next    time.Duration
	}
	worker := func(id uuid.UUID, heartbeat, backend int) store.UnresponsiveWorker {
		return store.UnresponsiveWorker{ID: id, HeartbeatAt: time.UnixMicro(int64(heartbeat)), Backend: int32(backend)}
	}
	for name, checks := range map[string][]check{
		"Dies": {
			{0, []store.UnresponsiveWorker{worker(one, 1, 1)}, nil, patience},
			{time.Second, []store.UnresponsiveWorker{worker(one, 1, 1)}, nil, 2 * time.Second},
			{patience, []store.UnresponsiveWorker{worker(one, 1, 1)}, []uuid.UUID{one}, patience},
		},
		"Reconnects": {
			{0, []store.UnresponsiveWorker{worker(one, 1, 1)}, nil, patience},
			{time.Second, nil, nil, patience},
			{4 * time.Second, []store.UnresponsiveWorker{worker(one, 1, 1)}, nil, patience},
		},
		"SendsHeartbeatsOverConnectionsThatAreLost": {
			{0, []store.UnresponsiveWorker{worker(one, 1, 1)}, nil, patience},
			{4 * time.Second, []store.UnresponsiveWorker{worker(one, 2, 2)}, nil, patience},
			{6 * time.Second, []store.UnresponsiveWorker{worker(one, 3, 2)}, nil, patience},
		},
		"EachAfterItsOwnTimeout": {
			{0, []store.UnresponsiveWorker{worker(one, 1, 1)}, nil, patience},
			{2 * time.Second, []store.UnresponsiveWorker{worker(one, 1, 1), worker(two, 1, 2)}, nil, time.Second},
			{
				patience,
				[]store.UnresponsiveWorker{worker(one, 1, 1), worker(two, 1, 2)},
				[]uuid.UUID{one},
				2 * time.Second,
			},
		},
	} {
		var d failureDetector
		for i, c := range checks {
			dead, next := d.dead(c.workers, begun.Add(c.at), patience)
			var ids []uuid.UUID
			for _, w := range dead {
				ids = append(ids, w.ID)
			}
			if len(ids) != len(c.dead) || len(ids) > 0 && ids[0] != c.dead[0] || next != c.next {
				t.Errorf("%s, check %d: dead %v, next one in %v; want %v, %v", name, i, ids, next, c.dead, c.next)
			}
		}
	}
}

// A coordinator that could not check the connections starts again: it declares no worker dead for a while.
func TestConnectionsAfterAnOutage(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	proxy, err := pgproxy.Listen(db.DSN)
	if err != nil {
		t.Fatal(err)
	}
	pool := dbtest.OpenPool(t, proxy.DSN())
	k := newCoordinator(t, pool, func(cfg *Config) { cfg.Grace = time.Millisecond })
	dbtest.Exec(t, db.Pool, insertDisconnected)
	dead := func() int {
		return dbtest.QueryOne[int](t, db.Pool, `SELECT count(*) FROM kagzi.workers WHERE status = 'OFFLINE'`)
	}
	if _, err := k.CheckConnections(t.Context()); err != nil || len(k.connections.since) != 1 {
		t.Fatalf("%d unresponsive, %v", len(k.connections.since), err)
	}
	if err := proxy.Close(); err != nil {
		t.Error(err)
	}
	if _, err := k.CheckConnections(t.Context()); !pg.Unavailable(err) {
		t.Errorf("INVALID: %v", err)
	}
	k.cfg.Store = store.New(db.Pool, "default")
	for range 3 {
		if _, err := k.CheckConnections(t.Context()); err != nil || dead() != 0 || len(k.connections.since) != 0 {
			t.Errorf("%d dead, %v", dead(), err)
		}
	}
	k.connections.holdOff = time.Time{}
	if _, err := k.CheckConnections(t.Context()); err != nil || len(k.connections.since) != 1 {
		t.Errorf("%d unresponsive, %v", len(k.connections.since), err)
	}
	k.connections.checked = time.Now().Add(-time.Minute) // as though the process had been stopped
	if _, err := k.CheckConnections(t.Context()); err != nil || dead() != 0 || len(k.connections.since) != 0 {
		t.Errorf("after a pause: %d dead, %v", dead(), err)
	}
	k.connections.holdOff = time.Time{}
	await.True(t, "the worker is declared dead", func() bool {
		if _, err := k.CheckConnections(t.Context()); err != nil {
			t.Error(err)
		}
		return dead() == 1
	})
}

func TestConnectionsPause(t *testing.T) {
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
		k := New(Config{Hosted: tt.hosted, Grace: tt.grace, Interval: 5 * time.Second})
		if got := k.connectionsPause(tt.workers); got > tt.most || got < tt.most*3/4-time.Millisecond {
			t.Errorf("%+v: %v", tt, got)
		}
	}
}

// With NoGrace, a lost connection does not make a worker dead.
func TestNoGrace(t *testing.T) {
	t.Parallel()
	for name, off := range map[string]bool{"Off": true, "On": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := dbtest.Database(t)
			k := newCoordinator(t, db.Pool, func(cfg *Config) {
				cfg.Interval, cfg.StaleAfter, cfg.Grace, cfg.NoGrace = 5*time.Millisecond, 15*time.Millisecond,
					5*time.Millisecond, off
			})
			dbtest.Exec(t, db.Pool, insertDisconnected)
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- k.Run(ctx) }()
			for i := 1; i <= 20; i++ { // as many checks
				dbtest.Exec(t, db.Pool, insertSilent)
				await.True(t, "the silent worker is declared dead", func() bool {
					return dbtest.QueryOne[int](t, db.Pool, `SELECT count(*) FROM kagzi.worker_events
						WHERE detail = 'no heartbeat'`) == i
				})
			}
			if lost := dbtest.QueryOne[bool](t, db.Pool,
				`SELECT EXISTS (SELECT FROM kagzi.worker_events WHERE detail = 'connection gone')`); lost == off {
				t.Errorf("lost: %t", lost)
			}
			stop()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
}

// A coordinator declares a worker dead only after it has itself seen the worker unresponsive for a while: an outage may
// explain the silence before.
func TestHeartbeatsAfterAnOutage(t *testing.T) {
	t.Parallel()
	pool := dbtest.Pool(t)
	now := time.Now()
	k := newCoordinator(t, pool, func(cfg *Config) { cfg.Now = func() time.Time { return now } })
	dbtest.Exec(t, pool, insertSilent)
	check := func(after time.Duration, staleAfter string) (online bool) {
		t.Helper()
		now = now.Add(after)
		dbtest.Exec(t, pool, `UPDATE kagzi.workers SET stale_after = $1::interval`, staleAfter)
		if _, err := k.CheckHeartbeats(t.Context()); err != nil {
			t.Fatal(err)
		}
		return dbtest.QueryOne[int](t, pool, `SELECT count(*) FROM kagzi.workers WHERE status = 'ONLINE'`) == 1
	}
	// the last heartbeat is an hour old: older than the first, and than two thirds of the second
	const longer, within = "50 min", "61 min"
	if !check(0, longer) {
		t.Fatal("a worker was declared dead at first sight")
	}
	if !check(15*time.Second, longer) { // it checks every five seconds
		t.Fatal("a worker was declared dead after an outage")
	}
	if !check(5*time.Second, longer) {
		t.Fatal("a worker was declared dead that was unresponsive for less than a third of StaleAfter since the outage")
	}
	if !check(5*time.Second, within) {
		t.Fatal("a worker was declared dead that may be silent for longer")
	}
	if check(0, longer) {
		t.Error("a silent worker was not declared dead")
	}
}

// A dead worker holds two runs, and the database refuses to change one of them. The other is released, and the log says
// once why the first is not.
func TestReleaseLogsTheRunItCannotRelease(t *testing.T) {
	t.Parallel()
	pool := dbtest.Pool(t)
	logged := &testlog.Buffer{}
	k := newCoordinator(t, pool, func(cfg *Config) { cfg.Log = logged.Logger() })
	dbtest.Exec(t, pool, insertSilent)
	id := dbtest.QueryOne[uuid.UUID](t, pool, `SELECT worker_id FROM kagzi.workers`)
	var runs []store.NewRun
	for range 2 {
		runs = append(runs, store.NewRun{RunID: NewRunID(), Spec: store.Spec{Queue: "default", Type: "w", Priority: 2}})
	}
	if _, err := k.cfg.Store.Starts.Start(t.Context(), nil, runs); err != nil {
		t.Fatal(err)
	}
	bad := runs[0].RunID.String()
	dbtest.Exec(t, pool, `UPDATE kagzi.workflow_runs SET status = 'RUNNING', version = 1, started_at = now(),
		locked_by = $1, lease = $2, available_at = now() + interval '1 minute'`, id, uuid.New())
	dbtest.Exec(t, pool, fmt.Sprintf(`
		CREATE FUNCTION public.damaged() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'damaged'
			USING ERRCODE = 'XX001'; END $$;
		CREATE TRIGGER damaged BEFORE UPDATE ON kagzi.workflow_runs FOR EACH ROW
			WHEN (NEW.run_id = '%s') EXECUTE FUNCTION public.damaged()`, bad))
	dbtest.Exec(t, pool, `UPDATE kagzi.workers SET status = 'OFFLINE', stopped_at = now(), release_at = now()`)
	for range 3 {
		if _, err := k.CheckHeartbeats(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := dbtest.QueryOne[int](t, pool, `SELECT count(*) FROM kagzi.workflow_runs WHERE available_at <= now()
			AND run_id <> $1`, bad); n != 1 {
			t.Fatalf("%d others are due, want 1", n)
		}
		dbtest.Exec(t, pool, `UPDATE kagzi.workers SET release_at = now()`)
	}
	logged.WantLine(t, "the coordinator met an error and tries again", "release a run of a dead worker",
		id.String(), bad)
	for _, line := range []string{"release a run of a dead worker", "worker is lost"} {
		if n := strings.Count(logged.String(), line); n != 1 {
			t.Errorf("%q is logged %d times, want once", line, n)
		}
	}
}
