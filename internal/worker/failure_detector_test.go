package worker_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/hints"
	"github.com/kagzi/kagzi/internal/housekeeping"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/outage"
	"github.com/kagzi/kagzi/internal/pgproxy"
	"github.com/kagzi/kagzi/internal/testlog"
	"github.com/kagzi/kagzi/store"
)

// A detector is a coordinator that checks heartbeats when the test asks it to, by a clock that the test sets forward.
type detector struct {
	k   *housekeeping.Coordinator
	now time.Time
}

// detectorPatience is how long a detector must see a worker unresponsive before it declares it dead.
const detectorPatience = time.Second

func newDetector(t *testing.T, db *dbtest.DB) *detector {
	t.Helper()
	d := &detector{now: time.Now()}
	cfg := housekeeping.Config{
		Store: store.New(db.Pool, "default"), Log: testlog.New(t), StaleAfter: 3 * detectorPatience,
		Grace: 3 * time.Second,
		Now:   func() time.Time { return d.now },
	}
	cfg.Hints = hints.New(cfg.Store, cfg.Log, func(context.Context) error { return nil })
	cfg.Outage = outage.New(cfg.Log, cfg.Hints.Reconnect)
	t.Cleanup(cfg.Hints.Flush)
	d.k = housekeeping.New(cfg)
	return d
}

// check checks the heartbeats.
func (d *detector) check(t *testing.T) {
	t.Helper()
	if _, err := d.k.CheckHeartbeats(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// checkLater checks the heartbeats after detectorPatience.
func (d *detector) checkLater(t *testing.T) {
	t.Helper()
	d.now = d.now.Add(detectorPatience)
	d.check(t)
}

func wantNobodyLost(t *testing.T, db *dbtest.DB, when string) {
	t.Helper()
	if n := dbtest.QueryOne[int](t, db.Pool, `SELECT count(*) FROM kagzi.worker_events WHERE event = 'LOST'`); n != 0 {
		t.Errorf("%s: %d live workers were declared dead", when, n)
	}
}

// TestOutageDeclaresNobodyDead has an outage that is longer than workers may be silent, and too short for a coordinator
// to notice. After it, neither a coordinator that checked before the outage nor one that begins now declares a worker
// dead.
func TestOutageDeclaresNobodyDead(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	proxy := pgproxy.Start(t, db.DSN)
	c := kit.NewClient(t, dbtest.OpenPool(t, proxy.DSN(), dbtest.Conns(10)))
	const workers = 4
	for range workers {
		w := kit.NewWorker(t, c, kagzi.WorkerConfig{
			Heartbeat: 200 * time.Millisecond, StaleAfter: time.Second,
			NoCoordinator: true,
		})
		kit.NewGate().Handle(w)
		kit.StartLocal(t, w)
	}
	await.True(t, "all send heartbeats", func() bool {
		return dbtest.QueryOne[int](t, db.Pool, `SELECT count(*) FROM kagzi.workers
			WHERE heartbeat_at > started_at`) == workers
	})
	before := newDetector(t, db)
	before.check(t)
	proxy.Freeze()
	proxy.CutAll()
	await.True(t, "all are silent for too long", func() bool {
		return dbtest.QueryOne[int](t, db.Pool, `SELECT count(*) FROM kagzi.workers
			WHERE heartbeat_at < clock_timestamp() - stale_after`) == workers
	})
	fresh := newDetector(t, db)
	// Both check before any worker can report, as if the database had just come back.
	before.check(t)
	fresh.check(t)
	wantNobodyLost(t, db, "at the end of the outage")
	proxy.Unfreeze()
	back := dbtest.QueryOne[time.Time](t, db.Pool, `SELECT clock_timestamp()`)
	await.True(t, "all have reported", func() bool {
		return dbtest.QueryOne[int](t, db.Pool, `SELECT count(*) FROM kagzi.workers WHERE heartbeat_at > $1`,
			back) == workers
	})
	before.checkLater(t)
	fresh.checkLater(t)
	wantNobodyLost(t, db, "after the outage")
}

// TestClockStep lets the database's clock step forward by more than a worker may be silent. The worker is alive: it is
// not declared dead, neither at once nor after its next heartbeat, and keeps its run.
func TestClockStep(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	c := kit.NewClient(t, dbtest.OpenPool(t, db.DSN, dbtest.Conns(6)))
	cfg := kagzi.WorkerConfig{Heartbeat: 10 * time.Second, StaleAfter: 30 * time.Second, NoCoordinator: true}
	g, runs, _ := kit.Gated(t, c, cfg, 1)
	leases := dbtest.QueryOne[string](t, db.Pool, leasesOfRuns)
	d := newDetector(t, db)
	d.check(t)
	// The test cannot set the clock, so it makes the heartbeat older.
	old := dbtest.QueryOne[time.Time](t, db.Pool,
		`UPDATE kagzi.workers SET heartbeat_at = heartbeat_at - interval '31 s' RETURNING heartbeat_at`)
	d.check(t)
	unharmed(t, db, leases)
	id := dbtest.QueryOne[uuid.UUID](t, db.Pool, `SELECT worker_id FROM kagzi.workers`)
	_ = hintsOf(t, c).Changed(t.Context(), nil, id) // it sends a heartbeat at once
	await.True(t, "the worker sends a heartbeat", func() bool {
		return dbtest.QueryOne[bool](t, db.Pool, `SELECT heartbeat_at > $1::timestamptz + interval '31 s'
			FROM kagzi.workers WHERE status = 'ONLINE'`, old)
	})
	d.checkLater(t)
	unharmed(t, db, leases)
	close(g.Open)
	kit.CheckResults(t, runs, func(int) string { return "opened" })
}

// TestLiveWorkerIsDeclaredDead declares a live worker dead: it learns of that by a notification, although its next
// heartbeat is an hour away, and registers under a new ID.
func TestLiveWorkerIsDeclaredDead(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	c := kit.NewClient(t, dbtest.OpenPool(t, db.DSN, dbtest.Conns(6)))
	cfg := kagzi.WorkerConfig{
		Heartbeat: time.Hour, StaleAfter: 4 * time.Hour, LeaseTimeout: 4 * time.Hour,
		NoCoordinator: true,
	}
	g, runs, _ := kit.Gated(t, c, cfg, 1)
	await.True(t, "the worker listens", hintsOf(t, c).Listening)
	d := newDetector(t, db) // of another client: the worker can learn of its checks only through the database
	// It is not declared dead if it sends a heartbeat meanwhile, as it does when it begins to listen.
	await.True(t, "the worker is declared dead", func() bool {
		dbtest.Exec(t, db.Pool, `UPDATE kagzi.workers SET heartbeat_at = now() - interval '5 hours'`)
		d.check(t)
		d.checkLater(t)
		return dbtest.QueryOne[int](t, db.Pool, `SELECT count(*) FROM kagzi.worker_events WHERE event = 'LOST'`) == 1
	})
	g.LosesLeases(t, len(runs))
	await.True(t, "the worker is registered again", func() bool {
		return dbtest.QueryOne[int](t, db.Pool, `SELECT count(*) FROM kagzi.workers WHERE status = 'ONLINE'`) == 1
	})
	close(g.Open)
	kit.CheckResults(t, runs, func(int) string { return "opened" })
}
