package language

import (
	"context"
	"errors"
	"testing"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/kind"
)

// What a filter leaves out changes nothing of how the other attempts are shown: a branch that lost a race is cancelled,
// and so is a child whose run was.
func TestStepFilter(t *testing.T) {
	k := kit.New(t)
	answer := kagzi.DefineSignal[string]("answer")
	child := kagzi.Define[string, string]("child")
	wf := kagzi.Define[string, string]("story")
	w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{})
	kagzi.Handle(w, child, func(ctx kagzi.Context, _ string) (string, error) {
		return "", kagzi.Sleep(ctx, "nap", 1<<40)
	})
	kagzi.Handle(w, wf, func(ctx kagzi.Context, in string) (string, error) {
		if _, _, err := kagzi.Race(ctx, "race", map[string]func(kagzi.Context) (string, error){
			"slow": func(ctx kagzi.Context) (string, error) { return "", kagzi.Sleep(ctx, "nap", 1<<40) },
			"fast": func(ctx kagzi.Context) (string, error) { return kagzi.WaitSignal(ctx, answer) },
		}); err != nil {
			return "", err
		}
		if _, err := kagzi.RunChild(ctx, "child", child, "x"); err == nil {
			return "", errors.New("the child was not cancelled")
		}
		return kagzi.Step(ctx, "last", func(context.Context) (string, error) { return "secret", nil },
			kagzi.Input("secret"))
	})
	kit.StartWorker(t, w)
	run := kit.Begin(k, wf, "x")
	k.WaitStatus(run, kagzi.StatusSleeping)
	k.Signal(run.ID(), answer.With("secret").WithHeaders(kagzi.Headers{"from": "mira"}))
	children := func() (ids []kagzi.RunID) {
		list, err := k.Client.List(k.Ctx, kagzi.RunFilter{Parent: run.ID()})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range list {
			ids = append(ids, r.ID)
		}
		return ids
	}
	await.True(t, "the child sleeps", func() bool {
		ids := children()
		return len(ids) == 1 && k.InfoOf(ids[0]).Status == kagzi.StatusSleeping
	})
	k.Cancel(children()[0])
	kit.ResultOf(k, run)

	steps := func(f ...kagzi.StepFilter) []kagzi.StepAttempt {
		t.Helper()
		all, err := k.Client.Steps(k.Ctx, run.ID(), f...)
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	all, bare := steps(), steps(kagzi.StepFilter{NoPayloads: true})
	if len(bare) != len(all) || len(all) < 5 {
		t.Fatalf("%d attempts, and %d without payloads", len(all), len(bare))
	}
	for i, b := range bare {
		if a := all[i]; b.Input != nil || b.Output != nil || b.Headers != nil || b.Step != a.Step ||
			b.Status != a.Status || b.Error != a.Error || !b.EndedAt.Equal(a.EndedAt) || b.Child != a.Child {
			t.Errorf("without payloads it is %+v, with them %+v", b, a)
		}
	}
	if one := steps(kagzi.StepFilter{Steps: []string{"last", "race/slow/nap", "unknown"}}); len(one) != 2 ||
		one[0].Status != kagzi.StatusCancelled || string(one[1].Output) != `"secret"` ||
		string(one[1].Input) != `"secret"` {
		t.Errorf("the named steps are %+v", one)
	}
	if _, err := k.Client.Steps(k.Ctx, run.ID(), kagzi.StepFilter{},
		kagzi.StepFilter{}); kagzi.KindOf(err) != kind.BadRequest {
		t.Errorf("two filters: %v", err)
	}
}
