package ui

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/kit"
)

// An operator starts a run of a workflow, with JSON as its input.
func TestStartOfARun(t *testing.T) {
	k := kit.New(t)
	s := newSite(k, Config{Authorize: everybody})
	w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{Queue: "shop"})
	kagzi.Handle(w, echo, func(_ kagzi.Context, in string) (string, error) { return in + "!", nil })
	if err := w.Start(k.Ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Stop(k.Ctx) })
	wantAll(t, "/runs", s.mustGet("/runs"), `href="/kagzi/start"`, "Start a run…")
	wantAll(t, "the form", s.mustGet("/start"), "Live workers have code for echo.", `name="workflow"`)
	wantAll(t, "the form of echo", s.mustGet("/start?workflow=echo"), "Start a run of echo", `value="shop"`)
	wantAll(t, "the form of another", s.mustGet("/start?workflow=other"), "No live worker has code for workflow")
	send := func(fields url.Values) reply {
		fields.Set("form", fmt.Sprint(len(fields)))
		return s.do(http.MethodPost, "/start", fields.Encode())
	}
	fields := url.Values{
		"workflow": {"echo"}, "input": {`"hello"`}, "id": {"by hand"}, "queue": {"shop"}, "metadata": {"tenant=acme"},
		"priority": {"1"}, "run-timeout": {"1h"},
	}
	r := send(fields)
	if r.StatusCode != http.StatusSeeOther || !strings.HasPrefix(r.Header.Get("Location"), "/kagzi/runs/") {
		t.Fatalf("%s: %s\n%s", r.Status, r.Header.Get("Location"), r.body)
	}
	run := kit.Find(t, k.Client, echo, kagzi.ID("by hand"))
	if got := kit.ResultOf(k, run); got != "hello!" {
		t.Errorf("the run returned %q", got)
	}
	if info := k.InfoOf(run.ID()); info.Queue != "shop" || info.Metadata["tenant"] != "acme" || info.Priority != 1 ||
		info.DeadlineAt.IsZero() {
		t.Errorf("the run is %+v", info)
	}
	for name, wrong := range map[string]url.Values{
		"Workflow is missing": {"input": {"1"}},
		"is no JSON":          {"workflow": {"echo"}, "input": {"hello"}},
		"Priority is 0":       {"workflow": {"echo"}, "priority": {"0"}},
	} {
		if r := send(wrong); r.StatusCode != http.StatusBadRequest || !strings.Contains(r.body, name) {
			t.Errorf("%v: %s, without %q", wrong, r.Status, name)
		}
	}
	if n := k.Count(`SELECT count(*) FROM kagzi.workflow_runs`); n != 1 {
		t.Errorf("%d runs", n)
	}
}

// Authorize is asked for the workflow.
func TestWhoMayStart(t *testing.T) {
	k := kit.New(t)
	s := newSite(k, Config{Authorize: func(_ *http.Request, a Action) (string, error) {
		if a.Changes() && a != (Action{Start, OnWorkflow, "echo", "default"}) && a.ID != "" {
			return "", errors.New("not yours")
		}
		return "mira", nil
	}})
	for workflow, want := range map[string]int{"echo": http.StatusSeeOther, "pay": http.StatusForbidden} {
		body := url.Values{"workflow": {workflow}, "form": {workflow}}.Encode()
		if r := s.do(http.MethodPost, "/start", body); r.StatusCode != want {
			t.Errorf("a start of %s: %s", workflow, r.Status)
		}
	}
	if n := k.Count(`SELECT count(*) FROM kagzi.workflow_runs WHERE workflow_type <> 'echo'`); n != 0 {
		t.Errorf("%d runs were started", n)
	}
	reader := newSite(k, Config{})
	if strings.Contains(reader.mustGet("/runs"), "/kagzi/start") {
		t.Error("a dashboard that only reads has the button")
	}
}
