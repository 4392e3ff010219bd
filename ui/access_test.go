package ui

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/kit"
)

// policy is an Authorize that refuses the actions for which no is true, and remembers those that it was asked.
type policy struct {
	mu    sync.Mutex
	asked []Action
	no    func(Action) bool
}

func (p *policy) authorize(_ *http.Request, a Action) (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked = append(p.asked, a)
	if p.no(a) {
		return "", errors.New("not yours")
	}
	return "mira", nil
}

func TestARunIsAlwaysNamedByItsRunID(t *testing.T) {
	k := kit.New(t)
	run, other := kit.Begin(k, echo, "secret", kagzi.ID("order/42")), kit.Begin(k, echo, "x", kagzi.ID("mine"))
	p := &policy{no: func(a Action) bool { return a.Object == OnRun && a.ID == string(run.ID()) }}
	s := newSite(k, Config{Authorize: p.authorize})
	id := string(run.ID())
	names := []string{id, strings.ToUpper(id), "order%2F42"}
	for _, name := range names {
		for _, path := range []string{"", "/raw?of=input", "/restart", "/fork", "?name=x", "/cancel"} {
			if r := s.get("/runs/" + name + path); r.StatusCode != http.StatusForbidden ||
				strings.Contains(r.body, "secret") {
				t.Errorf("GET /runs/%s%s: %s", name, path, r.Status)
			}
		}
		if r := s.do(http.MethodGet, "/runs/"+name, "", "Accept",
			"text/event-stream"); r.StatusCode != http.StatusForbidden {
			t.Errorf("the stream of %s: %s", name, r.Status)
		}
	}
	for _, name := range append(names, "{"+id+"}", "urn:uuid:"+id, strings.ReplaceAll(id, "-", "")) {
		if r := s.post("/runs/" + url.PathEscape(name) + "/cancel"); r.StatusCode != http.StatusForbidden &&
			r.StatusCode != http.StatusNotFound {
			t.Errorf("POST /runs/%s/cancel: %s", name, r.Status)
		}
	}
	if info := k.InfoOf(run); info.Status != kagzi.StatusPending {
		t.Errorf("the run is %s", info.Status)
	}
	if page := s.mustGet("/runs/mine"); !strings.Contains(page, string(other.ID())) {
		t.Error("a run is not found by its own ID")
	}
	if want := (Action{View, OnRun, string(other.ID()), "default"}); !slices.Contains(p.asked, want) {
		t.Errorf("Authorize was not asked %v", want)
	}
}

func TestWhoMayNotSearchRunsCannotTryTheirIDs(t *testing.T) {
	k := kit.New(t)
	kit.Begin(k, echo, "x", kagzi.ID("one"))
	p := &policy{no: func(a Action) bool { return a.Object == OnRun && a.ID == "" }}
	s := newSite(k, Config{Authorize: p.authorize})
	for _, name := range []string{"one", "two"} {
		if r := s.get("/runs/" + name); r.StatusCode != http.StatusForbidden {
			t.Errorf("%s: %s", name, r.Status)
		}
	}
}

func TestWhoChangesSomethingMustBeAllowedToSeeIt(t *testing.T) {
	k := kit.New(t)
	run := kit.Begin(k, echo, "secret")
	k.Cancel(run)
	s := newSite(k, Config{Authorize: (&policy{no: func(a Action) bool { return !a.Changes() }}).authorize})
	for _, verb := range []string{"restart", "fork", "delete", "resume"} {
		if r := s.get(runPath(run) + verb); r.StatusCode != http.StatusForbidden || strings.Contains(r.body, "secret") {
			t.Errorf("the form %s: %s", verb, r.Status)
		}
	}
	s.refused(http.StatusForbidden, "Not yours", "/runs/bulk/delete", "run", string(run.ID()))
}

func TestBulkLeavesOutWhatThePolicyRefuses(t *testing.T) {
	k := kit.New(t)
	mine, theirs := kit.Begin(k, echo, "1", kagzi.ID("mine")), kit.Begin(k, echo, "2", kagzi.ID("theirs"))
	s := newSite(k,
		Config{Authorize: (&policy{no: func(a Action) bool { return a.Changes() && a.ID == string(theirs.ID()) }}).
			authorize})
	plan, result := s.bulk(Cancel, "all", "1", "filter", "")
	says(t, plan, "1 run would be cancelled", "1</span> left out: Not yours")
	says(t, result, "1 run cancelled")
	upper := strings.ToUpper(string(theirs.ID()))
	says(t, s.post("/runs/bulk/terminate", "run", upper).body, "1</span> left out: Not yours")
	for _, fields := range [][]string{
		{"stage", "apply", "run", string(theirs.ID())},
		{"stage", "apply", "run", upper},
		{"stage", "apply", "again", string(theirs.ID()), "from", ""},
		{"stage", "apply", "filter", "status=active"},
		{"stage", "apply", "filter", "id=theirs"},
	} {
		says(t, s.finish(Terminate, s.post("/runs/bulk/terminate", fields...).body), "0 runs terminated",
			"1</span> left out: Not yours")
	}
	if a, b := k.InfoOf(mine).Status, k.InfoOf(theirs).Status; a != kagzi.StatusCancelled || b != kagzi.StatusPending {
		t.Errorf("they are %s and %s", a, b)
	}
}

func TestAPolicyByQueueCannotBeEvaded(t *testing.T) {
	k := kit.New(t)
	// The shop's team may do everything with its queue, and nothing else with limits and pauses.
	s := newSite(k,
		Config{Authorize: (&policy{no: func(a Action) bool {
			return a.Changes() && a != Action{a.Verb, OnQueue, "shop", "default"}
		}}).authorize})
	for _, c := range [][]string{
		{"/limits/pause", "all", "1"},
		{"/limits/pause", "all", "1", "queue", "shop"},
		{"/limits/pause", "queue", "prod"},
		{"/limits/pause", "queue", " prod", "queue", "shop"},
		{"/limits/pause?queue=shop", "queue", "prod"},
		{"/limits/pause", "queue", "prod", "key", "shop"},
		{"/limits/pause", "queue", "prod", "workflow", "shop"},
		{"/limits/pause", "workflow", "shop"},
		{"/limits/pause", "group", "shop"},
		{"/limits/pause", "queue", "shop", "group", "prod"},
		{"/limits/unpause", "all", "1"},
		{"/limits/unpause", "group", "shop"},
		{"/limits/queue", "queue", "prod", "most", "1"},
		{"/limits/queue", "new-queue", "1", "most", "1"},
		{"/limits/key", "queue", "prod", "key", "shop", "most", "1"},
		{"/limits/step", "limit", "shop", "most", "1"},
		{"/limits/step/delete", "limit", "shop"},
		{"/workers/drain", "queue", "prod"},
	} {
		s.refused(http.StatusForbidden, "Not yours", c[0], c[1:]...)
	}
	s.mustPost("/limits/pause", "queue", "shop")
	s.mustPost("/limits/unpause", "queue", "shop")
	s.mustPost("/limits/queue", "queue", "shop", "most", "1")
	s.mustPost("/limits/key", "queue", "shop", "key", "a", "most", "1")
	s.mustPost("/workers/drain", "queue", "shop")
	page := s.mustGet("/limits")
	for _, link := range []string{"/limits/queue?queue=shop", "/limits/pause?queue=shop", "/workers/drain?queue=shop"} {
		if !strings.Contains(page, link) {
			t.Errorf("the page has no button %s", link)
		}
		s.mustGet(link)
	}
	if r := s.get("/limits/queue?queue=prod"); r.StatusCode != http.StatusForbidden {
		t.Errorf("the form of another queue: %s", r.Status)
	}
}

func TestAStreamEndsWhenARightIsWithdrawn(t *testing.T) {
	k := kit.New(t)
	var withdrawn atomic.Bool
	s := newSite(k, Config{Authorize: func(*http.Request, Action) (string, error) {
		if withdrawn.Load() {
			return "", errors.New("you have left")
		}
		return "mira", nil
	}})
	next := s.stream("/runs")
	next()
	withdrawn.Store(true)
	if e := until(next, func(e sse) bool { return e.name == "gone" }); !strings.Contains(e.data, "You have left") {
		t.Errorf("the stream says %q", e.data)
	}
}

func TestAHeadRequestOpensNoStream(t *testing.T) {
	s := newSite(kit.New(t), Config{})
	if r := s.do(http.MethodHead, "/", "", "Accept", "text/event-stream"); r.Header.Get("Content-Type") !=
		"text/html; charset=utf-8" {
		t.Errorf("it is a %s", r.Header.Get("Content-Type"))
	}
}
