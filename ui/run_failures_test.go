package ui

import (
	"errors"
	"strings"
	"testing"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/kind"
)

// A failure's details have a heading of their own, and failed attempts are apart from what people have changed.
func TestFailuresOfARun(t *testing.T) {
	k := kit.New(t)
	s := newSite(k, Config{})
	wf := kagzi.Define[int, int]("wf", kit.NoRetry)
	kit.Serve(k, wf, func(ctx kagzi.Context, _ int) (int, error) {
		if ctx.Attempt() == 1 {
			return 0, errors.New("the first failure")
		}
		return 0, kind.WithDetails(errors.New("the second failure"), map[string]int{"left": 5})
	})
	run := kit.Begin(k, wf, 1)
	kit.FailureOf(k, run, kagzi.StatusFailed)
	k.Resume(run)
	kit.FailureOf(k, run, kagzi.StatusFailed)
	page := s.mustGet(strings.TrimSuffix(runPath(run), "/"))
	wantAll(t, "the run", page, "Failed attempts", "the first failure", "<h2>Details</h2>", "left")
	before, _, _ := strings.Cut(page, `id="failed-title"`)
	_, changes, _ := strings.Cut(before, "Changes by people")
	if !strings.Contains(changes, "resumed") || strings.Contains(changes, "first failure") {
		t.Errorf("the changes by people are %s", changes)
	}
}
