package schedules_test

import (
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/kit"
)

var odds = kagzi.Define[int, int]("odds")

func TestNextFires(t *testing.T) {
	k := kit.New(t)
	end := time.Date(2036, 3, 4, 0, 0, 0, 0, time.UTC)
	k.Schedule(kagzi.Schedule{
		Name: "s", Cron: "30 2 * * *", TimeZone: "Europe/Berlin",
		Start: time.Date(2036, 3, 1, 0, 0, 0, 0, time.UTC), End: end,
	})
	got, err := admin.New(k.Client).Schedules.NextFires(k.Ctx, "s", 10)
	if err != nil {
		t.Fatal(err)
	}
	want := []int{1, 2, 3}
	if len(got) != len(want) {
		t.Fatalf("next fires %v, want three", got)
	}
	for i, d := range want {
		if !got[i].Equal(time.Date(2036, 3, d, 1, 30, 0, 0, time.UTC)) {
			t.Errorf("fire %d at %v", i, got[i])
		}
	}
}

// The first tick of Every is Start, also if Start has a fraction of a second, which is dropped.
func TestStartWithAFraction(t *testing.T) {
	k := kit.New(t)
	start := k.Now().Add(time.Hour).Truncate(time.Second)
	for _, fraction := range []time.Duration{0, time.Microsecond, 500 * time.Millisecond, time.Second - 1} {
		k.Schedule(kagzi.Schedule{Name: "s", Every: 24 * time.Hour, Start: start.Add(fraction)})
		if got, err := admin.New(k.Client).Schedules.NextFires(k.Ctx, "s", 2); err != nil || len(got) != 2 ||
			!got[0].Equal(start) ||
			!got[1].Equal(start.Add(24*time.Hour)) {
			t.Errorf("%v after %v: next fires %v, %v", fraction, start, got, err)
		}
	}
}

// Overdue ticks are listed as they will be fired.
func TestNextFiresOverdue(t *testing.T) {
	k := kit.New(t)
	for name, tc := range map[string]struct {
		kagzi.Schedule
		paused  bool
		overdue int
	}{
		"catchup": {Schedule: kagzi.Schedule{CatchUp: 2}, overdue: 2},
		"age":     {Schedule: kagzi.Schedule{CatchUpAge: 150 * time.Minute}, overdue: 2},
		"skip":    {Schedule: kagzi.Schedule{Overlap: kagzi.OverlapSkip}, overdue: 1},
		"cancel":  {Schedule: kagzi.Schedule{Overlap: kagzi.OverlapCancelPrevious}, overdue: 1},
		"paused":  {paused: true, overdue: 3},
		"dropped": {Schedule: kagzi.Schedule{SkipPaused: true}, paused: true},
	} {
		s := tc.Schedule
		s.Name, s.Every, s.Start = name, time.Hour, k.Now().Add(-100*time.Hour-30*time.Minute)
		k.Schedule(s)
		if tc.paused {
			if err := admin.New(k.Client).Schedules.Pause(k.Ctx, name); err != nil {
				t.Fatal(err)
			}
		}
		k.Exec(`UPDATE kagzi.schedules SET cursor_at = now() - interval '3 hours', next_at = now()
			WHERE name = $1`, name)
		fires, err := admin.New(k.Client).Schedules.NextFires(k.Ctx, name, 5)
		if err != nil || len(fires) != 5 {
			t.Fatalf("%s: %v, %v", name, fires, err)
		}
		now, overdue := k.Now(), 0
		for i, at := range fires {
			if at.Before(now) {
				overdue++
			}
			if i > 0 && at.Sub(fires[i-1]) != time.Hour {
				t.Errorf("%s: %v follows %v", name, at, fires[i-1])
			}
		}
		if overdue != tc.overdue {
			t.Errorf("%s: %d overdue of %v, want %d", name, overdue, fires, tc.overdue)
		}
	}
}
