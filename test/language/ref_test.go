package language_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/kit"
)

// Every function that takes a Ref accepts a run's ID, its external ID and the run itself.
func TestRunsAreReferences(t *testing.T) {
	k := kit.New(t)
	wf := kagzi.Define[int, int]("wf")
	run := kit.Begin(k, wf, 1, kagzi.ID("one"), kagzi.Delay(time.Hour))
	info := k.InfoOf(run.ID())
	many, err := k.Client.StartMany(k.Ctx, []kagzi.Call{wf.With(1, kagzi.ID("one"))})
	if err != nil {
		t.Fatal(err)
	}
	for name, ref := range map[string]kagzi.Ref{
		"RunID": run.ID(), "ID": kagzi.ID("one"), "Run": run, "RunInfo": info,
		"*RunInfo": &info, "Started": many[0],
	} {
		if got := k.InfoOf(ref); got.ID != run.ID() {
			t.Errorf("%s: got run %s", name, got.ID)
		}
		k.Signal(ref, kagzi.DefineSignal[int]("n").With(1))
		if found, err := kagzi.Find(k.Ctx, k.Client, wf, ref); err != nil || found.ID() != run.ID() {
			t.Errorf("%s: found %v, %v", name, found, err)
		}
		if _, err := k.Client.Steps(k.Ctx, ref); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := admin.New(k.Client).Runs.Log(k.Ctx, ref); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := admin.New(k.Client).Runs.Resume(k.Ctx, ref); !errors.Is(err, kagzi.ErrRunActive) {
			t.Errorf("%s: resumed: %v", name, err)
		}
	}
	if n := k.Count(`SELECT count(*) FROM kagzi.signals`); n != 6 {
		t.Errorf("%d messages were stored, want 6", n)
	}
	k.Cancel(run)
	k.Resume(info)
	k.Cancel(many[0])
	again, err := admin.New(k.Client).Runs.Restart(k.Ctx, run)
	if err != nil || k.InfoOf(again).Origin != run.ID() {
		t.Errorf("restarted as %s, %v", again, err)
	}

	// Errors name the run by its ID only.
	lost := kit.Begin(k, wf, 1)
	k.Exec(`DELETE FROM kagzi.workflow_runs WHERE run_id = $1`, string(lost.ID()))
	for name, err := range map[string]error{
		"get": kit.Second(k.Client.Get(k.Ctx, lost)), "cancel": k.Client.Cancel(k.Ctx, kagzi.RunInfo{ID: lost.ID()}),
		"signal":   k.Client.Signal(k.Ctx, kagzi.Started{ID: lost.ID()}, kagzi.DefineSignal[int]("n").With(1)),
		"steps of": kit.Second(k.Client.Steps(k.Ctx, lost)),
		"fork":     kit.Second(admin.New(k.Client).Runs.Fork(k.Ctx, lost, "step")),
	} {
		if !errors.Is(err, kagzi.ErrNotFound) || !strings.HasPrefix(err.Error(), "kagzi: "+name+" "+string(lost.ID())) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A message that a step sends to a run is the same one in its next attempt, whichever way that names the run.
func TestMessagesOfAStepToARunByAnyReference(t *testing.T) {
	k := kit.New(t)
	target := kit.Begin(k, kagzi.Define[int, int]("target"), 1, kagzi.Delay(time.Hour))
	kit.Complete(k, func(ctx kagzi.Context) (int, error) {
		return kagzi.Step(ctx, "send", func(ctx context.Context) (int, error) {
			var ref kagzi.Ref = target
			if kagzi.CurrentStep(ctx).Attempt > 1 {
				ref = target.ID()
			}
			if err := k.Client.Signal(ctx, ref, kagzi.DefineSignal[int]("n").With(1)); err != nil ||
				kagzi.CurrentStep(ctx).Attempt > 1 {
				return 0, err
			}
			return 0, errors.New("once more")
		}, kit.Soon)
	})
	if n := k.Count(`SELECT count(*) FROM kagzi.signals`); n != 1 {
		t.Errorf("%d messages were stored, want 1", n)
	}
}
