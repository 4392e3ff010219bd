package kagzi

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

func TestChangeWhileJitterWaits(t *testing.T) {
	for name, change := range map[string]func(*kit, Schedule) error{
		"Timetable": func(k *kit, s Schedule) error { s.Every = 3 * time.Hour; return k.c.Schedule(k.ctx, s) },
		"Pause": func(k *kit, s Schedule) error {
			return errors.Join(k.c.PauseSchedule(k.ctx, s.Name), k.c.ResumeSchedule(k.ctx, s.Name))
		},
		"LessJitter": func(k *kit, s Schedule) error {
			s.Jitter = 0
			defer k.pass(k.coordinator())
			return k.c.Schedule(k.ctx, s)
		},
		"Nothing": func(k *kit, s Schedule) error {
			err := k.c.Schedule(k.ctx, s)
			if n := len(k.fired(s.Name)); n != 0 {
				k.t.Errorf("%d runs before their time", n)
			}
			k.exec(`UPDATE kagzi.schedules SET spec = spec - 'jitter', next_at = now() WHERE NOT paused`)
			k.pass(k.coordinator())
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := newKit(t)
			// The tick was a minute ago; the share of 24 hours is more than that for all but one name in a thousand.
			s := Schedule{Name: "s", Every: time.Hour, Jitter: 24 * time.Hour, SkipPaused: true, Run: report.With(""), Start: k.now().Add(-1000*time.Hour - time.Minute)}
			k.schedule(s)
			k.exec(`UPDATE kagzi.schedules SET cursor_at = now() - interval '30 minutes' WHERE NOT paused`)
			if err := change(k, s); err != nil {
				t.Fatal(err)
			}
			runs := k.fired("s")
			if len(runs) != 1 || k.now().Sub(runs[0].FireTime) > 5*time.Minute {
				t.Errorf("runs %+v, want the tick of a minute ago", runs)
			}
		})
	}
}

func TestOverlapSkip(t *testing.T) {
	k := newKit(t)
	co := k.coordinator()
	k.schedule(Schedule{Name: "s", Every: time.Hour, Overlap: OverlapSkip})
	for range 2 { // the second while the run of the first is active
		k.missed("s", 5*time.Hour)
		k.pass(co)
	}
	if runs := k.fired("s"); len(runs) != 1 || k.now().Sub(runs[0].FireTime) > time.Hour {
		t.Errorf("runs %+v, want the newest tick's", runs)
	}
	k.cancel(k.fired("s")[0].ID)
	k.exec(`DELETE FROM kagzi.workflow_payloads WHERE run_id IN (SELECT run_id FROM kagzi.workflow_runs WHERE status = 'CANCELLED')`)
	k.exec(`DELETE FROM kagzi.run_events`)
	k.exec(`DELETE FROM kagzi.workflow_runs WHERE status = 'CANCELLED'`)
	k.pass(co)
	if n := len(k.fired("s")); n != 0 {
		t.Errorf("%d runs: a tick that is decided was fired after its run was deleted", n)
	}
}

func TestOverlapQueueOne(t *testing.T) {
	k := newKit(t)
	started, open := make(chan time.Time, 10), make(chan struct{})
	w := newTestWorker(t, k.c, WorkerConfig{Coordinator: CoordinatorConfig{Interval: time.Hour}})
	Handle(w, report, func(ctx Context, _ string) (string, error) {
		return Step(ctx, "work", func(context.Context) (string, error) {
			started <- ctx.FireTime()
			<-open
			return "", nil
		})
	})
	startWorker(t, w)
	k.schedule(Schedule{Name: "s", Every: time.Hour, Overlap: OverlapQueueOne, Run: report.With("", Timeout(time.Hour))})
	fire := func() {
		k.missed("s", 5*time.Hour)
		wakeCoordinators(k.t, k.pool)
		waitFor(t, "the schedule is looked at", func() bool { return k.info("s").Next.After(k.now()) })
	}
	fire()
	first := receive(t, started)
	k.exec(`UPDATE kagzi.workflow_runs SET fire_at = fire_at - interval '1 day' WHERE schedule_id IS NOT NULL`) // further than they are apart: no two rows meet on the way
	for range 3 {                                                                                               // the first is remembered
		fire()
	}
	if info := k.info("s"); !info.Active || !info.Queued {
		t.Errorf("schedule %+v, want an active run and a queued one", info)
	}
	if n := len(k.fired("s")); n != 2 {
		t.Errorf("%d runs, want 2", n)
	}
	open <- struct{}{}
	second := receive(t, started)
	if !second.Equal(first) { // the tick is the same hour's, for the first run's was moved back
		t.Errorf("ticks %v and %v", first, second)
	}
	close(open)
	waitFor(t, "both end", func() bool {
		return k.count(`SELECT count(*) FROM kagzi.workflow_runs WHERE status = 'COMPLETED'`) == 2
	})
	if n := k.count(`SELECT count(*) FROM kagzi.workflow_runs WHERE schedule_id IS NOT NULL AND deadline_at IS NOT NULL`); n != 2 {
		t.Errorf("%d runs have a deadline, want both", n)
	}
}

func TestQueuedRunOutlivesItsSchedule(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*kit) error{
		"Deleted": func(k *kit) error { return k.c.DeleteSchedule(k.ctx, "s") },
		"Paused":  func(k *kit) error { return k.c.PauseSchedule(k.ctx, "s") },
		"NewPolicy": func(k *kit) error {
			return k.c.Schedule(k.ctx, Schedule{Name: "s", Every: time.Hour, Run: report.With("")})
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := newKit(t)
			co := k.coordinator()
			k.schedule(Schedule{Name: "s", Every: time.Hour, Overlap: OverlapQueueOne})
			for i := range 2 {
				k.missed("s", 5*time.Hour)
				k.pass(co)
				// Each time further, so that no row meets another on the way that is where it was moved to before.
				k.exec(`UPDATE kagzi.workflow_runs SET fire_at = fire_at - $1 * interval '1 day' WHERE schedule_id IS NOT NULL`, 1+2*i)
			}
			if err := change(k); err != nil {
				t.Fatal(err)
			}
			k.pass(co)
			due := `SELECT count(*) FROM kagzi.workflow_runs WHERE schedule_id IS NOT NULL AND status = 'PENDING' AND available_at <= now()`
			if n := k.count(due); n != 1 {
				t.Errorf("%d runs are due while the first is active, want it alone", n)
			}
			first := k.fired("s")[0]
			k.cancel(first.ID)
			k.pass(co)
			if n := k.count(due); n != 1 {
				t.Errorf("%d runs are due after the first, want the queued one", n)
			}
		})
	}
}

func TestOverlapCancelPrevious(t *testing.T) {
	k := newKit(t)
	co := k.coordinator()
	k.schedule(Schedule{Name: "s", Every: time.Hour, Overlap: OverlapCancelPrevious})
	k.missed("s", 3*time.Hour)
	k.pass(co)
	k.exec(`UPDATE kagzi.workflow_runs SET fire_at = fire_at - interval '1 day' WHERE schedule_id IS NOT NULL`) // further than they are apart: no two rows meet on the way
	// A caller's transaction has the run, and is waited for without holding up other schedules.
	tx := locking(t, k.pool, `SELECT FROM kagzi.workflow_runs WHERE schedule_id IS NOT NULL FOR UPDATE`)
	k.schedule(Schedule{Name: "other", Every: time.Hour})
	k.missed("s", 3*time.Hour)
	k.missed("other", time.Hour)
	k.pass(co)
	if n := len(k.fired("other")); n == 0 {
		t.Error("the other schedule was held up")
	}
	if n := len(k.fired("s")); n != 1 {
		t.Errorf("%d runs, want the one that cannot be cancelled yet", n)
	}
	rollbackTx(t, tx)
	k.exec(`UPDATE kagzi.schedules SET next_at = now() WHERE NOT paused AND name = 's'`)
	k.pass(co)
	runs := k.fired("s")
	if len(runs) != 2 || runs[0].Status != StatusCancelled || runs[1].Status != StatusPending || !strings.Contains(runs[0].Error, "schedule") {
		t.Errorf("runs %+v", runs)
	}
}

func TestPausedSchedule(t *testing.T) {
	for name, skip := range map[string]bool{"CatchesUp": false, "Skips": true} {
		t.Run(name, func(t *testing.T) {
			k := newKit(t)
			co := k.coordinator()
			k.schedule(Schedule{Name: "s", Every: time.Hour, CatchUp: 4, SkipPaused: skip})
			for range 2 {
				if err := k.c.PauseSchedule(k.ctx, "s"); err != nil {
					t.Fatal(err)
				}
			}
			k.missed("s", 10*time.Hour)
			k.pass(co)
			if info := k.info("s"); !info.Paused || len(k.fired("s")) != 0 {
				t.Errorf("fired %d; %+v", len(k.fired("s")), info)
			}
			k.schedule(Schedule{Name: "s", Every: time.Hour, CatchUp: 4, SkipPaused: skip})
			if !k.info("s").Paused {
				t.Error("a change has resumed the schedule")
			}
			for range 2 {
				if err := k.c.ResumeSchedule(k.ctx, "s"); err != nil {
					t.Fatal(err)
				}
			}
			k.pass(co)
			want := 4
			if skip {
				want = 0
			}
			if n := len(k.fired("s")); n != want {
				t.Errorf("%d runs, want %d", n, want)
			}
		})
	}
}

func TestPauseFiresWhatIsDue(t *testing.T) {
	k := newKit(t)
	k.schedule(Schedule{Name: "s", Every: time.Hour, SkipPaused: true})
	k.missed("s", time.Hour)
	if err := errors.Join(k.c.PauseSchedule(k.ctx, "s"), k.c.ResumeSchedule(k.ctx, "s")); err != nil {
		t.Fatal(err)
	}
	if n := len(k.fired("s")); n != 1 {
		t.Errorf("%d runs, want the one that was due", n)
	}
}
