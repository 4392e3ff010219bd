package schedules_test

import (
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/kit"
)

func TestTriggerSchedule(t *testing.T) {
	k := kit.New(t)
	kit.Serve(k, kit.Report, func(ctx kagzi.Context, in string) (string, error) { return in + ctx.FireTime().String(), nil })
	k.Schedule(kagzi.Schedule{Name: "s", Every: time.Hour, Overlap: kagzi.OverlapSkip})
	if err := k.Client.PauseSchedule(k.Ctx, "s"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		id, err := k.Client.TriggerSchedule(k.Ctx, "s")
		if err != nil {
			t.Fatal(err)
		}
		run, err := kagzi.Find(k.Ctx, k.Client, kit.Report, id)
		if err != nil {
			t.Fatal(err)
		}
		if got := kit.ResultOf(k, run); got != "in"+(time.Time{}).String() {
			t.Errorf("result %q", got)
		}
	}
	if n := len(k.Fired("s")); n != 2 {
		t.Errorf("%d runs, want 2", n)
	}
}

func TestBackfillSchedule(t *testing.T) {
	k := kit.New(t)
	k.Schedule(kagzi.Schedule{Name: "s", Cron: "0 12 * * *", Overlap: kagzi.OverlapSkip, Start: time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)})
	next := k.Info("s").Next
	from, until := time.Date(2019, 12, 30, 12, 0, 0, 0, time.UTC), time.Date(2020, 1, 5, 12, 0, 0, 0, time.UTC)
	for i, want := range []int{5, 0} {
		if n, err := k.Client.BackfillSchedule(k.Ctx, "s", from, until); n != want || err != nil {
			t.Errorf("backfill %d started %d, %v; want %d", i, n, err, want)
		}
	}
	for i, r := range k.Fired("s") {
		if want := time.Date(2020, 1, 1+i, 12, 0, 0, 0, time.UTC); !r.FireTime.Equal(want) {
			t.Errorf("tick %v, want %v", r.FireTime, want)
		}
	}
	if !k.Info("s").Next.Equal(next) {
		t.Error("a backfill moved the schedule")
	}
	k.Schedule(kagzi.Schedule{Name: "busy", Every: time.Second})
	_, err := k.Client.BackfillSchedule(k.Ctx, "busy", from, until)
	kit.MustContain(t, err, "10000", "parts")
	_, err = k.Client.BackfillSchedule(k.Ctx, "s", from, k.Now().Add(time.Hour))
	kit.MustContain(t, err, "in the future")
	_, err = k.Client.BackfillSchedule(k.Ctx, "s", until, from)
	kit.MustContain(t, err, "before")
}
