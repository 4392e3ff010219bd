package ui

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/kit"
)

// The overview and the page of a run show a step in doubt, and a form resolves it; the log says who did.
func TestDoubt(t *testing.T) {
	k := kit.New(t)
	s := newSite(k, Config{Authorize: everybody})
	refund := kagzi.Define[string, int]("refund")
	kit.Serve(k, refund, func(ctx kagzi.Context, _ string) (int, error) {
		return kagzi.Step(ctx, "pay", func(context.Context) (int, error) { return 0, errors.New("connection reset") },
			kagzi.AtMostOnce())
	})
	run := kit.Begin(k, refund, "")
	path := runPath(run)
	k.WaitStatus(run, kagzi.StatusSleeping, "doubt pay")
	page := s.mustGet(strings.TrimSuffix(path, "/"))
	for _, want := range []string{"In doubt", "connection reset", path + "resolve?step=pay", "what the call has done"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if overview := s.mustGet("/"); !strings.Contains(overview, "Steps in doubt") ||
		!strings.Contains(overview, "waiting-on=doubt") {
		t.Error("the overview does not name the step")
	}
	if list := s.mustGet("/runs?waiting-on=doubt"); !strings.Contains(list, string(run.ID())) {
		t.Error("the list of runs in doubt lacks the run")
	}
	form := s.mustGet(path + "resolve?step=pay")
	if !strings.Contains(form, "It did not happen: call again") || !strings.Contains(form, "pay: connection reset") {
		t.Errorf("the form is\n%s", notice(form))
	}
	s.refused(http.StatusBadRequest, "why the step fails", path+"resolve", "step", "pay", "outcome", "give-up", "form",
		"f1")
	s.mustPost(path+"resolve", "step", "pay", "outcome", "happened", "result", "7", "form", "f2")
	s.logged(run, "RESOLVED")
	if got := kit.ResultOf(k, run); got != 7 {
		t.Errorf("the run got %d", got)
	}
}
