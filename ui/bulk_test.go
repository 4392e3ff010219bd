package ui

import (
	"context"
	"errors"
	"fmt"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/ui/internal/web"
)

// input finds the fields of a page's form that are hidden or have a value.
var input = regexp.MustCompile(`<input [^>]*name="([^"]*)" value="([^"]*)"`)

// fieldsOf returns the fields of the form in a page whose button changes many runs.
func fieldsOf(page string) (fields []string) {
	_, page, _ = strings.Cut(page, `<form class="change"`)
	page, _, _ = strings.Cut(page, `</form>`)
	for _, m := range input.FindAllStringSubmatch(page, -1) {
		fields = append(fields, m[1], html.UnescapeString(m[2]))
	}
	return fields
}

// bulk sends the steps of a change of many runs until nothing is left, beginning with a plan. It returns the plan and
// the result.
func (s *site) bulk(verb Verb, fields ...string) (plan, result string) {
	s.T.Helper()
	path := "/runs/bulk/" + string(verb)
	r := s.post(path, fields...)
	if r.StatusCode != http.StatusOK {
		s.T.Fatalf("the plan: %s\n%s", r.Status, notice(r.body))
	}
	plan = r.body
	return plan, s.finish(verb, plan)
}

// finish sends what a page of a change of many runs asks to be sent, until nothing is.
func (s *site) finish(verb Verb, page string) string {
	s.T.Helper()
	for range 1000 {
		if !strings.Contains(page, `<form class="change"`) {
			return page
		}
		r := s.post("/runs/bulk/"+string(verb), fieldsOf(page)...)
		if r.StatusCode != http.StatusOK {
			s.T.Fatalf("%s: %s\n%s", verb, r.Status, notice(r.body))
		}
		page = r.body
	}
	s.T.Fatal("it does not end")
	return ""
}

func says(t *testing.T, page string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(page, w) {
			t.Errorf("%q is missing:\n%s", w, notice(page))
		}
	}
}

func TestChosenRunsAreChanged(t *testing.T) {
	k := kit.New(t)
	s := newSite(k, Config{Authorize: everybody})
	one, two, three := kit.Begin(k, echo, "1", kagzi.ID("one")), kit.Begin(k, echo, "2", kagzi.ID("two")),
		kit.Begin(k, echo, "3", kagzi.ID("three"))
	k.Cancel(two)
	plan, result := s.bulk(Cancel, "run", string(one.ID()), "run", string(two.ID()), "filter", "status=pending")
	says(t, plan, "1 run would be cancelled", "1</span> left out: It is cancelled already", "Exactly these")
	says(t, result, "1 run cancelled", "/kagzi/runs?status=pending")
	s.logged(one, "CANCELLED")
	if k.InfoOf(three).Status != kagzi.StatusPending {
		t.Error("a run was cancelled that was not chosen")
	}
	// Two runs with the same ID: the newer one gets it.
	again := kit.Begin(k, echo, "1", kagzi.ID("one"))
	k.Cancel(again)
	plan, result = s.bulk(Resume, "run", string(one.ID()), "run", string(again.ID()))
	says(t, plan, "1 run would be resumed", "A newer run with the same ID")
	says(t, result, "1 run resumed")
	if k.InfoOf(again).Status != kagzi.StatusPending || k.InfoOf(one).Status != kagzi.StatusCancelled {
		t.Error("not the newer run was resumed")
	}
	plan, result = s.bulk(Restart, "run", string(two.ID()))
	says(t, plan, "1 run would be restarted")
	says(t, result, "1 run restarted", "1 new run")
	s.logged(two, "RESTARTED")
	_, result = s.bulk(Update, "run", string(three.ID()), "queue", "side", "priority", "4")
	says(t, result, "1 run updated")
	if info := k.InfoOf(three); info.Queue != "side" || info.Priority != 4 {
		t.Errorf("it was updated to %+v", info)
	}
	gone := kit.Begin(k, echo, "4")
	k.Cancel(gone)
	if err := admin.New(k.Client).Runs.Delete(k.Ctx, gone); err != nil {
		t.Fatal(err)
	}
	if err := admin.New(k.Client).Runs.Pause(k.Ctx, three); err != nil {
		t.Fatal(err)
	}
	plan, result = s.bulk(Unpause, "run", string(one.ID()), "run", string(three.ID()), "run", string(gone.ID()))
	says(t, plan, "1 run would be unpaused", "2 left out", "Not found", "It is cancelled already")
	says(t, result, "1 run unpaused")
	says(t, s.post("/runs/bulk/update", "run", string(three.ID())).body, "Show what would change", string(three.ID()))
	s.refused(http.StatusBadRequest, "give a duration such as 1h", "/runs/bulk/update", "run",
		string(three.ID()), "due", "x")
	s.refused(http.StatusBadRequest, "No run is selected", "/runs/bulk/cancel", "filter", "status=pending")
	s.refused(http.StatusBadRequest, "is no run ID", "/runs/bulk/cancel", "run", "<x>")
}

func TestAllThatMatchAreChanged(t *testing.T) {
	k := kit.New(t)
	s := newSite(k, Config{Authorize: everybody})
	other := kit.Begin(k, echo, "x", kagzi.Queue("side"))
	const many = mostNamed + 150
	var calls []kagzi.Call
	for range many {
		calls = append(calls, echo.With("x"))
	}
	runs, err := k.Client.StartMany(k.Ctx, calls)
	if err != nil {
		t.Fatal(err)
	}
	r := s.post("/runs/bulk/cancel", "all", "1", "filter", "queue=default&since=1h")
	says(t, r.body, "1,150 run", "too many to name each", "Cancel all that match")
	if slices.Contains(fieldsOf(r.body), "run") || strings.Contains(r.body, "since=1h&amp;") {
		t.Error("the form names runs, or has a time that moves")
	}
	page := s.post("/runs/bulk/cancel", append(fieldsOf(r.body), "stop", "1")...).body
	says(t, page, "It was stopped", "0 runs cancelled", "Go on with the rest")
	page = s.finish(Cancel, page)
	says(t, page, "runs cancelled")
	if n := k.Count(`SELECT count(*) FROM kagzi.workflow_runs WHERE status = 'CANCELLED'`); n < many {
		t.Errorf("%d runs are cancelled", n)
	}
	if k.InfoOf(other).Status != kagzi.StatusPending {
		t.Error("a run was cancelled that does not match")
	}
	s.logged(runs[0], "CANCELLED")
	s.logged(runs[many-1], "CANCELLED")

	fails := kagzi.Define[string, string]("fails")
	kit.Serve(k, fails, func(_ kagzi.Context, in string) (string, error) {
		return "", kagzi.Permanent(errors.New("cannot reach " + in))
	})
	for _, host := range []string{"alpha", "beta"} {
		kit.FailureOf(k, kit.Begin(k, fails, host), kagzi.StatusFailed)
	}
	// each field of the list counts
	says(t, s.post("/runs/bulk/delete", "all", "1", "filter", "error=reach+beta").body, "1 run would be deleted")
	says(t, s.post("/runs/bulk/cancel", "all", "1", "filter", "paused=1").body, "No run matches")

	few := url.Values{"queue": {"side"}}.Encode()
	plan, result := s.bulk(Terminate, "all", "1", "filter", few)
	says(t, plan, "1 run would be terminated", "Exactly these", string(other.ID()))
	says(t, result, "1 run terminated")
	plan, _ = s.bulk(Delete, "all", "1", "filter", "id="+string(other.ID()))
	says(t, plan, "1 run would be deleted")
	if r := s.post("/runs/bulk/cancel", "all", "1", "filter", "queue=nothing"); !strings.Contains(r.body,
		"No run matches") || strings.Contains(r.body, "<button class=\"button danger") {
		t.Errorf("a plan without runs: %s", notice(r.body))
	}
	s.refused(http.StatusBadRequest, "There is no status", "/runs/bulk/cancel", "all", "1", "filter", "status=lost")
}

func TestChildrenGoWithTheirParents(t *testing.T) {
	k := kit.New(t)
	s := newSite(k, Config{Authorize: everybody})
	kit.Serve(k, echo, func(_ kagzi.Context, in string) (string, error) { return in, nil })
	parent := kagzi.Define[string, string]("parent")
	kit.Serve(k, parent, func(ctx kagzi.Context, in string) (string, error) {
		return kagzi.RunChild(ctx, "child", echo, in)
	})
	run := kit.Begin(k, parent, "x")
	kit.ResultOf(k, run)
	child := k.ChildOf(run.ID(), "child")
	says(t, s.mustGet(runPath(run)+"delete"), "with it 1 child")
	says(t, s.mustGet("/runs/"+string(child.ID)+"/delete"), "This is not possible", "which needs it")
	plan := s.post("/runs/bulk/delete", "run", string(child.ID), "run", string(run.ID())).body
	says(t, plan, "2 runs would be deleted")
	says(t, s.post("/runs/bulk/delete", "all", "1", "filter", "status=completed").body, "2 runs would be deleted")
	says(t, s.finish(Delete, plan), "2 runs deleted")
	if n := k.Count(`SELECT count(*) FROM kagzi.workflow_runs`); n != 0 {
		t.Errorf("%d runs are left", n)
	}
}

func TestABulkThatIsSentTwice(t *testing.T) {
	k := kit.New(t)
	s := newSite(k, Config{Authorize: everybody})
	run := kit.Begin(k, echo, "x")
	k.Cancel(run)
	plan := s.post("/runs/bulk/restart", "run", string(run.ID())).body
	fields := fieldsOf(plan)
	first := s.post("/runs/bulk/restart", fields...)
	second := s.post("/runs/bulk/restart", fields...)
	says(t, first.body, "1 run restarted")
	says(t, second.body, "1 run restarted")
	if n := k.Count(`SELECT count(*) FROM kagzi.workflow_runs`); n != 2 {
		t.Errorf("there are %d runs", n)
	}
}

// A plan that has run out of time shows what it has tried, also if the connection noticed the deadline before the
// context did.
func TestPlanThatRunsOutOfTime(t *testing.T) {
	k := kit.New(t)
	s := newSite(k, Config{Authorize: everybody})
	run := kit.Begin(k, echo, "x").ID()
	p := &bulkPage{Verb: bulkVerbs()[0], bulkPlan: bulkPlan{Filter: "queue=default"}}
	calls := bulkCalls{dry: func(context.Context, kagzi.RunFilter) (admin.BulkResult, error) {
		tried := admin.BulkResult{Matched: 1, Changed: []kagzi.RunID{run}}
		return tried, fmt.Errorf("cancel all: %w", context.DeadlineExceeded)
	}}
	err := s.all.bulk.planAll(k.Ctx, p, calls, web.Form{})
	if err != nil || !p.More || len(p.Sample) != 1 || p.State.Total != 1 {
		t.Errorf("error %v, plan %+v", err, p)
	}
}
