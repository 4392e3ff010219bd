package kagzi

import (
	"strings"
	"testing"
	"time"

	"github.com/kagzi/kagzi/store"
)

// states are the statuses of a schedule's runs, oldest first.
func (k *kit) states(name string) string {
	k.t.Helper()
	var all []string
	for _, r := range k.fired(name) {
		all = append(all, string(r.Status))
	}
	return strings.Join(all, " ")
}

// replacing makes a schedule of every hour whose ticks cancel the run before: one is active, and a tick is due.
func (k *kit) replacing(s Schedule) {
	k.t.Helper()
	s.Overlap = OverlapCancelPrevious
	if s.Cron == "" {
		s.Every = time.Hour
	}
	k.schedule(s)
	k.trigger(s.Name)
	k.missed(s.Name, 3*time.Hour)
}

func (k *kit) trigger(name string) {
	k.t.Helper()
	if _, err := k.c.TriggerSchedule(k.ctx, name); err != nil {
		k.t.Fatal(err)
	}
}

func (k *kit) template(name string) *store.Template {
	k.t.Helper()
	t, err := k.c.store.Schedule(k.ctx, k.c.scheduleID(name))
	if err != nil {
		k.t.Fatal(err)
	}
	return t
}

// A tick that is dropped, because it is too old, starts no run, and so cancels none.
func TestDroppedTickCancelsNothing(t *testing.T) {
	k := newKit(t)
	// Ticks were 30, 90 and 150 minutes ago.
	k.replacing(Schedule{Name: "s", Start: k.now().Add(-1000*time.Hour - 30*time.Minute), CatchUpAge: time.Minute})
	k.pass(k.coordinator())
	if got := k.states("s"); got != "PENDING" {
		t.Errorf("runs: %s, want the active one alone", got)
	}
	if info := k.info("s"); info.Paused || !info.Next.After(k.now()) {
		t.Errorf("the tick is not decided: %+v", info)
	}
}

// A schedule that cannot be read is paused; nothing replaces its active run, so that goes on.
func TestBrokenScheduleCancelsNothing(t *testing.T) {
	k := newKit(t)
	k.replacing(Schedule{Name: "s", Cron: "0 * * * *"})
	k.exec(`UPDATE kagzi.schedules SET time_zone = 'Mars/Olympus' WHERE name = 's'`)
	k.pass(k.coordinator())
	if got := k.states("s"); got != "PENDING" {
		t.Errorf("runs: %s, want the active one alone", got)
	}
	if info := k.info("s"); !info.Paused || !strings.Contains(info.Error, "Mars") {
		t.Errorf("not paused with its error: %+v", info)
	}
}

// Runs are cancelled for a tick that nobody has decided since the coordinator saw it: another may have fired it
// meanwhile, whose run is not to be cancelled, or somebody may have changed, paused or deleted the schedule.
func TestStaleReplaceCancelsNothing(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		meanwhile func(*kit) error
		want      string
	}{
		"Undecided": {func(*kit) error { return nil }, "CANCELLED PENDING"},
		"Fired":     {func(k *kit) error { return second(k.coordinator().house.FireSchedules(k.ctx)) }, "CANCELLED PENDING"},
		"FiredAndDue": {func(k *kit) error {
			_, err := k.coordinator().house.FireSchedules(k.ctx)
			k.exec(`UPDATE kagzi.schedules SET next_at = now() WHERE NOT paused`)
			return err
		}, "CANCELLED PENDING"},
		"Dropped": {func(k *kit) error {
			k.exec(`UPDATE kagzi.schedules SET cursor_at = now(), next_at = now() + interval '1 hour' WHERE NOT paused`)
			return nil
		}, "PENDING"},
		"Paused":  {func(k *kit) error { return k.c.PauseSchedule(k.ctx, "s") }, "PENDING"},
		"Deleted": {func(k *kit) error { return k.c.DeleteSchedule(k.ctx, "s") }, "PENDING"},
		"NewPolicy": {func(k *kit) error {
			return k.c.Schedule(k.ctx, Schedule{Name: "s", Every: time.Hour, Overlap: OverlapSkip, Run: report.With("")})
		}, "PENDING"},
		"MayOverlap": {func(k *kit) error {
			return k.c.Schedule(k.ctx, Schedule{Name: "s", Every: time.Hour, Run: report.With("")})
		}, "PENDING"},
	} {
		t.Run(name, func(t *testing.T) {
			k := newKit(t)
			k.replacing(Schedule{Name: "s"})
			seen := k.template("s")
			if err := tc.meanwhile(k); err != nil {
				t.Fatal(err)
			}
			before := k.states("s")
			ended, err := k.c.store.CancelFired(k.ctx, seen, time.Second)
			if err != nil || (len(ended.Ended) > 0) != (name == "Undecided") {
				t.Errorf("cancelled %v, %v", ended, err)
			}
			if after := k.states("s"); name != "Undecided" && after != before {
				t.Errorf("runs: %s, before: %s", after, before)
			}
			if err := k.coordinator().house.Replace(k.ctx, seen, time.Second); err != nil {
				t.Error(err)
			}
			if got := k.states("s"); got != tc.want {
				t.Errorf("runs: %s, want %s", got, tc.want)
			}
		})
	}
}

// A deploy that leaves the timetable as it is leaves the due tick to the coordinator, which cancels the run before: the
// tick does not wait for a run that hangs. A changed timetable fires the tick at once; its run waits for the one before.
func TestEditLeavesReplacingToTheCoordinator(t *testing.T) {
	t.Run("Unchanged", func(t *testing.T) {
		k := newKit(t)
		k.replacing(Schedule{Name: "s"})
		k.schedule(Schedule{Name: "s", Every: time.Hour, Overlap: OverlapCancelPrevious, Run: report.With("deployed")})
		if got := k.states("s"); got != "PENDING" || k.info("s").Queued {
			t.Errorf("runs: %s: the deploy has fired", got)
		}
		k.pass(k.coordinator())
		if got := k.states("s"); got != "CANCELLED PENDING" || k.info("s").Queued {
			t.Errorf("runs: %s, want the hanging one cancelled for the tick's", got)
		}
		if runs := k.fired("s"); string(runs[len(runs)-1].Input) != `"deployed"` {
			t.Errorf("input %s", runs[len(runs)-1].Input)
		}
	})
	t.Run("Changed", func(t *testing.T) {
		k := newKit(t)
		k.replacing(Schedule{Name: "s"})
		k.schedule(Schedule{Name: "s", Every: 2 * time.Hour, Overlap: OverlapCancelPrevious})
		if got := k.states("s"); got != "PENDING PENDING" || !k.info("s").Queued {
			t.Errorf("runs: %s, want the old timetable's tick queued", got)
		}
	})
}

// A caller that pauses a schedule which Kagzi has paused for an error means it: the repair does not resume it.
func TestPauseOfBrokenScheduleStays(t *testing.T) {
	k := newKit(t)
	s := Schedule{Name: "s", Cron: "0 * * * *"}
	k.schedule(s)
	k.exec(`UPDATE kagzi.schedules SET cron_expr = 'nonsense' WHERE name = 's'`)
	k.missed("s", time.Hour)
	k.pass(k.coordinator())
	if info := k.info("s"); !info.Paused || info.Error == "" {
		t.Fatalf("not paused by Kagzi: %+v", info)
	}
	if err := k.c.PauseSchedule(k.ctx, "s"); err != nil {
		t.Fatal(err)
	}
	k.schedule(s)
	if info := k.info("s"); !info.Paused || info.Error != "" {
		t.Errorf("the repair has resumed what somebody paused: %+v", info)
	}
	if err := k.c.ResumeSchedule(k.ctx, "s"); err != nil {
		t.Error(err)
	}
}

// The ticks that come during a pause are caught up with although the timetable is changed meanwhile: as it is then.
func TestPausedScheduleKeepsItsTicksThroughAChange(t *testing.T) {
	k := newKit(t)
	co := k.coordinator()
	start := k.now().Add(-1000*time.Hour - 30*time.Minute)
	k.schedule(Schedule{Name: "s", Every: time.Hour, Start: start})
	if err := k.c.PauseSchedule(k.ctx, "s"); err != nil {
		t.Fatal(err)
	}
	k.missed("s", 10*time.Hour)
	cursor := k.info("s").Last
	k.schedule(Schedule{Name: "s", Every: 2 * time.Hour, Start: start})
	k.pass(co)
	if info := k.info("s"); !info.Paused || !info.Last.Equal(cursor) || len(k.fired("s")) != 0 {
		t.Errorf("%d runs; cursor %v, before the change %v; %+v", len(k.fired("s")), info.Last, cursor, info)
	}
	if err := k.c.ResumeSchedule(k.ctx, "s"); err != nil {
		t.Fatal(err)
	}
	k.pass(co)
	runs := k.fired("s")
	if len(runs) != 5 {
		t.Fatalf("%d runs, want one for every other hour of ten", len(runs))
	}
	for i, r := range runs {
		if want := start.Add(1000 * time.Hour).Add(time.Duration(i-4) * 2 * time.Hour); r.FireTime.Sub(want).Abs() > time.Second {
			t.Errorf("tick %v, want %v", r.FireTime, want)
		}
	}
}

// The tick of 1970 is a tick: it has its run once, and the run knows its time.
func TestTickAtTheEpoch(t *testing.T) {
	k := newKit(t)
	k.schedule(Schedule{Name: "s", Cron: "0 0 1 1 *"})
	for i, want := range []int{2, 0} {
		n, err := k.c.BackfillSchedule(k.ctx, "s", time.Unix(0, 0), time.Unix(0, 0).Add(400*24*time.Hour))
		if n != want || err != nil {
			t.Errorf("backfill %d started %d, %v; want %d", i, n, err, want)
		}
	}
	runs := k.fired("s")
	if len(runs) != 2 || !runs[0].FireTime.Equal(time.Unix(0, 0)) || runs[1].FireTime.UTC().Year() != 1971 {
		t.Errorf("runs %+v", runs)
	}
}
