package ui

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/ui/internal/web"
)

// The navigation of each page counts the runs that need an operator, and leads to them.
func TestTheNavigationCounts(t *testing.T) {
	k := kit.New(t)
	s := newSite(k, Config{Authorize: everybody})
	wantNone(t, "a page of an empty namespace", s.mustGet("/schedules"), "nav-count")
	s.web.Cache.Expire()
	fails, refund := kagzi.Define[string, string]("fails"), kagzi.Define[string, int]("refund")
	w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{})
	kagzi.Handle(w, fails, func(kagzi.Context, string) (string, error) { return "", kagzi.Permanent(errBroken) })
	kagzi.Handle(w, refund, func(ctx kagzi.Context, _ string) (int, error) {
		return kagzi.Step(ctx, "pay", func(context.Context) (int, error) { return 0, errors.New("reset") },
			kagzi.AtMostOnce())
	})
	kit.StartWorker(t, w)
	kit.FailureOf(k, kit.Begin(k, fails, "1"), kagzi.StatusFailed)
	kit.FailureOf(k, kit.Begin(k, fails, "2"), kagzi.StatusFailed)
	k.WaitStatus(kit.Begin(k, refund, ""), kagzi.StatusSleeping, "doubt pay")
	paused := kit.Begin(k, echo, "x", kagzi.Queue("side"))
	if err := admin.New(k.Client).Runs.Pause(k.Ctx, paused.ID()); err != nil {
		t.Fatal(err)
	}
	counts := []string{
		`href="/kagzi/failures?within=1h" title="2 runs failed within the last hour"`,
		`href="/kagzi/runs?waiting-on=doubt" title="1 run in doubt`,
		`href="/kagzi/limits" title="1 run paused`,
		`href="/kagzi/stranded" title="1 run stranded`,
	}
	region(s.stream("/topics"), "nav", func(html string) bool { // Stats shares its answers for a second
		s.web.Cache.Expire()
		return strings.Contains(html, counts[0]) && strings.Contains(html, counts[2])
	})
	ofRun := "/runs/" + string(paused.ID())
	for _, path := range []string{"/schedules", ofRun, ofRun + "/cancel"} {
		wantAll(t, path, s.mustGet(path), counts...)
	}
	p := &policy{no: func(a Action) bool { return a.Object == OnOverview }}
	viewer := newSite(k, Config{Authorize: p.authorize})
	if page := viewer.mustGet("/runs"); strings.Contains(page, "nav-count") || !strings.Contains(page, ">Stranded<") {
		t.Error("who may not see the overview sees its counts")
	}
}

// Pages do not wait for counts: without statistics in time the last counts stay.
func TestCountsThatDoNotComeInTime(t *testing.T) {
	k := kit.New(t)
	ctx, cancel := context.WithCancel(k.Ctx)
	cancel()
	cache := web.NewCache()
	p := &tallies{k.Client, admin.New(k.Client), sharedStats{admin.New(k.Client), cache}}
	if v, err := p.look(ctx, web.Query{}); err == nil {
		t.Errorf("without statistics the counts are %+v", v)
	}
	cache.Every = await.Patience
	if _, err := p.shared.get(k.Ctx); err != nil {
		t.Fatal(err)
	}
	if v, err := p.look(ctx, web.Query{}); err != nil || v != (tally{}) {
		t.Errorf("with statistics alone they are %+v, %v", v, err)
	}
}
