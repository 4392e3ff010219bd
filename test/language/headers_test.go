package language_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/kit"
)

// shown returns headers as text.
func shownHeaders(h kagzi.Headers) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(h)) {
		all = append(all, name+"="+h[name])
	}
	return strings.Join(all, " ")
}

func TestHeadersAreInherited(t *testing.T) {
	k := kit.New(t)
	child := kagzi.Define[string, string]("child", kagzi.Headers{"of": "child", "tenant": "default"})
	undo := kagzi.Define[string, string]("undo", kagzi.Headers{"of": "undo"})
	parent := kagzi.Define[string, string]("parent")
	read := func(ctx kagzi.Context, _ string) (string, error) {
		step, err := kagzi.Step(ctx, "step", func(ctx context.Context) (string, error) {
			h := kagzi.CurrentStep(ctx).Headers
			shown := shownHeaders(h)
			h["tenant"] = "changed" // a copy
			return shown, nil
		})
		ctx.Headers()["tenant"] = "changed"
		if all := shownHeaders(ctx.Headers()); all != step {
			return "", fmt.Errorf("the function sees %s, its step %s", all, step)
		}
		return step, err
	}
	w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{})
	kagzi.Handle(w, child, read)
	kagzi.Handle(w, undo, read)
	kagzi.Handle(w, parent, func(ctx kagzi.Context, mode string) (string, error) {
		kagzi.Compensate(ctx, "undo", undo.With(""))
		if mode == "fail" {
			return "", fmt.Errorf("it fails")
		}
		own, err := read(ctx, "")
		if err != nil {
			return "", err
		}
		theirs, err := kagzi.RunChild(ctx, "child", child, "", kagzi.Headers{"user": "eve"})
		return own + " | " + theirs, err
	})
	kit.StartWorker(t, w)

	run := kit.Begin(k, parent, "", kagzi.Headers{"tenant": "7"}, kagzi.Headers{"user": "ada", "trace": "t"})
	want := "tenant=7 trace=t user=ada | of=child tenant=default trace=t user=eve"
	if got := kit.ResultOf(k, run); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := shownHeaders(k.InfoOf(run.ID()).Headers); got != "tenant=7 trace=t user=ada" {
		t.Errorf("RunInfo has %s", got)
	}
	again, err := admin.New(k.Client).Runs.Restart(k.Ctx, run.ID())
	if err != nil {
		t.Fatal(err)
	}
	if got := kit.ResultOf(k, kit.Find(t, k.Client, parent, again)); got != want {
		t.Errorf("the restart returns %s", got)
	}
	fork, err := admin.New(k.Client).Runs.Fork(k.Ctx, run.ID(), "child")
	if err != nil {
		t.Fatal(err)
	}
	if got := kit.ResultOf(k, kit.Find(t, k.Client, parent, fork)); got != want {
		t.Errorf("the fork returns %s", got)
	}

	failed := kit.Begin(k, parent, "fail", kagzi.Headers{"tenant": "7"})
	kit.FailureOf(k, failed, kagzi.StatusFailed)
	undone := k.ChildOf(failed.ID(), "undo#compensation")
	if got := shownHeaders(undone.Headers); got != "of=undo tenant=7" {
		t.Errorf("the compensation has %s", got)
	}

	plain := kit.Begin(k, child, "")
	if got := kit.ResultOf(k, plain); got != "of=child tenant=default" {
		t.Errorf("defaults of Define: %s", got)
	}
}

func TestHeadersOfASchedule(t *testing.T) {
	k := kit.New(t)
	wf := kagzi.Define[string, string]("wf")
	co := k.Coordinator()
	s := kagzi.Schedule{Name: "nightly", Cron: "0 3 * * *", Run: wf.With("", kagzi.Headers{"tenant": "7"})}
	k.Schedule(s)
	if got := shownHeaders(k.Info("nightly").Headers); got != "tenant=7" {
		t.Errorf("ScheduleInfo has %s", got)
	}
	k.Missed("nightly", 24*time.Hour)
	k.Pass(co)
	fired := k.Fired("nightly")
	if len(fired) == 0 || shownHeaders(fired[0].Headers) != "tenant=7" {
		t.Errorf("fired %v", fired)
	}
	s.Run = wf.With("")
	k.Schedule(s)
	if got := k.Info("nightly").Headers; got != nil {
		t.Errorf("a change of the schedule left %v", got)
	}
}

func TestHeadersOfMessages(t *testing.T) {
	k := kit.New(t)
	wf := kagzi.Define[int, string]("wf")
	kit.ServeWith(k, kit.NotifiedOnly, wf, func(ctx kagzi.Context, n int) (string, error) {
		var all []string
		for range n {
			m, err := kagzi.WaitMessage(ctx, kit.Approved)
			if err != nil {
				return "", err
			}
			all = append(all, m.Payload+":"+shownHeaders(m.Headers))
			if err := kagzi.Sleep(ctx, "nap", time.Hour); err != nil { // what follows is a replay
				return "", err
			}
		}
		return strings.Join(all, ", "), nil
	})
	base := kit.Approved.With("a").WithHeaders(kagzi.Headers{"from": "start", "x": "1"})
	run := kit.Begin(k, wf, 3, base.WithHeaders(kagzi.Headers{"x": "2"}), kagzi.Headers{"tenant": "7"})
	k.WaitStatus(run.ID(), kagzi.StatusSleeping, "timer nap")
	k.Signal(run.ID(), kit.Approved.With("b"))
	k.Forward(run.ID())
	k.WaitStatus(run.ID(), kagzi.StatusSleeping, "timer nap#2")
	k.Signal(run.ID(), base)
	k.Forward(run.ID())
	k.WaitStatus(run.ID(), kagzi.StatusSleeping, "timer nap#3")
	k.Forward(run.ID())
	want := "a:from=start x=2, b:, a:from=start x=1"
	if got := kit.ResultOf(k, run); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	for step, want := range map[string]string{
		"approved": "from=start x=2", "approved#2": "",
		"approved#3": "from=start x=1",
	} {
		if s := k.Steps(run.ID())[step][0]; shownHeaders(s.Headers) != want || s.Input != nil {
			t.Errorf("%s shows %v and input %s", step, s.Headers, s.Input)
		}
	}
}

func TestInvalidHeaders(t *testing.T) {
	k := kit.New(t)
	wf := kagzi.Define[string, string]("wf")
	many := kagzi.Headers{}
	for i := range 65 {
		many[fmt.Sprint(i)] = ""
	}
	for _, tt := range []struct {
		h    kagzi.Headers
		says string
	}{
		{many, "Headers has 65 entries"},
		{kagzi.Headers{"": "x"}, "header"},
		{kagzi.Headers{"a\nb": "x"}, "header"},
		{kagzi.Headers{"a": "\xff"}, "Headers value of \"a\" is not valid UTF-8"},
		{kagzi.Headers{"a": "\x00"}, "Headers value of \"a\" contains a NUL byte"},
		{kagzi.Headers{"a": strings.Repeat("x", 16<<10)}, "Headers has 16385 bytes"},
	} {
		_, err := kagzi.Start(k.Ctx, k.Client, wf, "", tt.h)
		kit.MustContain(t, err, tt.says)
		kit.MustContain(t, k.Client.Signal(k.Ctx, kagzi.ID("x"), kit.Approved.With("").WithHeaders(tt.h)), tt.says)
	}
}
