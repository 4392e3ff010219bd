package kagzi

import (
	"testing"
	"time"
)

func TestTriggerSchedule(t *testing.T) {
	k := newKit(t)
	serve(k, report, func(ctx Context, in string) (string, error) { return in + ctx.FireTime().String(), nil })
	k.schedule(Schedule{Name: "s", Every: time.Hour, Overlap: OverlapSkip})
	if err := k.c.PauseSchedule(k.ctx, "s"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		id, err := k.c.TriggerSchedule(k.ctx, "s")
		if err != nil {
			t.Fatal(err)
		}
		run, err := Find(k.ctx, k.c, report, id)
		if err != nil {
			t.Fatal(err)
		}
		if got := resultOf(k, run); got != "in"+(time.Time{}).String() {
			t.Errorf("result %q", got)
		}
	}
	if n := len(k.fired("s")); n != 2 {
		t.Errorf("%d runs, want 2", n)
	}
}

func TestBackfillSchedule(t *testing.T) {
	k := newKit(t)
	k.schedule(Schedule{Name: "s", Cron: "0 12 * * *", Overlap: OverlapSkip, Start: time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)})
	next := k.info("s").Next
	from, until := time.Date(2019, 12, 30, 12, 0, 0, 0, time.UTC), time.Date(2020, 1, 5, 12, 0, 0, 0, time.UTC)
	for i, want := range []int{5, 0} {
		if n, err := k.c.BackfillSchedule(k.ctx, "s", from, until); n != want || err != nil {
			t.Errorf("backfill %d started %d, %v; want %d", i, n, err, want)
		}
	}
	for i, r := range k.fired("s") {
		if want := time.Date(2020, 1, 1+i, 12, 0, 0, 0, time.UTC); !r.FireTime.Equal(want) {
			t.Errorf("tick %v, want %v", r.FireTime, want)
		}
	}
	if !k.info("s").Next.Equal(next) {
		t.Error("a backfill moved the schedule")
	}
	k.schedule(Schedule{Name: "busy", Every: time.Second})
	_, err := k.c.BackfillSchedule(k.ctx, "busy", from, until)
	mustContain(t, err, "10000", "parts")
	_, err = k.c.BackfillSchedule(k.ctx, "s", from, k.now().Add(time.Hour))
	mustContain(t, err, "in the future")
	_, err = k.c.BackfillSchedule(k.ctx, "s", until, from)
	mustContain(t, err, "before")
}
