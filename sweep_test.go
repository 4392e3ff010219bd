//go:build unix

package kagzi

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/pgproxy"
	"github.com/kagzi/kagzi/store"
)

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
	c := newTestClient(t, pool)
	k := newTestCoordinator(t, c, CoordinatorConfig{})
	k.cfg.Grace = time.Millisecond
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
	k.client = newTestClient(t, db.Pool)
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
	waitFor(t, "it is declared dead at last", func() bool {
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
			cfg := CoordinatorConfig{Interval: 5 * time.Millisecond, StaleAfter: 15 * time.Millisecond, NoGrace: off}
			k := newTestCoordinator(t, newTestClient(t, db.Pool), cfg)
			k.cfg.Grace = 5 * time.Millisecond
			execSQL(t, db.Pool, insertGone)
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- k.Run(ctx) }()
			for i := 1; i <= 20; i++ { // as many sweeps
				execSQL(t, db.Pool, `INSERT INTO kagzi.workers (worker_id, namespace_id, task_queue, workflow_types, status, visibility_timeout, stale_after, heartbeat_at)
					SELECT gen_random_uuid(), 'default', 'default', ARRAY['w'], 'ONLINE', interval '5 minutes', interval '30 s', now() - interval '1 hour'`)
				waitFor(t, "the silent one is lost", func() bool {
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

// A coordinator takes nobody for dead whose silence it has not seen itself for a while: what was before, an outage may
// explain.
func TestSweepSeesTheSilenceItself(t *testing.T) {
	k := newKit(t)
	id := uuid.New()
	online := func() bool {
		return k.count(`SELECT count(*) FROM kagzi.workers WHERE worker_id = $1 AND status = 'ONLINE'`, id) == 1
	}
	w := newTestWorker(t, k.c, WorkerConfig{StaleAfter: 30 * time.Second})
	Handle(w, report, func(Context, string) (string, error) { return "", nil })
	if err := k.c.store.RegisterWorker(k.ctx, k.pool, w.registration(id)); err != nil {
		t.Fatal(err)
	}
	co := k.coordinator()
	pass := func(silent string, seen time.Duration) { // so long after the one before
		t.Helper()
		k.exec(`UPDATE kagzi.workers SET heartbeat_at = clock_timestamp() - $1::interval `, silent)
		for s := range co.silent.gone {
			at := co.silent.gone[s]
			delete(co.silent.gone, s)
			s.heartbeat = k.heartbeat(id)
			co.silent.gone[s] = at.Add(-seen)
		}
		if _, err := co.sweep(k.ctx); err != nil {
			t.Fatal(err)
		}
	}
	pass("40 s", 0)
	if !online() {
		t.Fatal("a worker was judged at first sight")
	}
	co.silent.last = time.Now().Add(-15 * time.Second) // it looks every five
	pass("55 s", 15*time.Second)
	if !online() {
		t.Fatal("a worker was judged by its silence in an outage")
	}
	pass("29 s", 11*time.Second)
	if !online() {
		t.Fatal("a worker was judged before it had been silent for as long as it may")
	}
	pass("31 s", 0)
	if online() {
		t.Error("a silent worker was not missed")
	}
}

func (k *kit) heartbeat(id uuid.UUID) int64 {
	k.t.Helper()
	return queryOne[time.Time](k.t, k.pool, `SELECT heartbeat_at FROM kagzi.workers WHERE worker_id = $1`, id).UnixMicro()
}

// TestSweepSaysWhatItCannotFree has a dead worker hold two runs, of which the database refuses to change one: the other is
// free, and the log says why the one is not, once.
func TestSweepSaysWhatItCannotFree(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	c, logged := loggedClient(t, db.Pool)
	k := &kit{t: t, ctx: testContext(t), pool: db.Pool, c: c}
	w := newTestWorker(t, c, WorkerConfig{StaleAfter: 30 * time.Second})
	Handle(w, nothing, func(Context, int) (string, error) { return "", nil })
	id := uuid.New()
	if err := c.store.RegisterWorker(k.ctx, k.pool, w.registration(id)); err != nil {
		t.Fatal(err)
	}
	bad := string(startRuns(t, c, nothing, 2)[0].ID())
	k.exec(`UPDATE kagzi.workflow_runs SET status = 'RUNNING', version = 1, started_at = now(), locked_by = $1, lease = $2, available_at = now() + interval '1 minute'`, id, uuid.New())
	k.exec(fmt.Sprintf(`
		CREATE FUNCTION public.damaged() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'damaged' USING ERRCODE = 'XX001'; END $$;
		CREATE TRIGGER damaged BEFORE UPDATE ON kagzi.workflow_runs FOR EACH ROW WHEN (NEW.run_id = '%s') EXECUTE FUNCTION public.damaged()`, bad))
	k.exec(`UPDATE kagzi.workers SET status = 'OFFLINE', stopped_at = now(), release_at = now()`)
	co := k.coordinator()
	for range 3 {
		if _, err := co.sweep(k.ctx); err != nil {
			t.Fatal(err)
		}
		if n := k.count(`SELECT count(*) FROM kagzi.workflow_runs WHERE available_at <= now() AND run_id <> $1`, bad); n != 1 {
			t.Fatalf("%d others are due, want 1", n)
		}
		k.exec(`UPDATE kagzi.workers SET release_at = now()`)
	}
	logged.wantLine(t, "the coordinator met an error and goes on", "free a run of a dead worker", id.String(), bad)
	for _, line := range []string{"free a run of a dead worker", "worker is lost"} {
		if n := strings.Count(logged.String(), line); n != 1 {
			t.Errorf("%q is logged %d times, want once", line, n)
		}
	}
}
