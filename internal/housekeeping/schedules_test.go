package housekeeping

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/pgproxy"
	"github.com/kagzi/kagzi/internal/timetable"
	"github.com/kagzi/kagzi/store"
)

// A transaction for one schedule copies at most 64 MiB of input, or one larger input alone.
func TestDecisionIsBoundedInBytes(t *testing.T) {
	t.Parallel()
	k := newCoordinator(t, dbtest.Pool(t))
	now := time.Date(2026, 5, 4, 10, 0, 0, 0, time.UTC)
	for size, want := range map[int]int{0: 10, 1 << 20: 10, 16 << 20: 4, 33 << 20: 1, 100 << 20: 1} {
		tm := &store.Template{
			Cron: "@hourly", CatchUp: 100, Timing: []byte("{}"), Size: size,
			Cursor: now.Add(-10 * time.Hour),
		}
		if n := len(k.decideAlone(tm, now).Runs); n != want {
			t.Errorf("%d runs of %d bytes each, want %d", n, size, want)
		}
	}
}

// A batch stays within the bounds of one transaction. A schedule for which no budget is left stays due. A schedule that
// cannot be evaluated gets a problem and does not affect the others.
func TestBatch(t *testing.T) {
	t.Parallel()
	k := newCoordinator(t, dbtest.Pool(t), func(cfg *Config) { cfg.MaxRuns = 3 })
	now := time.Date(2026, 5, 4, 10, 0, 0, 0, time.UTC)
	missed := func(name string, hours int, change func(*store.Template)) *store.Template {
		tm := &store.Template{
			ID: uuid.New(), Name: name, Cron: "@hourly", CatchUp: 100, Timing: []byte("{}"),
			Cursor: now.Add(time.Duration(-hours) * time.Hour), Next: now,
		}
		change(tm)
		return tm
	}
	as := func(*store.Template) {}
	b := k.decideBatch(now, []*store.Template{
		missed("two", 2, as),
		missed("unreadable", 2, func(tm *store.Template) { tm.TimeZone = "Mars/Olympus" }),
		missed("replaces", 1, func(tm *store.Template) {
			tm.Overlap, tm.Active = timetable.OverlapCancelPrevious, true
		}),
		missed("drops", 2, func(tm *store.Template) { tm.CatchUp = 1 }),
		missed("too many", 1, as),
	})
	for i, want := range []struct {
		runs int
		next time.Time
	}{{2, now.Add(time.Hour)}, {0, now}, {0, now.Add(lockPause)}, {1, now.Add(time.Hour)}, {0, now}} {
		f := b.firings[i]
		if len(f.Runs) != want.runs || !f.Next.Equal(want.next) || (f.Problem != "") != (i == 1) ||
			f.Replace != (i == 2) {
			t.Errorf("%s: %+v, want %d runs and %v", b.due[i].Name, f, want.runs, want.next)
		}
	}
	if len(b.replace) != 1 || b.replace[0].Name != "replaces" || len(b.dropped) != 1 || b.dropped["drops"] == "" {
		t.Errorf("replaces %v, dropped %v", b.replace, b.dropped)
	}
}

// saveSchedule creates an hourly schedule that has missed three ticks and whose overlap policy queues one run.
func saveSchedule(t *testing.T, k *Coordinator) (id uuid.UUID) {
	t.Helper()
	id = uuid.New()
	_, err := k.cfg.Store.Schedules.Edit(t.Context(), nil, id,
		func(now time.Time, _ *store.Template) (*store.Edit, error) {
			return &store.Edit{Save: &store.Template{
				ID: id, Name: "s", Spec: store.Spec{Queue: "default", Type: "w", Priority: 2},
				Cron: "@hourly", CatchUp: 100,
				Overlap: timetable.OverlapQueueOne, Timing: []byte("{}"),
				Cursor: now.Add(-3 * time.Hour), Next: now,
			}}, nil
		})
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// startNow starts a run of a schedule without a tick.
func startNow(t *testing.T, k *Coordinator, schedule uuid.UUID) (run uuid.UUID) {
	t.Helper()
	run = NewRunID()
	_, err := k.cfg.Store.Schedules.Edit(t.Context(), nil, schedule,
		func(_ time.Time, tm *store.Template) (*store.Edit, error) {
			return &store.Edit{Fire: &store.Firing{
				Template: schedule, Runs: []store.TickRun{{RunID: run}},
				Next: tm.Next,
			}}, nil
		})
	if err != nil {
		t.Fatal(err)
	}
	return run
}

// fire makes a pass over the schedules.
func fire(t *testing.T, k *Coordinator) {
	t.Helper()
	if _, err := k.FireSchedules(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// The pass that queues a run remembers the run that it waits for, so the queued run begins when that one ends, however
// long the interval is.
func TestQueuedRunDoesNotWaitForTheInterval(t *testing.T) {
	t.Parallel()
	pool := dbtest.Pool(t)
	k := newCoordinator(t, pool)
	active := startNow(t, k, saveSchedule(t, k))
	fire(t, k)
	wantTicks := func(condition string) {
		t.Helper()
		if n := dbtest.QueryOne[int](t, pool, `SELECT count(*) FROM kagzi.workflow_runs WHERE schedule_id IS NOT NULL
			AND fire_at IS NOT NULL AND `+condition); n != 1 {
			t.Errorf("%d runs of ticks with %s, want 1", n, condition)
		}
	}
	wantTicks(`waiting_on = '[{"kind": "previous run"}]'`)
	wantAwake := func(want bool, when string, ids ...uuid.UUID) {
		t.Helper()
		k.Refresh(ids)
		if got := len(k.schedules) > 0; got != want {
			t.Errorf("%s: woken %t, want %t", when, got, want)
		}
		if len(k.schedules) > 0 {
			await.Opened(t, k.schedules)
		}
	}
	wantAwake(true, "any run has changed")
	wantAwake(true, "the active run has changed", active)
	wantAwake(false, "another run has changed", uuid.New())
	dbtest.Exec(t, pool, `UPDATE kagzi.workflow_runs SET status = 'CANCELLED', available_at = NULL, finished_at = now(),
		error_kind = 'cancelled' WHERE run_id = $1`, active)
	fire(t, k)
	wantTicks(`status = 'PENDING' AND available_at <= now() AND waiting_on IS NULL`)
	wantAwake(false, "any run has changed, and none is queued")
}

// A run that changes while the queued runs are read may be one that a queued run waits for, so the coordinator reads
// them again.
func TestRunThatChangesWhileQueuedRunsAreRead(t *testing.T) {
	t.Parallel()
	proxy := pgproxy.Start(t, dbtest.Database(t).DSN)
	k := newCoordinator(t, dbtest.OpenPool(t, proxy.DSN()))
	startNow(t, k, saveSchedule(t, k))
	fire(t, k)
	proxy.Freeze()
	done := make(chan error, 1)
	go func() { done <- k.releaseQueued(t.Context()) }()
	await.True(t, "the queued runs are being read", func() bool {
		k.queued.mu.Lock()
		defer k.queued.mu.Unlock()
		return k.queued.reading
	})
	k.Refresh([]uuid.UUID{uuid.New()})
	if len(k.schedules) > 0 {
		t.Error("a run that no queued run waits for woke the coordinator")
	}
	proxy.Unfreeze()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if len(k.schedules) == 0 {
		t.Error("the coordinator does not read the queued runs again")
	}
}
