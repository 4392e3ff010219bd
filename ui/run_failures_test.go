package ui

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/kind"
)

// The whole error of a failed run stands at the top, with the stack of the step that it names.
func TestTheWholeErrorStandsAtTheTop(t *testing.T) {
	k := kit.New(t)
	s := newSite(k, Config{})
	wf := kagzi.Define[string, string]("wf", kit.NoRetry)
	long := strings.Repeat("long ", longError/5+1) + "<end>"
	kit.Serve(k, wf, func(ctx kagzi.Context, sort string) (string, error) {
		switch sort {
		case "long":
			return "", kagzi.Permanent(errors.New(long))
		case "short":
			return "", kagzi.Permanent(errors.New("no room"))
		}
		return kagzi.Step(ctx, "charge", func(context.Context) (string, error) { panic("no card <7>") },
			kit.NoRetry)
	})
	for sort, want := range map[string][]string{
		"stack": {
			"The whole error of step charge, attempt 1", "no card &lt;7&gt;", "run_failures_test.go", "goroutine ",
		},
		"long":  {"<summary>The whole error</summary>", "&lt;end&gt;</pre>"},
		"short": {"no room"},
	} {
		run := kit.Begin(k, wf, sort)
		kit.FailureOf(k, run, kagzi.StatusFailed)
		page := s.mustGet("/runs/" + string(run.ID()))
		top, below, _ := strings.Cut(page, `<section id="facts"`)
		wantAll(t, sort, top, want...)
		if shown := strings.Contains(top, "whole-error"); shown != (sort != "short") {
			t.Errorf("%s: the whole error is shown: %v", sort, shown)
		}
		wantNone(t, "below "+sort, strings.ReplaceAll(below, "of the last failure", "whole-error"), "whole-error")
	}
}

// An error that a sentence has in full is not shown again.
func TestAnErrorIsNotRepeated(t *testing.T) {
	failed := func(step, text string) kagzi.StepAttempt {
		return kagzi.StepAttempt{Step: step, Attempt: 3, Status: kagzi.StatusFailed, Error: text}
	}
	const stack = "panic: broken\ngoroutine 7"
	other := `step "other": ` + strings.Repeat("x", longError)
	attempts := []kagzi.StepAttempt{failed("pay", stack), failed("ship", "no van\nat all"), failed("mail", "short")}
	for text, want := range map[string]wholeError{
		"declined": {}, "": {}, stack: {Text: stack},
		`kagzi: step "pay": panic: broken; (panic, 3 attempts)`: {"pay", 3, stack},
		`step "mail": short (unknown, 3 attempts)`:              {},
		other: {Text: other},
	} {
		run := kagzi.RunInfo{Status: kagzi.StatusFailed, Error: text}
		if got := wholeErrorOf(run, attempts); got != want {
			t.Errorf("%.20q: %+v, not %+v", text, got, want)
		}
		run.Status = kagzi.StatusSleeping
		v := &runView{Run: run}
		if got := wholeErrorOf(run, attempts); got != (wholeError{}) || v.LastError() != (text != "") {
			t.Errorf("%.20q: of an active run %+v", text, got)
		}
	}
}

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
