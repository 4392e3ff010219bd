package operations_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/kind"
)

func napping(ctx kagzi.Context) error { return kagzi.Sleep(ctx, "nap", time.Hour) }

func nap(ctx kagzi.Context) (int, error) { return 0, napping(ctx) }

// stepOf returns the only attempt of a step.
func stepOf(k *kit.Kit, run kagzi.Ref, step string) kagzi.StepAttempt {
	k.T.Helper()
	all := k.Steps(run)[step]
	if len(all) != 1 {
		k.T.Fatalf("step %s has the attempts %+v", step, all)
	}
	return all[0]
}

// A wait that timed out is failed, in JSON, too, one that received its message is complete, and one under way says when
// it times out.
func TestStepsShowWaitsThatTimedOut(t *testing.T) {
	k := kit.New(t)
	wf := kagzi.Define[int, int]("wf")
	kit.Serve(k, wf, func(ctx kagzi.Context, _ int) (int, error) {
		if _, err := kagzi.WaitSignal(ctx, kit.Approved.For("late"), kagzi.Timeout(time.Millisecond)); !errors.Is(err,
			kind.Timeout) {
			return 0, err
		}
		if _, err := kagzi.WaitSignal(ctx, kit.Approved.For("sent"), kagzi.Timeout(time.Hour)); err != nil {
			return 0, err
		}
		_, err := kagzi.WaitSignal(ctx, kit.Approved.For("next"), kagzi.Timeout(time.Hour))
		return 0, err
	})
	run := kit.Begin(k, wf, 1)
	k.Signal(run.ID(), kit.Approved.For("sent").With("yes"))
	k.WaitStatus(run.ID(), kagzi.StatusSleeping, "signal approved/next")

	late, sent, next := stepOf(k, run, "approved:late"), stepOf(k, run, "approved:sent"),
		stepOf(k, run, "approved:next")
	if late.Status != kagzi.StatusFailed || late.Kind != kind.Timeout || late.Error == "" || late.Output != nil ||
		!late.EndedAt.Equal(late.WakeAt) {
		t.Errorf("the wait that timed out is shown as %+v", late)
	}
	if text, err := json.Marshal(late); err != nil || !strings.Contains(string(text), `"status":"FAILED"`) ||
		!strings.Contains(string(text), `"kind":"timeout"`) {
		t.Errorf("as JSON it is %s, %v", text, err)
	}
	if sent.Status != kagzi.StatusCompleted || sent.Kind != "" || string(sent.Output) != `"yes"` {
		t.Errorf("the wait that received its message is shown as %+v", sent)
	}
	if next.Status != kagzi.StatusRunning || next.WakeAt.Before(next.StartedAt) || !next.EndedAt.IsZero() {
		t.Errorf("the wait under way is shown as %+v", next)
	}
}

// What the losers of a Race were doing is cancelled once the winner is recorded, also while the run goes on.
func TestStepsOfARacesLosersAreCancelled(t *testing.T) {
	k := kit.New(t)
	wf, child := kagzi.Define[int, int]("wf"), kagzi.Define[int, int]("child")
	win := make(chan struct{})
	w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{})
	kagzi.Handle(w, child, func(ctx kagzi.Context, _ int) (int, error) { return nap(ctx) })
	kagzi.Handle(w, wf, func(ctx kagzi.Context, _ int) (int, error) {
		_, _, err := kagzi.Race(ctx, "race", map[string]func(kagzi.Context) (int, error){
			"winner": func(ctx kagzi.Context) (int, error) {
				kagzi.Go(ctx, "left", nap)
				return kagzi.Step(ctx, "step", func(context.Context) (int, error) { <-win; return 1, nil })
			},
			"step": func(ctx kagzi.Context) (int, error) {
				if err := kagzi.Do(ctx, "before", func(context.Context) error { return nil }); err != nil {
					return 0, err
				}
				return 0, kagzi.Do(ctx, "step", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
			},
			"nap": nap,
			"wait": func(ctx kagzi.Context) (int, error) {
				_, err := kagzi.WaitSignal(ctx, kit.Approved, kagzi.Timeout(time.Hour))
				return 0, err
			},
			"child": func(ctx kagzi.Context) (int, error) { return kagzi.RunChild(ctx, "child", child, 1) },
			"detached": func(ctx kagzi.Context) (int, error) {
				return kagzi.RunChild(ctx, "child", child, 2, kagzi.Detached())
			},
			"group": func(ctx kagzi.Context) (int, error) {
				return 0, kagzi.Parallel(ctx, "inner", map[string]func(kagzi.Context) error{"deep": napping})
			},
		})
		if err != nil {
			return 0, err
		}
		return 0, kagzi.Sleep(ctx, "after", time.Hour)
	})
	kit.StartWorker(t, w)
	run := kit.Begin(k, wf, 1)
	under := []string{
		"race/step/step", "race/nap/nap", "race/wait/approved", "race/child/child", "race/detached/child",
		"race/group/inner/deep/nap", "race/winner/left/nap",
	}
	await.True(t, "all are under way", func() bool {
		steps, n := k.Steps(run), 0
		for _, step := range under {
			if s := steps[step]; len(s) == 1 && s[0].Status == kagzi.StatusRunning {
				n++
			}
		}
		return n == len(under)
	})
	close(win)
	await.True(t, "the race is decided", func() bool { return len(k.Steps(run)["after"]) == 1 })
	decided := stepOf(k, run, "race").EndedAt
	await.True(t, "the child is cancelled", func() bool {
		return stepOf(k, run, "race/child/child").Status != kagzi.StatusRunning
	})
	for step, want := range map[string]kagzi.Status{
		"race/step/before": kagzi.StatusCompleted, "race/step/step": kagzi.StatusCancelled,
		"race/nap/nap":       kagzi.StatusCancelled,
		"race/wait/approved": kagzi.StatusCancelled, "race/child/child": kagzi.StatusCancelled,
		"race/detached/child":       kagzi.StatusRunning,
		"race/group/inner/deep/nap": kagzi.StatusCancelled, "race/winner/left/nap": kagzi.StatusRunning,
		"after": kagzi.StatusRunning,
		"race":  kagzi.StatusCompleted,
	} {
		s := stepOf(k, run, step)
		if s.Status != want {
			t.Errorf("%s is %s, want %s", step, s.Status, want)
		}
		if want == kagzi.StatusCancelled && step != "race/child/child" && !s.EndedAt.Equal(decided) {
			t.Errorf("%s ended at %v, and the race at %v", step, s.EndedAt, decided)
		}
	}
	detached := stepOf(k, run, "race/detached/child").Child
	if err := admin.New(k.Client).Runs.Terminate(k.Ctx, detached); err != nil {
		t.Fatal(err)
	}
	if s := stepOf(k, run, "race/detached/child"); s.Status != kagzi.StatusCancelled || s.Kind != kind.Cancelled ||
		s.EndedAt.IsZero() {
		t.Errorf("the detached child that was terminated is shown as %+v", s)
	}
}

// A group's failure and Timeout cancel what its other branches do. An attempt of the run that forgets the failure goes
// on with it.
func TestStepsOfAGroupThatFailed(t *testing.T) {
	k := kit.New(t)
	wf := kagzi.Define[int, int]("wf", kagzi.RetryPolicy{MaxAttempts: 2, Backoff: time.Hour})
	kit.Serve(k, wf, func(ctx kagzi.Context, _ int) (int, error) {
		// longer than what stays in memory
		err := kagzi.Parallel(ctx, "late", map[string]func(kagzi.Context) error{"a": napping},
			kagzi.Timeout(time.Second/2))
		if !errors.Is(err, kind.Timeout) {
			return 0, err
		}
		branches := map[string]func(kagzi.Context) error{"a": napping, "breaks": func(ctx kagzi.Context) error {
			if err := kagzi.Sleep(ctx, "brief", time.Second/2); err != nil {
				return err
			}
			return errors.New("broken")
		}}
		if err := kagzi.Parallel(ctx, "handled", branches); err == nil {
			return 0, errors.New("it succeeded")
		}
		if err := kagzi.Do(ctx, "between", func(context.Context) error { return nil }); err != nil {
			return 0, err
		}
		return 0, kagzi.Parallel(ctx, "fatal", branches)
	})
	run := kit.Begin(k, wf, 1)
	info := k.WaitStatus(run.ID(), kagzi.StatusPending, "retry")
	if s := stepOf(k, run, "late"); s.Status != kagzi.StatusFailed || s.Kind != kind.Timeout || s.Type != "MARKER" {
		t.Errorf("the group that timed out is shown as %+v", s)
	}
	for step, want := range map[string]kagzi.Status{
		"late/a/nap": kagzi.StatusCancelled, "handled/a/nap": kagzi.StatusCancelled, "fatal/a/nap": kagzi.StatusRunning,
		"handled": kagzi.StatusFailed,
	} {
		if s := stepOf(k, run, step); s.Status != want {
			t.Errorf("before attempt %d, %s is %s, want %s", info.Attempts+1, step, s.Status, want)
		}
	}
}

// Nothing of a run that is over is under way. After a Resume it is again.
func TestStepsOfARunThatIsOver(t *testing.T) {
	k := kit.New(t)
	wf, child := kagzi.Define[int, int]("wf"), kagzi.Define[int, int]("child")
	w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{})
	kagzi.Handle(w, child, func(ctx kagzi.Context, _ int) (int, error) { return nap(ctx) })
	kagzi.Handle(w, wf, func(ctx kagzi.Context, _ int) (int, error) {
		kagzi.Compensate(ctx, "undo", kit.CancelBooking.With("flight"))
		if _, err := kagzi.StartChild(ctx, "child", child, 1, kagzi.Detached()); err != nil {
			return 0, err
		}
		return 0, kagzi.Sleep(ctx, "nap", time.Hour)
	})
	kit.StartWorker(t, w)
	run := kit.Begin(k, wf, 1)
	k.WaitStatus(run.ID(), kagzi.StatusSleeping)
	want := func(when string, nap, undo kagzi.Status) kagzi.StepAttempt {
		t.Helper()
		s := stepOf(k, run, "nap")
		if c := stepOf(k, run, "child"); s.Status != nap || c.Status != kagzi.StatusRunning {
			t.Errorf("%s: the sleep is %s, the child %s", when, s.Status, c.Status)
		}
		if c := stepOf(k, run, "undo#compensation"); c.Status != undo {
			t.Errorf("%s: the compensation is %s", when, c.Status)
		}
		return s
	}
	want("under way", kagzi.StatusRunning, kagzi.StatusPending)
	if err := admin.New(k.Client).Runs.Terminate(k.Ctx, run); err != nil {
		t.Fatal(err)
	}
	if s := want("terminated", kagzi.StatusCancelled, kagzi.StatusCancelled); !s.EndedAt.Equal(k.InfoOf(run).EndedAt) {
		t.Errorf("the sleep ended at %v, the run at %v", s.EndedAt, k.InfoOf(run).EndedAt)
	}
	k.Resume(run.ID())
	k.WaitStatus(run.ID(), kagzi.StatusSleeping)
	want("resumed", kagzi.StatusRunning, kagzi.StatusPending)
	if err := k.Client.Cancel(k.Ctx, run); err != nil { // no worker serves the compensation
		t.Fatal(err)
	}
	k.WaitStatus(run.ID(), kagzi.StatusSleeping, "compensation undo")
	want("compensating", kagzi.StatusCancelled, kagzi.StatusRunning)
}

// Each attempt says which worker has recorded it: here the first one drained while the run waited.
func TestStepsSayTheirWorkers(t *testing.T) {
	k := kit.New(t)
	wf, approved := kagzi.Define[int, int]("order"), kagzi.DefineSignal[int]("approved")
	fn := func(ctx kagzi.Context, n int) (int, error) {
		for _, name := range []string{"reserve", "ship"} {
			if err := kagzi.Do(ctx, name, func(context.Context) error { return nil }); err != nil {
				return 0, err
			}
			if name == "reserve" {
				if _, err := kagzi.WaitSignal(ctx, approved); err != nil {
					return 0, err
				}
			}
		}
		return n, nil
	}
	stop := kit.Serve(k, wf, fn)
	run := kit.Begin(k, wf, 1)
	k.WaitStatus(run, kagzi.StatusSleeping)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	kit.Serve(k, wf, fn)
	if err := k.Client.Signal(k.Ctx, run, approved.With(1)); err != nil {
		t.Fatal(err)
	}
	kit.ResultOf(k, run)
	steps, err := k.Client.Steps(k.Ctx, run, kagzi.StepFilter{NoPayloads: true})
	if err != nil || len(steps) != 3 {
		t.Fatalf("%+v, %v", steps, err)
	}
	first, last := steps[0].Worker, steps[2].Worker
	if first == "" || last == "" || first == last || steps[1].Worker != last {
		t.Errorf("the workers are %s, %s, %s", first, steps[1].Worker, last)
	}
	if w, err := admin.New(k.Client).Workers.Get(k.Ctx, first); err != nil || w.Status != "OFFLINE" {
		t.Errorf("%+v, %v", w, err)
	}
}
