package schedules_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
)

func TestChangeWhileJitterWaits(t *testing.T) {
	for name, change := range map[string]func(*kit.Kit, kagzi.Schedule) error{
		"Timetable": func(k *kit.Kit, s kagzi.Schedule) error {
			s.Every = 3 * time.Hour
			return k.Client.Schedule(k.Ctx, s)
		},
		"Pause": func(k *kit.Kit, s kagzi.Schedule) error {
			return errors.Join(admin.New(k.Client).Schedules.Pause(k.Ctx, s.Name),
				admin.New(k.Client).Schedules.Resume(k.Ctx, s.Name))
		},
		"LessJitter": func(k *kit.Kit, s kagzi.Schedule) error {
			s.Jitter = 0
			defer k.Pass(k.Coordinator())
			return k.Client.Schedule(k.Ctx, s)
		},
		"Nothing": func(k *kit.Kit, s kagzi.Schedule) error {
			err := k.Client.Schedule(k.Ctx, s)
			if n := len(k.Fired(s.Name)); n != 0 {
				k.T.Errorf("%d runs before their time", n)
			}
			k.Exec(`UPDATE kagzi.schedules SET timing = timing - 'jitter', next_at = now() WHERE NOT paused`)
			k.Pass(k.Coordinator())
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := kit.New(t)
			// The tick was a minute ago; the share of 24 hours is more than that for all but one name in a thousand.
			s := kagzi.Schedule{
				Name: "s", Every: time.Hour, Jitter: 24 * time.Hour, SkipPaused: true,
				Run: kit.Report.With(""), Start: k.Now().Add(-1000*time.Hour - time.Minute),
			}
			k.Schedule(s)
			k.Exec(`UPDATE kagzi.schedules SET cursor_at = now() - interval '30 minutes' WHERE NOT paused`)
			if err := change(k, s); err != nil {
				t.Fatal(err)
			}
			runs := k.Fired("s")
			if len(runs) != 1 || k.Now().Sub(runs[0].FireTime) > 5*time.Minute {
				t.Errorf("runs %+v, want the tick of a minute ago", runs)
			}
		})
	}
}

func TestOverlapSkip(t *testing.T) {
	k := kit.New(t)
	co := k.Coordinator()
	k.Schedule(kagzi.Schedule{Name: "s", Every: time.Hour, Overlap: kagzi.OverlapSkip})
	for range 2 { // the second while the run of the first is active
		k.Missed("s", 5*time.Hour)
		k.Pass(co)
	}
	if runs := k.Fired("s"); len(runs) != 1 || k.Now().Sub(runs[0].FireTime) > time.Hour {
		t.Errorf("runs %+v, want the newest tick's", runs)
	}
	k.Cancel(k.Fired("s")[0].ID)
	k.Exec(`DELETE FROM kagzi.run_events`)
	k.Exec(`DELETE FROM kagzi.workflow_runs WHERE status = 'CANCELLED'`)
	k.Pass(co)
	if n := len(k.Fired("s")); n != 0 {
		t.Errorf("%d runs: a tick that is decided was fired after its run was deleted", n)
	}
}

func TestOverlapQueueOne(t *testing.T) {
	k := kit.New(t)
	started, open := make(chan time.Time, 10), make(chan struct{})
	w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{Coordinator: kagzi.CoordinatorConfig{Interval: time.Hour}})
	kagzi.Handle(w, kit.Report, func(ctx kagzi.Context, _ string) (string, error) {
		return kagzi.Step(ctx, "work", func(context.Context) (string, error) {
			started <- ctx.FireTime()
			await.Opened(t, open)
			return "", nil
		})
	})
	kit.StartWorker(t, w)
	k.Schedule(kagzi.Schedule{
		Name: "s", Every: time.Hour, Overlap: kagzi.OverlapQueueOne,
		Run: kit.Report.With("", kagzi.Timeout(time.Hour)),
	})
	fire := func() {
		k.Missed("s", 5*time.Hour)
		kit.WakeCoordinators(k.T, k.Pool)
		await.True(t, "the coordinator has read the schedule", func() bool { return k.Info("s").Next.After(k.Now()) })
	}
	fire()
	first := await.Receive(t, started)
	// further than they are apart: no two rows meet on the way
	k.Exec(`UPDATE kagzi.workflow_runs SET fire_at = fire_at - interval '1 day' WHERE schedule_id IS NOT NULL`)
	for range 3 { // the first is remembered
		fire()
	}
	if info := k.Info("s"); !info.Active || !info.Queued {
		t.Errorf("schedule %+v, want an active run and a queued one", info)
	}
	if n := len(k.Fired("s")); n != 2 {
		t.Errorf("%d runs, want 2", n)
	}
	open <- struct{}{}
	second := await.Receive(t, started)
	if !second.Equal(first) { // the tick is the same hour's, because the first run's fire_at was set back
		t.Errorf("ticks %v and %v", first, second)
	}
	close(open)
	await.True(t, "both end", func() bool {
		return k.Count(`SELECT count(*) FROM kagzi.workflow_runs WHERE status = 'COMPLETED'`) == 2
	})
	if n := k.Count(`SELECT count(*) FROM kagzi.workflow_runs WHERE schedule_id IS NOT NULL
		AND deadline_at IS NOT NULL`); n != 2 {
		t.Errorf("%d runs have a deadline, want both", n)
	}
}

func TestQueuedRunOutlivesItsSchedule(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*kit.Kit) error{
		"Deleted": func(k *kit.Kit) error { return k.Client.DeleteSchedule(k.Ctx, "s") },
		"Paused":  func(k *kit.Kit) error { return admin.New(k.Client).Schedules.Pause(k.Ctx, "s") },
		"NewPolicy": func(k *kit.Kit) error {
			return k.Client.Schedule(k.Ctx, kagzi.Schedule{Name: "s", Every: time.Hour, Run: kit.Report.With("")})
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := kit.New(t)
			co := k.Coordinator()
			k.Schedule(kagzi.Schedule{Name: "s", Every: time.Hour, Overlap: kagzi.OverlapQueueOne})
			for i := range 2 {
				k.Missed("s", 5*time.Hour)
				k.Pass(co)
				// The shift grows each time, so that no row meets one that was shifted before.
				k.Exec(`UPDATE kagzi.workflow_runs SET fire_at = fire_at - $1 * interval '1 day'
					WHERE schedule_id IS NOT NULL`, 1+2*i)
			}
			if err := change(k); err != nil {
				t.Fatal(err)
			}
			k.Pass(co)
			due := `SELECT count(*) FROM kagzi.workflow_runs WHERE schedule_id IS NOT NULL AND status = 'PENDING'
				AND available_at <= now()`
			if n := k.Count(due); n != 1 {
				t.Errorf("%d runs are due while the first is active, want it alone", n)
			}
			first := k.Fired("s")[0]
			k.Cancel(first.ID)
			k.Pass(co)
			if n := k.Count(due); n != 1 {
				t.Errorf("%d runs are due after the first, want the queued one", n)
			}
		})
	}
}

func TestOverlapCancelPrevious(t *testing.T) {
	k := kit.New(t)
	co := k.Coordinator()
	k.Schedule(kagzi.Schedule{Name: "s", Every: time.Hour, Overlap: kagzi.OverlapCancelPrevious})
	k.Missed("s", 3*time.Hour)
	k.Pass(co)
	// further than they are apart: no two rows meet on the way
	k.Exec(`UPDATE kagzi.workflow_runs SET fire_at = fire_at - interval '1 day' WHERE schedule_id IS NOT NULL`)
	// A caller's transaction has the run, and is waited for without holding up other schedules.
	tx := dbtest.BeginWith(t, k.Pool, `SELECT FROM kagzi.workflow_runs WHERE schedule_id IS NOT NULL FOR UPDATE`)
	k.Schedule(kagzi.Schedule{Name: "other", Every: time.Hour})
	k.Missed("s", 3*time.Hour)
	k.Missed("other", time.Hour)
	k.Pass(co)
	if n := len(k.Fired("other")); n == 0 {
		t.Error("the other schedule was held up")
	}
	if n := len(k.Fired("s")); n != 1 {
		t.Errorf("%d runs, want the one that cannot be cancelled yet", n)
	}
	kit.RollbackTx(t, tx)
	k.Exec(`UPDATE kagzi.schedules SET next_at = now() WHERE NOT paused AND name = 's'`)
	k.Pass(co)
	runs := k.Fired("s")
	if len(runs) != 2 || runs[0].Status != kagzi.StatusCancelled || runs[1].Status != kagzi.StatusPending ||
		!strings.Contains(runs[0].Error, "schedule") {
		t.Errorf("runs %+v", runs)
	}
}

// A cancelled run is active until it has ended: until its step has returned and its compensations have run. No policy
// starts a run beside it.
func TestCancelledRunIsActive(t *testing.T) {
	t.Parallel()
	for overlap, want := range map[kagzi.Overlap]int{
		kagzi.OverlapSkip: 1, kagzi.OverlapQueueOne: 2,
		kagzi.OverlapCancelPrevious: 2,
	} {
		t.Run(string(overlap), func(t *testing.T) {
			k := kit.New(t)
			co := k.Coordinator()
			begun, open := make(chan time.Time, 2), make(chan struct{})
			w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{NoCoordinator: true})
			kagzi.Handle(w, kit.Travel, func(ctx kagzi.Context, _ int) (int, error) {
				kagzi.Compensate(ctx, "flight", kit.CancelBooking.With("LH1"))
				return 0, kagzi.Do(ctx, "flight", func(context.Context) error {
					begun <- ctx.FireTime()
					<-open
					return nil
				})
			})
			kit.StartWorker(t, w)
			k.Schedule(kagzi.Schedule{Name: "s", Every: time.Hour, Overlap: overlap, Run: kit.Travel.With(7)})
			k.Missed("s", 5*time.Hour)
			k.Pass(co)
			await.Receive(t, begun)
			k.Exec(`UPDATE kagzi.workflow_runs SET fire_at = fire_at - interval '1 day' WHERE schedule_id IS NOT NULL`)
			first := k.Fired("s")[0].ID
			if overlap != kagzi.OverlapCancelPrevious {
				k.Cancel(first)
			}
			k.Missed("s", 5*time.Hour)
			k.Pass(co)
			if info := k.InfoOf(first); info.Status != kagzi.StatusRunning || info.CancelRequestedAt.IsZero() {
				t.Fatalf("the first run is %s, cancelled at %v", info.Status, info.CancelRequestedAt)
			}
			check := func(when string) {
				t.Helper()
				k.Pass(co)
				runs := k.Fired("s")
				if len(runs) != want || !k.Info("s").Active || k.Info("s").Queued != (want == 2) ||
					runs[want-1].WaitingOn == nil && want == 2 {
					t.Errorf("%s: %d runs, %+v", when, len(runs), k.Info("s"))
				}
			}
			check("the step is under way")
			close(open)
			k.WaitStatus(first, kagzi.StatusSleeping)
			check("the compensation has not run")
			kit.ServeCancellations(k, &kit.Journal{}, nil)
			k.WaitStatus(first, kagzi.StatusCancelled)
			if len(begun) != 0 {
				t.Error("a run began beside the cancelled one")
			}
			if k.Pass(co); want == 2 {
				await.Receive(t, begun)
			}
		})
	}
}

func TestPausedSchedule(t *testing.T) {
	for name, skip := range map[string]bool{"CatchesUp": false, "Skips": true} {
		t.Run(name, func(t *testing.T) {
			k := kit.New(t)
			co := k.Coordinator()
			k.Schedule(kagzi.Schedule{Name: "s", Every: time.Hour, CatchUp: 4, SkipPaused: skip})
			for range 2 {
				if err := admin.New(k.Client).Schedules.Pause(k.Ctx, "s"); err != nil {
					t.Fatal(err)
				}
			}
			k.Missed("s", 10*time.Hour)
			k.Pass(co)
			if info := k.Info("s"); !info.Paused || len(k.Fired("s")) != 0 {
				t.Errorf("fired %d; %+v", len(k.Fired("s")), info)
			}
			k.Schedule(kagzi.Schedule{Name: "s", Every: time.Hour, CatchUp: 4, SkipPaused: skip})
			if !k.Info("s").Paused {
				t.Error("a change has resumed the schedule")
			}
			for range 2 {
				if err := admin.New(k.Client).Schedules.Resume(k.Ctx, "s"); err != nil {
					t.Fatal(err)
				}
			}
			k.Pass(co)
			want := 4
			if skip {
				want = 0
			}
			if n := len(k.Fired("s")); n != want {
				t.Errorf("%d runs, want %d", n, want)
			}
		})
	}
}

func TestPauseFiresWhatIsDue(t *testing.T) {
	k := kit.New(t)
	k.Schedule(kagzi.Schedule{Name: "s", Every: time.Hour, SkipPaused: true})
	k.Missed("s", time.Hour)
	if err := errors.Join(admin.New(k.Client).Schedules.Pause(k.Ctx, "s"),
		admin.New(k.Client).Schedules.Resume(k.Ctx, "s")); err != nil {
		t.Fatal(err)
	}
	if n := len(k.Fired("s")); n != 1 {
		t.Errorf("%d runs, want the one that was due", n)
	}
}
