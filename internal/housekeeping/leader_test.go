package housekeeping

import (
	"bytes"
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/hints"
	"github.com/kagzi/kagzi/internal/pgproxy"
	"github.com/kagzi/kagzi/store"
)

// A coordinator rests for a senior one that it hears, and works again soon when it hears none.
func TestCoordinatorRestsForASeniorOne(t *testing.T) {
	t.Parallel()
	cfg := &Config{Interval: 5 * time.Second, StaleAfter: 30 * time.Second, Grace: 3 * time.Second}
	older := newLeadership(cfg)
	senior := hints.Lead{ID: older.id, Interval: cfg.Interval, StaleAfter: cfg.StaleAfter, Grace: cfg.Grace}
	with := func(change func(*hints.Lead)) hints.Lead {
		l := senior
		change(&l)
		return l
	}
	for name, tt := range map[string]struct {
		leads []hints.Lead
		rests bool
	}{
		"Nobody":        {nil, false},
		"Senior":        {[]hints.Lead{senior}, true},
		"Quicker":       {[]hints.Lead{with(func(l *hints.Lead) { l.Interval = time.Second })}, true},
		"Junior":        {[]hints.Lead{with(func(l *hints.Lead) { l.ID = uuid.Max })}, false},
		"OlderProgram":  {[]hints.Lead{with(func(l *hints.Lead) { l.Schema-- })}, false},
		"NewerProgram":  {[]hints.Lead{with(func(l *hints.Lead) { l.Schema++ })}, true},
		"RareChecks":    {[]hints.Lead{with(func(l *hints.Lead) { l.Interval = time.Minute })}, false},
		"LongerGrace":   {[]hints.Lead{with(func(l *hints.Lead) { l.Grace = time.Minute })}, false},
		"LongerSilence": {[]hints.Lead{with(func(l *hints.Lead) { l.StaleAfter = time.Minute })}, false},
		"Ends":          {[]hints.Lead{senior, with(func(l *hints.Lead) { l.Ends = true })}, false},
		"AnotherEnds":   {[]hints.Lead{senior, with(func(l *hints.Lead) { l.ID, l.Ends = uuid.New(), true })}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := newLeadership(cfg)
				l.id = uuid.Must(uuid.Parse("7fffffff-ffff-7fff-bfff-ffffffffffff"))
				if bytes.Compare(older.id[:], l.id[:]) >= 0 {
					t.Fatal("INVALID: the other is not older")
				}
				for _, lead := range tt.leads {
					l.hear(lead)
				}
				begun := time.Now()
				if l.rests() > 0 != tt.rests {
					t.Errorf("rests for %v, want a rest: %t", l.rests(), tt.rests)
				}
				l.awaitTurn(t.Context())
				if silence := time.Since(begun); tt.rests &&
					(silence < leaderSilence || silence > leaderSilence+leaderSpread) {
					t.Errorf("works after a silence of %v", silence)
				}
			})
		})
	}
}

// A coordinator of which one loop fails or is late does not let the others rest.
func TestLateCoordinatorDoesNotLead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLeadership(&Config{})
		want := func(when string, want bool) {
			t.Helper()
			if got := l.isOnTime("a", "b"); got != want {
				t.Errorf("%s: on time is %t", when, got)
			}
		}
		l.passed("a", 5*time.Second)
		want("before the first pass of the other", false)
		l.passed("b", time.Second)
		want("after both", true)
		time.Sleep(3 * time.Second)
		want("when one is late", false)
		l.passed("b", time.Second)
		want("when it is back", true)
		l.failed("a")
		want("when the other has failed", false)
	})
}

// A namespace has a leader if it has several workers, and not too small a part of the database's backends.
func TestNeedsLeader(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		workers, backends int
		want              bool
	}{{0, 0, false}, {1, 10, false}, {2, 100, true}, {2, 101, false}, {100, 5000, true}, {100, 5001, false}} {
		if got := needsLeader(&store.FleetCheck{Workers: tt.workers, Backends: tt.backends}); got != tt.want {
			t.Errorf("%d workers, %d backends: %t", tt.workers, tt.backends, got)
		}
	}
}

// The leader searches for work every few seconds, and for at most a tenth of the time.
func TestUntilNextSearch(t *testing.T) {
	t.Parallel()
	if got := untilNextSearch(time.Millisecond); got > searchEvery || got < searchEvery/2 {
		t.Errorf("after a quick search %v", got)
	}
	for _, took := range []time.Duration{longestSearch, time.Second, time.Minute} {
		if got := untilNextSearch(took); got < 9*took {
			t.Errorf("after a search of %v only %v", took, got)
		}
	}
}

// Of two coordinators one works. When it stops, the other finds a dead worker.
func TestAnotherCoordinatorTakesOver(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	for range 2 { // the registry shows a fleet
		dbtest.Exec(t, db.Pool, `INSERT INTO kagzi.workers (worker_id, namespace_id, task_queues, workflow_types,
			status, lease_timeout, stale_after)
			SELECT gen_random_uuid(), 'default', ARRAY['default'], ARRAY['w'], 'ONLINE', interval '5 minutes',
				interval '1 hour'`)
	}
	run := func(k *Coordinator) (stop func()) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- k.Run(ctx) }()
		return func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}
	short := func(cfg *Config) { cfg.Interval, cfg.Grace = time.Second, time.Second }
	first, second := newCoordinator(t, db.Pool, short), newCoordinator(t, db.Pool, short)
	stopFirst := run(first)
	await.True(t, "the first has begun", first.cfg.Hints.Listening)
	stopSecond := run(second)
	defer stopSecond()
	await.True(t, "the second rests", func() bool { return second.leadership.rests() > 0 })
	stopFirst()
	dbtest.Exec(t, db.Pool, insertDisconnected)
	await.True(t, "the dead worker is found", func() bool {
		return dbtest.QueryOne[bool](t, db.Pool, `SELECT EXISTS (SELECT FROM kagzi.worker_events WHERE event = 'LOST')`)
	})
}

// A leader whose notification is not answered goes on checking.
func TestLeaderDoesNotHang(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	proxy := pgproxy.Start(t, db.DSN)
	for range 2 { // the registry shows a fleet
		dbtest.Exec(t, db.Pool, `INSERT INTO kagzi.workers (worker_id, namespace_id, task_queues, workflow_types,
			status, lease_timeout, stale_after)
			SELECT gen_random_uuid(), 'default', ARRAY['default'], ARRAY['w'], 'ONLINE', interval '5 minutes',
				interval '1 hour'`)
	}
	k := newCoordinator(t, dbtest.OpenPool(t, proxy.DSN(), dbtest.Conns(4)), func(*Config) {})
	defer k.cfg.Hints.Listen()()
	await.True(t, "it listens", k.cfg.Hints.Listening)
	for _, loop := range []string{
		fireSchedules, endOverdue, runCompensations, serveLimits, keepKeys, tellOfEvents, releaseRuns,
	} {
		k.leadership.passed(loop, time.Hour)
	}
	hold := proxy.HoldAck(pgproxy.Contains("pg_notify"))
	defer hold.Release()
	checked := make(chan error, 1)
	go func() {
		_, err := k.CheckConnections(t.Context())
		checked <- err
	}()
	if err := await.Receive(t, checked); err == nil || !hold.Holds() {
		t.Errorf("%v, and the notification is held: %t", err, hold.Holds())
	}
}

// A coordinator leaves the deletion of old runs to a leader with the same rules that is on time, and only as long as it
// hears it.
func TestLeaderDeletes(t *testing.T) {
	pool, k := retaining(t)
	leader := newLeadership(&Config{
		Interval: k.cfg.Interval, StaleAfter: k.cfg.StaleAfter, Grace: k.cfg.Grace,
		Keep: k.cfg.Keep,
	})
	leader.id = uuid.Nil // the oldest
	heard := func(change func(*leadership)) {
		leader.passed(deleteOld, time.Hour)
		change(leader)
		k.leadership.hear(leader.says())
		k.leadership.mu.Lock()
		k.leadership.until = time.Now().Add(time.Hour) // on a busy machine a pass may take long
		k.leadership.mu.Unlock()
		scanOnce(t, k)
	}
	for name, change := range map[string]func(*leadership){
		"it has other rules":   func(l *leadership) { l.cfg.Keep.Runs.Completed = time.Hour },
		"it keeps everything":  func(l *leadership) { l.cfg.Keep.Forever = true },
		"its deletion is late": func(l *leadership) { l.failed(deleteOld) },
	} {
		addOld(t, pool, "old", "COMPLETED", 40, 1)
		cfg := *leader.cfg
		heard(change)
		*leader.cfg = cfg
		if got := left(t, pool); got != "none" {
			t.Errorf("%s, but the coordinator leaves the deletion to it: %s", name, got)
		}
	}
	addOld(t, pool, "old", "COMPLETED", 40, 1)
	heard(func(*leadership) {})
	wantLeft(t, pool, "old 1")
	says := leader.says()
	says.Ends = true
	k.leadership.hear(says)
	scanOnce(t, k)
	wantLeft(t, pool, "none")
}

// A leader scans as if it was alone, because the others do not.
func TestLeaderScansAlone(t *testing.T) {
	t.Parallel()
	k := New(Config{})
	k.scan.workers = 50
	if got := k.scanners(); got != 50 {
		t.Errorf("%d scan while nobody leads", got)
	}
	k.leadership.leading.Store(true)
	if got := k.scanners(); got != 1 {
		t.Errorf("%d scan for the leader", got)
	}
}
