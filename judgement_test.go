//go:build unix

package kagzi

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/pgproxy"
)

// sweeper is a coordinator of db's whose passes the test makes.
func sweeper(t *testing.T, db *dbtest.DB) *Coordinator {
	t.Helper()
	k := newTestCoordinator(t, newTestClient(t, db.Pool), CoordinatorConfig{})
	return k
}

// swept makes a pass.
func (k *Coordinator) swept(t *testing.T) {
	t.Helper()
	if _, err := k.sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// watched makes what k remembers of silent workers as old as the time for which it must have seen them.
func (k *Coordinator) watched() {
	for s, since := range k.silent.gone {
		k.silent.gone[s] = since.Add(-k.cfg.StaleAfter/3 - time.Millisecond)
	}
}

func wantNobodyLost(t *testing.T, db *dbtest.DB, when string) {
	t.Helper()
	if n := queryOne[int](t, db.Pool, `SELECT count(*) FROM kagzi.worker_events WHERE event = 'LOST'`); n != 0 {
		t.Errorf("%s: %d live workers were declared dead", when, n)
	}
}

// TestOutageJudgesNobody has an outage that lasts longer than workers may be silent, and shorter than what a coordinator
// would remark: when it is over, neither one that looked before nor one that begins now takes any of them for dead.
func TestOutageJudgesNobody(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	proxy := pgproxy.Start(t, db.DSN)
	c := newTestClient(t, openPool(t, proxy.DSN(), 10))
	const workers = 4
	for range workers {
		w := newTestWorker(t, c, WorkerConfig{Heartbeat: 200 * time.Millisecond, StaleAfter: time.Second, NoCoordinator: true})
		newGate().handle(w)
		startLocal(t, w)
	}
	waitFor(t, "all send heartbeats", func() bool {
		return queryOne[int](t, db.Pool, `SELECT count(*) FROM kagzi.workers WHERE heartbeat_at > started_at`) == workers
	})
	before := sweeper(t, db)
	before.swept(t)
	proxy.Freeze()
	proxy.CutAll()
	waitFor(t, "all are silent for too long", func() bool {
		return queryOne[int](t, db.Pool, `SELECT count(*) FROM kagzi.workers WHERE heartbeat_at < clock_timestamp() - stale_after`) == workers
	})
	fresh := sweeper(t, db)
	// Both look before any of the workers can: this is when the database is back.
	before.swept(t)
	fresh.swept(t)
	wantNobodyLost(t, db, "at the end of the outage")
	proxy.Unfreeze()
	back := queryOne[time.Time](t, db.Pool, `SELECT clock_timestamp()`)
	waitFor(t, "all have reported", func() bool {
		return queryOne[int](t, db.Pool, `SELECT count(*) FROM kagzi.workers WHERE heartbeat_at > $1`, back) == workers
	})
	before.watched()
	fresh.watched()
	before.swept(t)
	fresh.swept(t)
	wantNobodyLost(t, db, "after the outage")
}

// TestClockStep lets the database's clock step forward by more than a worker may be silent. The worker lives: it is not
// lost, neither at first sight nor once it has sent its next heartbeat, and keeps its run.
func TestClockStep(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	c := newTestClient(t, openPool(t, db.DSN, 6))
	cfg := WorkerConfig{Heartbeat: 10 * time.Second, StaleAfter: 30 * time.Second, NoCoordinator: true}
	g, runs, _ := gated(t, c, cfg, 1)
	leases := queryOne[string](t, db.Pool, leasesOfRuns)
	k := sweeper(t, db)
	k.swept(t)
	// The clock stays: it is the heartbeat that becomes older.
	old := queryOne[time.Time](t, db.Pool, `UPDATE kagzi.workers SET heartbeat_at = heartbeat_at - interval '31 s' RETURNING heartbeat_at`)
	k.swept(t)
	unharmed(t, db, leases)
	id := queryOne[uuid.UUID](t, db.Pool, `SELECT worker_id FROM kagzi.workers`)
	_ = c.hints.Changed(t.Context(), nil, id) // it sends its heartbeat now, and the test need not wait
	waitFor(t, "the worker sends a heartbeat", func() bool {
		return queryOne[bool](t, db.Pool, `SELECT heartbeat_at > $1::timestamptz + interval '31 s' FROM kagzi.workers WHERE status = 'ONLINE'`, old)
	})
	k.watched()
	k.swept(t)
	unharmed(t, db, leases)
	close(g.open)
	checkResults(t, runs, func(int) string { return "opened" })
}

// TestBuriedAlive declares a worker dead that lives: it learns of that by a notification, though its next heartbeat is an
// hour away, and goes on under a new ID.
func TestBuriedAlive(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	c := newTestClient(t, openPool(t, db.DSN, 6))
	cfg := WorkerConfig{Heartbeat: time.Hour, StaleAfter: 4 * time.Hour, LeaseTimeout: 4 * time.Hour, NoCoordinator: true}
	g, runs, _ := gated(t, c, cfg, 1)
	waitFor(t, "the worker listens", c.hints.Listening)
	k := sweeper(t, db) // of another client: only the database can tell the worker
	execSQL(t, db.Pool, `UPDATE kagzi.workers SET heartbeat_at = now() - interval '5 hours'`)
	k.swept(t)
	k.watched()
	k.swept(t)
	if n := queryOne[int](t, db.Pool, `SELECT count(*) FROM kagzi.worker_events WHERE event = 'LOST'`); n != 1 {
		t.Fatalf("INVALID: %d workers were declared dead, want 1", n)
	}
	g.losesLeases(t, len(runs))
	waitFor(t, "the worker is registered anew", func() bool {
		return queryOne[int](t, db.Pool, `SELECT count(*) FROM kagzi.workers WHERE status = 'ONLINE'`) == 1
	})
	close(g.open)
	checkResults(t, runs, func(int) string { return "opened" })
}
