package ui

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
)

func TestLimitsAndPauses(t *testing.T) {
	k := kit.New(t)
	s := newSite(k, Config{})
	for _, err := range []error{
		admin.New(k.Client).Queues.Set(k.Ctx, admin.QueueLimits{Queue: "default", MaxRunning: 3, Rate: admin.Rate{
			Starts: 600,
			Per:    time.Minute, Burst: 5,
		}, EachKey: admin.KeyLimits{MaxRunning: 1}, Hold: true}),
		admin.New(k.Client).Limits.Set(k.Ctx, admin.StepLimit{
			Name: "openai", MaxRunning: 7,
			Rate: admin.Rate{Starts: 5, Per: time.Hour}, HonorRetryAfter: true,
		}),
		admin.New(k.Client).Pauses.Set(k.Ctx, admin.Target{Workflow: "held"}, kagzi.Actor("mira"),
			kagzi.Reason("the CRM moves")),
		admin.New(k.Client).Pauses.Set(k.Ctx, admin.Target{Queue: "side"}, admin.Park()),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	held := kagzi.Define[string, string]("held")
	for range 2 {
		kit.Begin(k, held, "x")
	}
	kit.Begin(k, kagzi.Define[string, string]("far", kagzi.Queue("side")), "x")
	page := s.mustGet("/limits")
	wantAll(t, "/limits", page,
		"Workflow held", "mira", "the CRM moves", ">2 due runs</a>", "goes on", "Queue side", "stops between steps",
		"0 of 3", "10 a second, 5 at once", "1 running", "held while waiting", `id="queue-side"`,
		"0 of 7", "5 an hour", "all steps of the limit")
	if strings.Index(page, `id="queue-default"`) > strings.Index(page, `id="queue-side"`) {
		t.Error("queues with limits do not come first")
	}
	wantAll(t, "/queues/side", s.mustGet("/queues/side"), "Queue side is paused", "no limit")
	wantNone(t, "/queues/side", s.mustGet("/queues/side"), "Workflow held")
	wantAll(t, "/queues/default", s.mustGet("/queues/default"), "Workflow held is paused", "by mira: the CRM moves")
	next := s.stream("/limits")
	if err := admin.New(k.Client).Pauses.End(k.Ctx, admin.Target{Workflow: "held"}); err != nil {
		t.Fatal(err)
	}
	region(next, "pauses", func(html string) bool { return !strings.Contains(html, "Workflow held") })
}

func TestLimitsHavePages(t *testing.T) {
	k := kit.New(t)
	s := newSite(k, Config{})
	for n := range pageSize + 1 {
		if err := admin.New(k.Client).Limits.Set(k.Ctx, admin.StepLimit{
			Name:       fmt.Sprintf("l%03d", n),
			MaxRunning: 1,
		}); err != nil {
			t.Fatal(err)
		}
	}
	page := s.mustGet("/limits")
	wantAll(t, "the first page", page, `id="limit-l049"`, `rel="next" href="/kagzi/limits?after=l049"`)
	wantNone(t, "the first page", page, `id="limit-l050"`)
	wantAll(t, "the second page", s.mustGet("/limits?after=l049"), `id="limit-l050"`, "First page")
}

func TestKeys(t *testing.T) {
	k := kit.New(t)
	s := newSite(k, Config{})
	if err := admin.New(k.Client).Queues.Set(k.Ctx,
		admin.QueueLimits{Queue: "default", EachKey: admin.KeyLimits{MaxRunning: 1}}); err != nil {
		t.Fatal(err)
	}
	for n := range pageSize + 1 {
		if err := admin.New(k.Client).Keys.Set(k.Ctx, "default", kagzi.Key(fmt.Sprintf("k%03d", n)),
			admin.KeyLimits{MaxRunning: 2, Weight: 4}); err != nil {
			t.Fatal(err)
		}
	}
	page := s.mustGet("/queues/default") // none waits, so the order is by name
	wantAll(t, "/queues/default", page, `id="key-k049"`,
		`rel="next" href="/kagzi/queues/default?after=k049&amp;order=name"`, "2 running, weight 4", "0 of 2")
	wantNone(t, "/queues/default", page, `id="key-k050"`)
	wantAll(t, "the second page", s.mustGet("/queues/default?after=k049&order=name"), `id="key-k050"`)
	page = s.mustGet("/queues/default?prefix=k02&order=name")
	wantAll(t, "the search", page, `id="key-k025"`)
	wantNone(t, "the search", page, `id="key-k035"`)

	g := kit.NewGate()
	w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{})
	g.Handle(w)
	kit.StartWorker(t, w)
	for n := range 3 {
		kit.Begin(k, g.Workflow, n, kagzi.Key("busy"))
	}
	await.Receive(t, g.Begun)
	html := region(s.stream("/queues/default?x=1"), "key-rows", has("<strong>2</strong>"))
	wantAll(t, "the keys that wait", html, `id="key-busy"`, "1 of 1", "status=active")
	wantNone(t, "the keys that wait", html, `id="key-k001"`)
	if err := admin.New(k.Client).Pauses.Set(k.Ctx, admin.Target{Queue: "default", Key: "busy"}); err != nil {
		t.Fatal(err)
	}
	region(s.stream("/limits"), "pauses", func(html string) bool {
		return strings.Contains(html, "Key busy of queue default") && strings.Contains(html, ">2 due runs</a>")
	})
	close(g.Open)
}

func TestGroups(t *testing.T) {
	k := kit.New(t)
	s := newSite(k, Config{})
	g := kit.NewGate()
	w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{})
	g.Handle(w)
	kit.StartWorker(t, w)
	for n := range 2 {
		kit.Begin(k, g.Workflow, n, kagzi.Group("account-7"))
	}
	await.Receive(t, g.Begun)
	html := region(s.stream("/groups"), "key-rows", has("<strong>1</strong>"))
	wantAll(t, "/groups", html, "account-7", "1 of 1", "group=account-7")
	close(g.Open)
}

func TestRatesInWords(t *testing.T) {
	t.Parallel()
	for rate, want := range map[admin.Rate]string{
		{}: "", {Starts: 50}: "50 a second", {Starts: 1, Per: 20 * time.Millisecond}: "50 a second",
		{Starts: 90, Per: time.Minute}:    "90 a minute",
		{Starts: 1, Per: 7 * time.Second}: "1 in 7 s", {
			Starts: 3000, Per: time.Hour,
			Burst: 10,
		}: "50 a minute, 10 at once", {Starts: 1, Per: 24 * time.Hour}: "1 a day",
	} {
		if got := rateText(rate); got != want {
			t.Errorf("%+v is %q, not %q", rate, got, want)
		}
	}
}
