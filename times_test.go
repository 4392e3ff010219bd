package kagzi

import (
	"math"
	"testing"
	"time"
)

// The longest durations and the latest times that are taken are stored as they are.
func TestLongestTimes(t *testing.T) {
	k := newKit(t)
	wf := Define[int, int]("wf")
	last := time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
	most := time.Duration(math.MaxInt64)
	if info := k.infoOf(begin(k, wf, 1, At(last)).ID()); !info.AvailableAt.Equal(last) {
		t.Errorf("available %v", info.AvailableAt)
	}
	info := k.infoOf(begin(k, wf, 1, Delay(most), Timeout(most)).ID())
	if info.AvailableAt.Sub(info.CreatedAt.Add(most)).Abs() > time.Second || info.DeadlineAt.Sub(info.AvailableAt.Add(most)).Abs() > time.Second {
		t.Errorf("created %v, available %v, deadline %v", info.CreatedAt, info.AvailableAt, info.DeadlineAt)
	}
	past := k.infoOf(begin(k, wf, 1, At(time.Date(1960, 1, 1, 0, 0, 0, 0, time.UTC)), Timeout(time.Hour)).ID())
	if past.AvailableAt.Before(past.CreatedAt) || past.DeadlineAt.Before(past.CreatedAt.Add(time.Hour)) {
		t.Errorf("of a past At: created %v, available %v, deadline %v", past.CreatedAt, past.AvailableAt, past.DeadlineAt)
	}
	schedule := Schedule{Name: "s", Every: most.Truncate(time.Second), Start: time.Unix(0, 0), End: last, CatchUpAge: most, Run: wf.With(1, Timeout(most))}
	if err := k.c.Schedule(k.ctx, schedule); err != nil {
		t.Fatal(err)
	}
	if s, err := k.c.GetSchedule(k.ctx, "s"); err != nil || !s.Next.Equal(time.Unix(0, 0).Add(schedule.Every)) {
		t.Errorf("next %v, %v", s.Next, err)
	}
	id, err := k.c.TriggerSchedule(k.ctx, "s")
	if err != nil {
		t.Fatal(err)
	}
	if info := k.infoOf(id); info.DeadlineAt.Sub(info.CreatedAt.Add(most)).Abs() > time.Second {
		t.Errorf("of a triggered run: created %v, deadline %v", info.CreatedAt, info.DeadlineAt)
	}
}

// Times that are none are refused by name before anything is sent.
func TestTimesOutOfRange(t *testing.T) {
	k := newKit(t)
	late := time.Date(300_000, 1, 1, 0, 0, 0, 0, time.UTC)
	early := time.Date(-300_000, 1, 1, 0, 0, 0, 0, time.UTC)
	for want, filter := range map[string]RunFilter{
		"Since is in the year 300000":  {Since: late},
		"Until is in the year 300000":  {Until: late},
		"Since is in the year -300000": {Since: early},
	} {
		_, err := k.c.List(k.ctx, filter)
		mustContain(t, err, want)
		_, err = k.c.CancelAll(k.ctx, filter)
		mustContain(t, err, want)
	}
	if err := k.c.Schedule(k.ctx, Schedule{Name: "s", Every: time.Second, Run: Define[int, int]("wf").With(1)}); err != nil {
		t.Fatal(err)
	}
	_, err := k.c.BackfillSchedule(k.ctx, "s", early, time.Now().Add(-time.Hour))
	mustContain(t, err, "from is in the year -300000")
	_, err = k.c.BackfillSchedule(k.ctx, "s", time.Now(), late)
	mustContain(t, err, "until is in the year 300000")
	_, err = k.c.BackfillSchedule(k.ctx, "s", time.Time{}, time.Now().Add(-time.Hour)) // as far back as there are ticks
	mustContain(t, err, "more than 10000 ticks")
}
