package language_test

import (
	"math"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/kit"
)

// The longest durations and the latest times that are taken are stored as they are.
func TestLongestTimes(t *testing.T) {
	k := kit.New(t)
	wf := kagzi.Define[int, int]("wf")
	last := time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
	most := time.Duration(math.MaxInt64)
	if info := k.InfoOf(kit.Begin(k, wf, 1, kagzi.At(last)).ID()); !info.AvailableAt.Equal(last) {
		t.Errorf("available %v", info.AvailableAt)
	}
	info := k.InfoOf(kit.Begin(k, wf, 1, kagzi.Delay(most), kagzi.Timeout(most)).ID())
	if info.AvailableAt.Sub(info.CreatedAt.Add(most)).Abs() > time.Second || info.DeadlineAt.Sub(info.AvailableAt.Add(most)).Abs() > time.Second {
		t.Errorf("created %v, available %v, deadline %v", info.CreatedAt, info.AvailableAt, info.DeadlineAt)
	}
	past := k.InfoOf(kit.Begin(k, wf, 1, kagzi.At(time.Date(1960, 1, 1, 0, 0, 0, 0, time.UTC)), kagzi.Timeout(time.Hour)).ID())
	if past.AvailableAt.Before(past.CreatedAt) || past.DeadlineAt.Before(past.CreatedAt.Add(time.Hour)) {
		t.Errorf("of a past At: created %v, available %v, deadline %v", past.CreatedAt, past.AvailableAt, past.DeadlineAt)
	}
	schedule := kagzi.Schedule{Name: "s", Every: most.Truncate(time.Second), Start: time.Unix(0, 0), End: last, CatchUpAge: most, Run: wf.With(1, kagzi.Timeout(most))}
	if err := k.Client.Schedule(k.Ctx, schedule); err != nil {
		t.Fatal(err)
	}
	if s, err := k.Client.GetSchedule(k.Ctx, "s"); err != nil || !s.Next.Equal(time.Unix(0, 0).Add(schedule.Every)) {
		t.Errorf("next %v, %v", s.Next, err)
	}
	id, err := k.Client.TriggerSchedule(k.Ctx, "s")
	if err != nil {
		t.Fatal(err)
	}
	if info := k.InfoOf(id); info.DeadlineAt.Sub(info.CreatedAt.Add(most)).Abs() > time.Second {
		t.Errorf("of a triggered run: created %v, deadline %v", info.CreatedAt, info.DeadlineAt)
	}
}

// A time out of range is refused, with its option's name, before anything is sent.
func TestTimesOutOfRange(t *testing.T) {
	k := kit.New(t)
	late := time.Date(300_000, 1, 1, 0, 0, 0, 0, time.UTC)
	early := time.Date(-300_000, 1, 1, 0, 0, 0, 0, time.UTC)
	for want, filter := range map[string]kagzi.RunFilter{
		"Since is in the year 300000":  {Since: late},
		"Until is in the year 300000":  {Until: late},
		"Since is in the year -300000": {Since: early},
	} {
		_, err := k.Client.List(k.Ctx, filter)
		kit.MustContain(t, err, want)
		_, err = k.Client.CancelAll(k.Ctx, filter)
		kit.MustContain(t, err, want)
	}
	if err := k.Client.Schedule(k.Ctx, kagzi.Schedule{Name: "s", Every: time.Second, Run: kagzi.Define[int, int]("wf").With(1)}); err != nil {
		t.Fatal(err)
	}
	_, err := k.Client.BackfillSchedule(k.Ctx, "s", early, time.Now().Add(-time.Hour))
	kit.MustContain(t, err, "from is in the year -300000")
	_, err = k.Client.BackfillSchedule(k.Ctx, "s", time.Now(), late)
	kit.MustContain(t, err, "until is in the year 300000")
	_, err = k.Client.BackfillSchedule(k.Ctx, "s", time.Time{}, time.Now().Add(-time.Hour)) // as far back as there are ticks
	kit.MustContain(t, err, "more than 10000 ticks")
}
