package kagzi

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

// What names a run, and what is one, is passed alike to all that take a Ref.
func TestRunsAreReferences(t *testing.T) {
	k := newKit(t)
	wf := Define[int, int]("wf")
	run := begin(k, wf, 1, ID("one"), Delay(time.Hour))
	info := k.infoOf(run.ID())
	many, err := k.c.StartMany(k.ctx, []Call{wf.With(1, ID("one"))})
	if err != nil {
		t.Fatal(err)
	}
	for name, ref := range map[string]Ref{"RunID": run.ID(), "ID": ID("one"), "Run": run, "RunInfo": info, "*RunInfo": &info, "Started": many[0]} {
		if got := k.infoOf(ref); got.ID != run.ID() {
			t.Errorf("%s: got run %s", name, got.ID)
		}
		k.signal(ref, DefineSignal[int]("n").With(1))
		if found, err := Find(k.ctx, k.c, wf, ref); err != nil || found.ID() != run.ID() {
			t.Errorf("%s: found %v, %v", name, found, err)
		}
		if _, err := k.c.Steps(k.ctx, ref); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := k.c.Events(k.ctx, ref); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := k.c.Resume(k.ctx, ref); !errors.Is(err, ErrRunActive) {
			t.Errorf("%s: resumed: %v", name, err)
		}
	}
	if n := k.count(`SELECT count(*) FROM kagzi.signals`); n != 6 {
		t.Errorf("%d messages were stored, want 6", n)
	}
	k.cancel(run)
	k.resume(info)
	k.cancel(many[0])
	again, err := k.c.Restart(k.ctx, run)
	if err != nil || k.infoOf(again).Origin != run.ID() {
		t.Errorf("restarted as %s, %v", again, err)
	}

	// Errors name the run, not all that is known of it.
	lost := begin(k, wf, 1)
	k.exec(`DELETE FROM kagzi.workflow_payloads WHERE run_id = $1`, string(lost.ID()))
	k.exec(`DELETE FROM kagzi.workflow_runs WHERE run_id = $1`, string(lost.ID()))
	for name, err := range map[string]error{
		"get": second(k.c.Get(k.ctx, lost)), "cancel": k.c.Cancel(k.ctx, RunInfo{ID: lost.ID()}), "signal": k.c.Signal(k.ctx, Started{ID: lost.ID()}, DefineSignal[int]("n").With(1)),
		"steps of": second(k.c.Steps(k.ctx, lost)), "fork": second(k.c.Fork(k.ctx, lost, "step")),
	} {
		if !errors.Is(err, ErrNotFound) || !strings.HasPrefix(err.Error(), "kagzi: "+name+" "+string(lost.ID())) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A message that a step sends to a run is the same one in its next attempt, whichever way that names the run.
func TestMessagesOfAStepToARunByAnyReference(t *testing.T) {
	k := newKit(t)
	target := begin(k, Define[int, int]("target"), 1, Delay(time.Hour))
	complete(k, func(ctx Context) (int, error) {
		return Step(ctx, "send", func(ctx context.Context) (int, error) {
			var ref Ref = target
			if CurrentStep(ctx).Attempt > 1 {
				ref = target.ID()
			}
			if err := k.c.Signal(ctx, ref, DefineSignal[int]("n").With(1)); err != nil || CurrentStep(ctx).Attempt > 1 {
				return 0, err
			}
			return 0, errors.New("once more")
		}, soon)
	})
	if n := k.count(`SELECT count(*) FROM kagzi.signals`); n != 1 {
		t.Errorf("%d messages were stored, want 1", n)
	}
}
