package ui

import (
	"strings"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/ui/internal/gantt"
	"github.com/kagzi/kagzi/waits"
)

// The pages of a queue and of groups say what is paused there, also if no worker has looked for the key's runs.
func TestPausedKeysAndGroups(t *testing.T) {
	k := kit.New(t)
	s := newSite(k, Config{Authorize: everybody})
	for _, target := range []admin.Target{
		{Queue: "default", Key: "acme"},
		{Queue: "other", Key: "umbrella"},
		{Group: "account-7"},
	} {
		if err := admin.New(k.Client).Pauses.Set(k.Ctx, target, kagzi.Actor("ada"),
			kagzi.Reason("unpaid")); err != nil {
			t.Fatal(err)
		}
	}
	if err := admin.New(k.Client).Keys.Set(k.Ctx, "default", "acme", admin.KeyLimits{MaxRunning: 2}); err != nil {
		t.Fatal(err)
	}
	page := s.mustGet("/queues/default")
	wantAll(t, "/queues/default", page, "Key acme of queue default is paused", "by ada: unpaid", "Unpause…",
		"acme</a> <span class=\"badge warning\">", "Drain its workers…")
	wantNone(t, "/queues/default", page, "umbrella", "account-7",
		`title="Change"><span aria-hidden="true">⋯</span><span class="hidden">Change</span></summary><ul><li>`+
			`<a href="/kagzi/limits/queue`)
	page = s.mustGet("/groups")
	wantAll(t, "/groups", page, "Group account-7 is paused", "by ada: unpaid")
	wantNone(t, "/groups", page, "acme")
}

// A due run that a pause keeps from workers says so in the list and on its own page.
func TestDueRunsNameTheirPause(t *testing.T) {
	k := kit.New(t)
	s := newSite(k, Config{})
	held := kit.Begin(k, echo, "x", kagzi.ID("held"), kagzi.Key("acme"))
	free := kit.Begin(k, echo, "x", kagzi.ID("free"))
	if err := admin.New(k.Client).Pauses.Set(k.Ctx, admin.Target{Queue: "default", Key: "acme"}, kagzi.Actor("ada"),
		kagzi.Reason("unpaid")); err != nil {
		t.Fatal(err)
	}
	const while = "while its key is paused"
	wantAll(t, "the list", s.mustGet("/runs?id=held"), while)
	wantNone(t, "the list", s.mustGet("/runs?id=free"), while)
	wantAll(t, "its page", s.mustGet("/runs/"+string(held.ID())), "Paused: key acme of queue default",
		"by ada", "unpaid")
	wantNone(t, "the other's page", s.mustGet("/runs/"+string(free.ID())), "Paused:")
}

func TestWhatHappensAtATime(t *testing.T) {
	soon := time.Now().Add(time.Hour)
	for on, want := range map[string]string{
		"": "due", "signal approved": ", gives up", "timer nap": ", wakes", "timeout ship": ", times out",
		"retry charge": ", next attempt", "timer a; signal b": ", next", "worker": ", due",
	} {
		r := kagzi.RunInfo{Status: kagzi.StatusSleeping, AvailableAt: soon}
		for text := range strings.SplitSeq(on, "; ") {
			if text != "" {
				r.WaitingOn = append(r.WaitingOn, waits.Parse(text))
			}
		}
		if got := dueWord(r); got != want || !due(r) {
			t.Errorf("%q: %q, not %q", on, got, want)
		}
		if r.PausedAt = time.Now(); due(r) {
			t.Errorf("%q: a paused run does not go on at that time", on)
		}
	}
}

// A visitor whom Authorize refuses all changes is told so.
func TestWhoOnlyReadsIsTold(t *testing.T) {
	k := kit.New(t)
	run := kit.Begin(k, echo, "x")
	const told = "You may look, and change nothing here."
	viewer := newSite(k, Config{Authorize: (&policy{no: Action.Changes}).authorize})
	operator := newSite(k, Config{Authorize: everybody})
	canceller := newSite(k,
		Config{Authorize: (&policy{no: func(a Action) bool { return a.Changes() && a.Verb != Cancel }}).authorize})
	for _, path := range []string{"/", "/runs", "/runs/" + string(run.ID()), "/limits", "/doctor"} {
		wantAll(t, path, viewer.mustGet(path), told, "You are mira.")
		wantNone(t, path, operator.mustGet(path), told)
	}
	wantNone(t, "the run", canceller.mustGet("/runs/"+string(run.ID())), told)
	wantAll(t, "the limits", canceller.mustGet("/limits"), told)
}

// The changes of a list of failed runs are those that apply to them, and the plan repeats the filter.
func TestBulkOfFailedRuns(t *testing.T) {
	k := kit.New(t)
	s := newSite(k, Config{Authorize: everybody})
	kit.Begin(k, echo, "x")
	k.Exec(`UPDATE kagzi.workflow_runs SET status = 'FAILED', finished_at = now(), available_at = NULL,
		error_kind = 'network', error = 'no answer'`)
	page := s.mustGet("/runs?status=failed")
	wantNone(t, "failed runs", page, "bulk/cancel\" data-for")
	if resume, restart := strings.Index(page, `bulk/resume"`), strings.Index(page, `bulk/restart"`); resume < 0 ||
		restart < resume {
		t.Error("resume does not come first")
	}
	wantAll(t, "all runs", s.mustGet("/runs"), `bulk/cancel" data-for="pending running sleeping"`,
		`bulk/resume" data-for="failed cancelled"`)
	r := s.post("/runs/bulk/resume", "all", "1", "filter", "status=failed&kind=network&since=1h")
	wantAll(t, "the plan", r.body, "The filter:", "status failed", "kind network", "started since 1h")
	r = s.post("/runs/bulk/resume", "all", "1", "filter", "")
	wantAll(t, "the plan of all", r.body, "all runs of the namespace")
}

func TestTicksBelowAMillisecond(t *testing.T) {
	at := time.Date(2026, 10, 1, 8, 0, 7, 396_200_000, time.UTC)
	for every, want := range map[time.Duration]string{
		day: "1 Oct", time.Hour: "08:00", time.Second: "08:00:07", 50 * time.Millisecond: "08:00:07.396",
		200 * time.Microsecond: "07.3962 s", time.Microsecond: "07.396200 s",
	} {
		if got := tickText(gantt.Tick{At: at, Every: every}); got != want {
			t.Errorf("every %v: %q, not %q", every, got, want)
		}
	}
}
