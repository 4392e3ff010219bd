package ui

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/kit"
)

func TestSchedules(t *testing.T) {
	k := kit.New(t)
	s := newSite(k, Config{})
	other := kagzi.Define[string, string]("other")
	k.Schedule(kagzi.Schedule{
		Name: "daily", Run: echo.With("x"), Cron: "0 7 * * mon-fri", TimeZone: "Asia/Kolkata",
		Overlap: kagzi.OverlapSkip,
	})
	k.Schedule(kagzi.Schedule{Name: "often", Run: echo.With("x"), Every: time.Second})
	k.Schedule(kagzi.Schedule{Name: "odd", Run: other.With("x"), Cron: "0 7 * * mon#2"})
	k.Schedule(kagzi.Schedule{Name: "still", Run: echo.With("x"), Cron: "0 9 * * *"})
	if err := admin.New(k.Client).Schedules.Pause(k.Ctx, "still"); err != nil {
		t.Fatal(err)
	}
	page := s.mustGet("/schedules")
	wantAll(t, "/schedules", page, "07:00 from Monday to Friday", "Asia/Kolkata", "skips the tick", "every 1 s",
		"0 7 * * mon#2", "Paused", "when resumed")
	page = s.mustGet("/schedules?workflow=other")
	wantAll(t, "of the workflow", page, `id="schedule-odd"`)
	wantNone(t, "of the workflow", page, `id="schedule-daily"`)
	page = s.mustGet("/schedules?name=DAI")
	wantAll(t, "by name", page, `id="schedule-daily"`)
	wantNone(t, "by name", page, `id="schedule-odd"`)
	agenda := region(s.stream("/schedules"), "agenda", has("daily"))
	wantAll(t, "the agenda", agenda, "more than 200 fires", `class="paused"`, "Struck out")
	if n := strings.Count(agenda, ">daily</a>"); n < 5 || n > 6 {
		t.Errorf("the agenda has %d fires of a schedule that fires on weekdays", n)
	}
	if n := strings.Count(agenda, ">often</a>"); n != 1 {
		t.Errorf("a schedule that fires each second stands in the agenda %d times", n)
	}
}

func TestSchedulesHavePages(t *testing.T) {
	k := kit.New(t)
	s := newSite(k, Config{})
	for n := range pageSize + 2 {
		k.Schedule(kagzi.Schedule{Name: fmt.Sprintf("s%03d", n), Run: echo.With("x"), Cron: "0 7,19 * * *"})
	}
	page := s.mustGet("/schedules")
	if n := strings.Count(page, `<tr id="schedule-`); n != pageSize {
		t.Errorf("the first page has %d schedules", n)
	}
	wantAll(t, "the first page", page, `rel="next" href="/kagzi/schedules?after=s049"`)
	page = s.mustGet("/schedules?after=s049")
	wantAll(t, "the second page", page, "s050", "s051", "First page")
	wantNone(t, "the second page", page, `rel="next"`, `id="schedule-s049"`)
	agenda := region(s.stream("/schedules"), "agenda", has("s000"))
	wantAll(t, "the agenda", agenda, "There are more fires after")
	if n := strings.Count(agenda, `data-as="hour"`); n != mostFires {
		t.Errorf("the agenda has %d fires", n)
	}
}

func TestAgendaNamesWhatItLeavesOut(t *testing.T) {
	k := kit.New(t)
	s := newSite(k, Config{})
	for n := range mostPlanned + 3 {
		k.Schedule(kagzi.Schedule{Name: fmt.Sprintf("s%03d", n), Run: echo.With("x"), Cron: "0 7 1 1 *"})
	}
	region(s.stream("/schedules"), "agenda", has("And 3 more schedules"))
}

func TestSchedule(t *testing.T) {
	k := kit.New(t)
	s := newSite(k, Config{})
	k.Schedule(kagzi.Schedule{
		Name: "a/b c", Run: echo.With("input of it", kagzi.Metadata{"team": "billing"}, kagzi.Key("k7")),
		Cron: "30 6 * * *", TimeZone: "America/New_York",
		Overlap: kagzi.OverlapQueueOne, CatchUpAge: time.Hour, Jitter: time.Minute,
	})
	const path = "/schedules/a%2Fb%20c"
	wantAll(t, path, s.mustGet(path), "06:30 each day, America/New_York", "one run waits", "none older than 1 h",
		"up to 1 min after the tick", "billing", "k7", "input of it",
		"it has not fired yet", "It has no runs.")
	if n := strings.Count(s.mustGet(path+"?x=1"), ", 06:30:"); n != nextShown { // and some seconds of jitter
		t.Errorf("it has %d next fires in its zone", n)
	}
	next := s.stream(path)
	id, err := admin.New(k.Client).Schedules.Trigger(k.Ctx, "a/b c")
	if err != nil {
		t.Fatal(err)
	}
	html := region(next, "schedule-runs", has(string(id)))
	wantAll(t, "its runs", html, "Pending")
	if err := admin.New(k.Client).Schedules.Pause(k.Ctx, "a/b c"); err != nil {
		t.Fatal(err)
	}
	region(next, "schedule-state", has("ticks that come now fire when it is resumed"))
	if err := k.Client.DeleteSchedule(k.Ctx, "a/b c"); err != nil {
		t.Fatal(err)
	}
	until(next, func(e sse) bool { return e.name == "gone" })
}

func TestScheduleThatWasStoppedByAnError(t *testing.T) {
	k := kit.New(t)
	s := newSite(k, Config{})
	k.Schedule(kagzi.Schedule{Name: "broken", Run: echo.With("x"), Cron: "0 7 * * *"})
	k.Exec(`UPDATE kagzi.schedules SET paused = true, problem = 'the cron expression is of another version'`)
	for _, path := range []string{"/schedules", "/schedules/broken"} {
		wantAll(t, path, s.mustGet(path), "Stopped by an error", "the cron expression is of another version")
	}
}
