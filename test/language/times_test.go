package language_test

import (
	"encoding/json"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/duration"
	"github.com/kagzi/kagzi/internal/kit"
)

// The longest durations and the latest times that are taken are stored as they are.
func TestLongestTimes(t *testing.T) {
	k := kit.New(t)
	wf := kagzi.Define[int, int]("wf")
	last := time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
	const most = duration.Longest
	if info := k.InfoOf(kit.Begin(k, wf, 1, kagzi.At(last)).ID()); !info.AvailableAt.Equal(last) {
		t.Errorf("available %v", info.AvailableAt)
	}
	info := k.InfoOf(kit.Begin(k, wf, 1, kagzi.Delay(most), kagzi.Timeout(most)).ID())
	if info.AvailableAt.Sub(info.CreatedAt.Add(most)).Abs() > time.Second ||
		info.DeadlineAt.Sub(info.AvailableAt.Add(most)).Abs() > time.Second {
		t.Errorf("created %v, available %v, deadline %v", info.CreatedAt, info.AvailableAt, info.DeadlineAt)
	}
	past := k.InfoOf(kit.Begin(k, wf, 1, kagzi.At(time.Date(1960, 1, 1, 0, 0, 0, 0, time.UTC)),
		kagzi.Timeout(time.Hour)).ID())
	if past.AvailableAt.Before(past.CreatedAt) || past.DeadlineAt.Before(past.CreatedAt.Add(time.Hour)) {
		t.Errorf("of a past At: created %v, available %v, deadline %v", past.CreatedAt, past.AvailableAt,
			past.DeadlineAt)
	}
	schedule := kagzi.Schedule{
		Name: "s", Every: most.Truncate(time.Second), Start: time.Unix(0, 0), End: last,
		CatchUpAge: most, Run: wf.With(1, kagzi.Timeout(most)),
	}
	if err := k.Client.Schedule(k.Ctx, schedule); err != nil {
		t.Fatal(err)
	}
	if s, err := admin.New(k.Client).Schedules.Get(k.Ctx, "s"); err != nil ||
		!s.Next.Equal(time.Unix(0, 0).Add(schedule.Every)) {
		t.Errorf("next %v, %v", s.Next, err)
	}
	id, err := admin.New(k.Client).Schedules.Trigger(k.Ctx, "s")
	if err != nil {
		t.Fatal(err)
	}
	if info := k.InfoOf(id); info.DeadlineAt.Sub(info.CreatedAt.Add(most)).Abs() > time.Second {
		t.Errorf("of a triggered run: created %v, deadline %v", info.CreatedAt, info.DeadlineAt)
	}
}

// A duration that is too long is refused, with its field's name. A debounced run is due after its Delay, not at once,
// however long ten times that is.
func TestDurationsThatAreTooLong(t *testing.T) {
	k := kit.New(t)
	wf, batch := kagzi.Define[int, int]("wf"), kagzi.Define[[]int, int]("batch")
	const most = time.Duration(math.MaxInt64)
	for field, opt := range map[string]kagzi.StartOption{
		"delay": kagzi.Delay(most), "timeout": kagzi.Timeout(most), "OncePer": kagzi.OncePer(most),
		"Debounce.Delay":      kagzi.Debounce{Key: "k", Delay: most},
		"Debounce.Max":        kagzi.Debounce{Key: "k", Delay: 1, Max: most},
		"RetryPolicy.Backoff": kagzi.RetryPolicy{Backoff: most},
	} {
		_, err := kagzi.Start(k.Ctx, k.Client, wf, 1, opt, kagzi.ID("id"))
		kit.MustContain(t, err, field+" is 106751 days", "at most 36525 days, a hundred years")
	}
	_, err := kagzi.StartItem(k.Ctx, k.Client, batch, 1, kagzi.Batch{Within: most})
	kit.MustContain(t, err, "Batch.Within is 106751 days", "a hundred years")
	kit.MustContain(t, k.Client.Cancel(k.Ctx, kagzi.RunID("x"), kagzi.Grace(most)), "grace is 106751 days",
		"a hundred years")
	for field, s := range map[string]kagzi.Schedule{
		"Every":      {Every: most.Truncate(time.Second)},
		"CatchUpAge": {Every: time.Hour, CatchUpAge: most},
	} {
		s.Name, s.Run = "s", wf.With(1)
		kit.MustContain(t, k.Client.Schedule(k.Ctx, s), field+" is 106751 days", "a hundred years")
	}
	for field, cfg := range map[string]kagzi.WorkerConfig{
		"StaleAfter": {StaleAfter: most}, "LeaseTimeout": {LeaseTimeout: most}, "PollInterval": {PollInterval: most},
		"DrainTimeout": {DrainTimeout: most},
		"HungAfter":    {HungAfter: most}, "Grace": {Coordinator: kagzi.CoordinatorConfig{Grace: most}},
		"Interval": {Coordinator: kagzi.CoordinatorConfig{Interval: most}},
	} {
		_, err := kagzi.NewWorker(k.Client, cfg)
		kit.MustContain(t, err, field+" is 106751 days", "a hundred years")
	}
	for _, days := range []time.Duration{30 * 365, 36_525} {
		delay := days * 24 * time.Hour
		run := kit.Begin(k, wf, 1, kagzi.Debounce{Key: delay.String(), Delay: delay})
		if info := k.InfoOf(run.ID()); info.AvailableAt.Sub(info.CreatedAt.Add(delay)).Abs() > time.Second {
			t.Errorf("debounced for %v, due at %v", delay, info.AvailableAt)
		}
	}
}

// A sleep, and the wait that an error asks for, last a hundred years if they are to last longer: they do not end at
// once.
func TestSleepForEver(t *testing.T) {
	k := kit.New(t)
	wf := kagzi.Define[string, int]("wf", kagzi.RetryPolicy{Forever: true})
	kit.Serve(k, wf, func(ctx kagzi.Context, how string) (int, error) {
		switch how {
		case "for":
			return 1, kagzi.Sleep(ctx, "s", math.MaxInt64)
		case "until":
			return 1, kagzi.SleepUntil(ctx, "s", time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC))
		case "beyond":
			return 1, kagzi.SleepUntil(ctx, "s", time.Date(300_000, 1, 1, 0, 0, 0, 0, time.UTC))
		default:
			return 1, kagzi.RetryAfter(errors.New("later"), math.MaxInt64)
		}
	})
	for _, how := range []string{"for", "until", "beyond", "retry"} {
		run := kit.Begin(k, wf, how)
		await.True(t, how+": it waits for a hundred years", func() bool {
			info := k.InfoOf(run.ID())
			years := info.AvailableAt.Sub(info.CreatedAt).Hours() / 24 / 365.25
			if !info.EndedAt.IsZero() || info.Attempts > 1 {
				t.Fatalf("%s: %+v", how, info)
			}
			return info.Status != kagzi.StatusRunning && years > 70 && years < 130
		})
	}
}

// A coordinator whose retention is for ever deletes nothing, whatever "for ever" is.
func TestKeepForAVeryLongTime(t *testing.T) {
	k := kit.New(t)
	const most = time.Duration(math.MaxInt64)
	_, err := kagzi.NewCoordinator(k.Client, kagzi.CoordinatorConfig{
		KeepCompleted: most, KeepFailed: most, KeepAudit: most, KeepEvents: most, KeepPendingEvents: most,
		Keep: map[string]time.Duration{"wf": most},
	})
	if err != nil {
		t.Error(err)
	}
}

// The deadline of a run that is put off to the last day of all is no later than what JSON can write.
func TestDeadlineOfTheLastDay(t *testing.T) {
	k := kit.New(t)
	run := kit.Begin(k, kagzi.Define[int, int]("wf"), 1, kagzi.Delay(time.Hour), kagzi.Timeout(48*time.Hour))
	last := time.Date(9999, 12, 31, 23, 0, 0, 0, time.UTC)
	if err := admin.New(k.Client).Runs.Update(k.Ctx, run.ID(), kagzi.At(last)); err != nil {
		t.Fatal(err)
	}
	info := k.InfoOf(run.ID())
	if _, err := json.Marshal(info); err != nil || !info.AvailableAt.Equal(last) || info.DeadlineAt.Before(last) {
		t.Errorf("available %v, deadline %v, %v", info.AvailableAt, info.DeadlineAt, err)
	}
}

// The last instant of all is taken in any time zone, and rounded down: all lists can be written as JSON.
func TestLastInstant(t *testing.T) {
	k := kit.New(t)
	wf := kagzi.Define[int, int]("wf")
	last := time.Date(9999, 12, 31, 23, 59, 59, 999_999_999, time.UTC).In(time.FixedZone("", 5*3600))
	wantJSON := func(list any, err error) {
		t.Helper()
		if err == nil {
			_, err = json.Marshal(list)
		}
		if err != nil {
			t.Error(err)
		}
	}
	started, updated := kit.Begin(k, wf, 1, kagzi.At(last)), kit.Begin(k, wf, 2)
	if err := admin.New(k.Client).Runs.Update(k.Ctx, updated.ID(), kagzi.At(last)); err != nil {
		t.Fatal(err)
	}
	for _, run := range []*kagzi.Run[int]{started, updated} {
		if due := k.InfoOf(run).AvailableAt; due.After(last) || due.Before(last.Add(-time.Second)) {
			t.Errorf("available at %v", due)
		}
	}
	wantJSON(k.Client.List(k.Ctx, kagzi.RunFilter{Until: last}))
	wantJSON(admin.New(k.Client).Audit(k.Ctx, admin.AuditFilter{Until: last}))
	for name, s := range map[string]kagzi.Schedule{"start": {Start: last}, "end": {End: last}} {
		s.Name, s.Every, s.Run = name, time.Hour, wf.With(1)
		if err := k.Client.Schedule(k.Ctx, s); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	wantJSON(admin.New(k.Client).Schedules.List(k.Ctx, admin.ScheduleFilter{}))
	_, err := kagzi.Start(k.Ctx, k.Client, wf, 1, kagzi.At(last), kagzi.Timeout(1))
	kit.MustContain(t, err, "together end in the year 10000")
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
		_, err = admin.New(k.Client).Runs.CancelAll(k.Ctx, filter)
		kit.MustContain(t, err, want)
	}
	if err := k.Client.Schedule(k.Ctx, kagzi.Schedule{
		Name: "s", Every: time.Second,
		Run: kagzi.Define[int, int]("wf").With(1),
	}); err != nil {
		t.Fatal(err)
	}
	_, err := admin.New(k.Client).Schedules.Backfill(k.Ctx, "s", early, time.Now().Add(-time.Hour))
	kit.MustContain(t, err, "from is in the year -300000")
	_, err = admin.New(k.Client).Schedules.Backfill(k.Ctx, "s", time.Now(), late)
	kit.MustContain(t, err, "until is in the year 300000")
	// as far back as there are ticks
	_, err = admin.New(k.Client).Schedules.Backfill(k.Ctx, "s", time.Time{}, time.Now().Add(-time.Hour))
	kit.MustContain(t, err, "more than 10000 ticks")
}
