package schedules_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/kit"
)

func TestTriggerSchedule(t *testing.T) {
	k := kit.New(t)
	kit.Serve(k, kit.Report, func(ctx kagzi.Context, in string) (string, error) {
		return in + ctx.FireTime().String(), nil
	})
	k.Schedule(kagzi.Schedule{Name: "s", Every: time.Hour, Overlap: kagzi.OverlapSkip})
	if err := admin.New(k.Client).Schedules.Pause(k.Ctx, "s"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		id, err := admin.New(k.Client).Schedules.Trigger(k.Ctx, "s")
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

// With RejectActive, a trigger starts nothing while a run of the schedule is active, or one of its group.
func TestTriggerUnlessActive(t *testing.T) {
	k := kit.New(t)
	gate := make(chan struct{})
	kit.Serve(k, kit.Report, func(ctx kagzi.Context, in string) (string, error) {
		return in, kagzi.Do(ctx, "wait", func(context.Context) error { <-gate; return nil })
	})
	k.Schedule(kagzi.Schedule{Name: "s", Every: time.Hour})
	k.Schedule(kagzi.Schedule{Name: "grouped", Every: time.Hour, Run: kit.Report.With("in", kagzi.Group("g"))})
	refused := func(name string) {
		t.Helper()
		if _, err := admin.New(k.Client).Schedules.Trigger(k.Ctx, name, kagzi.RejectActive); !errors.Is(err,
			kagzi.ErrRunActive) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	first, err := admin.New(k.Client).Schedules.Trigger(k.Ctx, "s", kagzi.RejectActive)
	if err != nil {
		t.Fatal(err)
	}
	refused("s")
	other := kit.Begin(k, kit.Report, "other", kagzi.Group("g"))
	k.WaitStatus(other, kagzi.StatusRunning)
	refused("grouped")
	close(gate)
	k.WaitStatus(first, kagzi.StatusCompleted)
	k.WaitStatus(other, kagzi.StatusCompleted)
	for _, name := range []string{"s", "grouped"} {
		if _, err := admin.New(k.Client).Schedules.Trigger(k.Ctx, name, kagzi.RejectActive); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := admin.New(k.Client).Schedules.Trigger(k.Ctx, "s", kagzi.ReplaceActive); err == nil ||
		!strings.Contains(err.Error(), "RejectActive") {
		t.Errorf("got %v", err)
	}
	if err := admin.New(k.Client).Runs.Terminate(k.Ctx, first, kagzi.RejectActive); err == nil ||
		!strings.Contains(err.Error(), "Schedules.Trigger") {
		t.Errorf("got %v", err)
	}
}

// A new schedule with FireNew fires once when it is created, and not when it is changed.
func TestFireNew(t *testing.T) {
	k := kit.New(t)
	s := kagzi.Schedule{Name: "s", Every: time.Hour, FireNew: true}
	before := k.Now()
	k.Schedule(s)
	s.Every = 2 * time.Hour
	k.Schedule(s)
	runs := k.Fired("s")
	if len(runs) != 1 || runs[0].FireTime.Before(before) || runs[0].FireTime.After(k.Now()) {
		t.Fatalf("runs %+v", runs)
	}
	if info, err := admin.New(k.Client).Schedules.Get(k.Ctx, "s"); err != nil || !info.Next.After(runs[0].FireTime) {
		t.Errorf("%+v, %v", info, err)
	}
	if err := k.Client.DeleteSchedule(k.Ctx, "s"); err != nil {
		t.Fatal(err)
	}
	k.Schedule(s)
	if n := len(k.Fired("s")); n != 2 {
		t.Errorf("%d runs, want one more of the schedule that was created again", n)
	}
}

// A tick that falls while the group of the schedule is busy waits, and further ones are dropped.
func TestScheduleOfABusyGroup(t *testing.T) {
	k := kit.New(t)
	co := k.Coordinator()
	k.Schedule(kagzi.Schedule{
		Name: "s", Every: time.Hour, Overlap: kagzi.OverlapSkip,
		Run: kit.Report.With("tick", kagzi.Group("g")),
	})
	gate := make(chan struct{})
	kit.Serve(k, kit.Report, func(ctx kagzi.Context, in string) (string, error) {
		return in, kagzi.Do(ctx, "wait", func(context.Context) error { <-gate; return nil })
	})
	other := kit.Begin(k, kit.Report, "other", kagzi.Group("g"))
	k.WaitStatus(other, kagzi.StatusRunning)
	for range 3 {
		k.Missed("s", 5*time.Hour)
		k.Pass(co)
	}
	runs := k.Fired("s")
	if len(runs) != 1 || runs[0].Status != kagzi.StatusPending {
		t.Fatalf("runs %+v, want one that waits", runs)
	}
	close(gate)
	k.WaitStatus(runs[0].ID, kagzi.StatusCompleted)
}

func TestBackfillSchedule(t *testing.T) {
	k := kit.New(t)
	k.Schedule(kagzi.Schedule{
		Name: "s", Cron: "0 12 * * *", Overlap: kagzi.OverlapSkip,
		Start: time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC),
	})
	next := k.Info("s").Next
	from, until := time.Date(2019, 12, 30, 12, 0, 0, 0, time.UTC), time.Date(2020, 1, 5, 12, 0, 0, 0, time.UTC)
	for i, want := range []int{5, 0} {
		if n, err := admin.New(k.Client).Schedules.Backfill(k.Ctx, "s", from, until); n != want || err != nil {
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
	_, err := admin.New(k.Client).Schedules.Backfill(k.Ctx, "busy", from, until)
	kit.MustContain(t, err, "10000", "parts")
	_, err = admin.New(k.Client).Schedules.Backfill(k.Ctx, "s", from, k.Now().Add(time.Hour))
	kit.MustContain(t, err, "in the future")
	_, err = admin.New(k.Client).Schedules.Backfill(k.Ctx, "s", until, from)
	kit.MustContain(t, err, "before")
}
