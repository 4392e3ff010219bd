package epochs_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/request"
	"github.com/kagzi/kagzi/value"
)

var (
	wf    = kagzi.Define[int, string]("wf", kit.NoRetry)
	goOn  = kagzi.DefineSignal[string]("go on")
	later = kagzi.DefineSignal[string]("later")
	add   = request.Define[int, int]("add")
	state = value.Define[string]("state")
)

// serve executes wf with fn.
func serve(k *kit.Kit, fn func(kagzi.Context, int) (string, error)) {
	kit.ServeWith(k, kagzi.WorkerConfig{}, wf, fn)
}

// names returns the steps of the run, in their order.
func names(k *kit.Kit, run kagzi.Ref, f kagzi.StepFilter) (out []string) {
	k.T.Helper()
	steps, err := k.Client.Steps(k.Ctx, run, f)
	if err != nil {
		k.T.Fatal(err)
	}
	for _, s := range steps {
		out = append(out, s.Step)
	}
	return out
}

// A run continues twice. It stays the same run, sees what came for it before, and has the history of its own epoch and
// of the one before.
func TestARunContinues(t *testing.T) {
	k := kit.New(t)
	var keys kit.Journal
	var last atomic.Int64 // nanoseconds
	serve(k, func(ctx kagzi.Context, n int) (string, error) {
		if now := ctx.Now().UnixNano(); now < last.Swap(now) {
			t.Error("the time went back")
		}
		if _, err := kagzi.Step(ctx, "step", func(ctx context.Context) (int, error) {
			keys.Add(strings.TrimPrefix(kagzi.CurrentStep(ctx).Key, string(kagzi.CurrentStep(ctx).Run)))
			return n, nil
		}); err != nil {
			return "", err
		}
		if n == 0 {
			if err := value.Set(ctx, state, "kept"); err != nil {
				return "", err
			}
		}
		m, err := kagzi.WaitSignal(ctx, goOn)
		if err != nil {
			return "", err
		}
		if n < 2 {
			return "", kagzi.Continue(ctx, n+1)
		}
		l, err := kagzi.WaitSignal(ctx, later)
		return m + " " + l, err
	})
	run := kit.Begin(k, wf, 0, kagzi.ID("x"), kagzi.Metadata{"a": "b"})
	k.Signal(run, later.With("later"))
	for n := range 3 {
		k.Signal(run, goOn.With(fmt.Sprint(n)))
	}
	if got := kit.ResultOf(k, run); got != "2 later" {
		t.Errorf("got %q", got)
	}
	keys.Want(t, "/step /#1/step /#2/step")
	info := k.InfoOf(kagzi.ID("x"))
	if info.ID != run.ID() || info.Epoch != 2 || info.Metadata["a"] != "b" || string(info.Input) != "2" {
		t.Errorf("got %+v", info)
	}
	if got := names(k, run, kagzi.StepFilter{}); !slices.Equal(got, []string{"step", "go on", "later"}) {
		t.Errorf("own epoch: %q", got)
	}
	before := kagzi.StepFilter{Before: true}
	if got := names(k, run, before); !slices.Equal(got, []string{"step", "go on"}) {
		t.Errorf("the epoch before: %q", got)
	}
	before.Steps = []string{"step"}
	steps, err := k.Client.Steps(k.Ctx, run, before)
	if err != nil || len(steps) != 1 || string(steps[0].Output) != "1" {
		t.Errorf("got %+v, %v", steps, err)
	}
	if v, err := value.Get(k.Ctx, k.Client, run, state); err != nil || v.Value != "kept" {
		t.Errorf("the value is %+v, %v", v, err)
	}
	if other := kit.Begin(k, wf, 7); len(names(k, other, kagzi.StepFilter{Before: true})) != 0 {
		t.Error("a run that has not continued has an epoch before")
	}
}

// A value that each of many epochs sets leaves one row, and its versions grow. Of the history the last two epochs stay.
func TestManyEpochsLeaveFewRows(t *testing.T) {
	const turns = 40
	k := kit.New(t)
	serve(k, func(ctx kagzi.Context, n int) (string, error) {
		_, err := kagzi.Go(ctx, "branch", func(ctx kagzi.Context) (int, error) {
			return 0, value.Set(ctx, state, fmt.Sprint("branch ", n))
		}).Result(ctx)
		if err == nil {
			err = kagzi.Do(ctx, "step", func(context.Context) error { return nil })
		}
		if err == nil && n%2 == 0 {
			err = value.Set(ctx, state, fmt.Sprint(n))
		}
		if err == nil && n < turns {
			err = kagzi.Continue(ctx, n+1)
		}
		return "", err
	})
	run := kit.Begin(k, wf, 0)
	var version int64
	for seen := ""; seen != fmt.Sprint(turns); {
		v, err := value.Wait(k.Ctx, k.Client, run, state, version)
		if err != nil {
			t.Fatal(err)
		}
		if v.Version <= version {
			t.Fatalf("version %d after %d", v.Version, version)
		}
		seen, version = v.Value, v.Version
	}
	kit.ResultOf(k, run)
	if n := k.Count(`SELECT count(*) FROM kagzi.step_runs WHERE step_kind = 'FUNCTION'`); n != 2 {
		t.Errorf("%d records of the step", n)
	}
	// the value of the epoch before, that of the last one's branch and that of its function
	if n := k.Count(`SELECT count(*) FROM kagzi.step_runs WHERE step_kind = 'VALUE'`); n > 3 {
		t.Errorf("%d records of the value", n)
	}
}

// A request that was read and not answered is read again in the next epoch, and answered once. One that was answered
// has that answer in every epoch.
func TestOpenRequestsStay(t *testing.T) {
	k := kit.New(t)
	serve(k, func(ctx kagzi.Context, n int) (string, error) {
		for {
			r, err := request.Wait(ctx, add)
			switch {
			case err != nil:
				return "", err
			case r.In < 0:
				return "", r.Reply(ctx, n)
			case r.In > n: // a later epoch answers it
				return "", kagzi.Continue(ctx, n+1)
			}
			if err := r.Reply(ctx, 100*n+r.In); err != nil {
				return "", err
			}
		}
	})
	run := kit.Begin(k, wf, 0)
	for i, in := range []int{0, 3, 1, 5, -1} {
		want := map[int]int{0: 0, 3: 303, 1: 301, 5: 505, -1: 5}[in]
		id := kagzi.ID(fmt.Sprint("q", i))
		if got, err := request.Ask(k.Ctx, k.Client, run, add.With(in).WithID(id)); err != nil || got != want {
			t.Errorf("%d: got %d, %v", in, got, err)
		}
	}
	kit.ResultOf(k, run)
	if got, err := request.Ask(k.Ctx, k.Client, run, add.With(3).WithID("q1")); err != nil || got != 303 {
		t.Errorf("asked again: %d, %v", got, err)
	}
	if e := k.InfoOf(run).Epoch; e != 5 {
		t.Errorf("epoch %d", e)
	}
}

// Children of an earlier epoch go on, and are cancelled with the run. Its parent gets the result of the last epoch.
func TestChildrenAndParents(t *testing.T) {
	k := kit.New(t)
	parent := kagzi.Define[int, string]("parent")
	child := kagzi.Define[int, int]("child")
	w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{})
	kagzi.Handle(w, parent, func(ctx kagzi.Context, n int) (string, error) { return kagzi.RunChild(ctx, "wf", wf, n) })
	kagzi.Handle(w, child, func(ctx kagzi.Context, n int) (int, error) {
		_, err := kagzi.WaitSignal(ctx, later)
		return n, err
	})
	kagzi.Handle(w, wf, func(ctx kagzi.Context, n int) (string, error) {
		if n == 2 {
			_, err := kagzi.WaitSignal(ctx, goOn)
			return "last", err
		}
		if _, err := kagzi.StartChild(ctx, "child", child, n); err != nil {
			return "", err
		}
		return "", kagzi.Continue(ctx, n+1)
	})
	kit.StartWorker(t, w)
	top := kit.Begin(k, parent, 0)
	k.WaitStatus(top, kagzi.StatusSleeping, "child wf")
	run := k.ChildOf(top.ID(), "wf")
	k.WaitStatus(run.ID, kagzi.StatusSleeping, "signal go on")
	rows, err := k.Client.List(k.Ctx, kagzi.RunFilter{Parent: run.ID})
	if err != nil || len(rows) != 2 {
		t.Fatalf("%d children, %v", len(rows), err)
	}
	k.Signal(rows[0].ID, later.With("")) // its end reaches a run that knows it no longer
	k.WaitStatus(rows[0].ID, kagzi.StatusCompleted)
	k.WaitStatus(run.ID, kagzi.StatusSleeping, "signal go on")
	k.Signal(run.ID, goOn.With(""))
	if got := kit.ResultOf(k, top); got != "last" {
		t.Errorf("got %q", got)
	}
	k.WaitStatus(rows[1].ID, kagzi.StatusCancelled)
}

// What cannot continue fails, and says what to do.
func TestWrongContinue(t *testing.T) {
	k := kit.New(t)
	undo := kagzi.Define[int, int]("undo")
	w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{})
	kagzi.Handle(w, undo, func(kagzi.Context, int) (int, error) { return 0, nil })
	kagzi.Handle(w, wf, func(ctx kagzi.Context, n int) (string, error) {
		switch n {
		case 1:
			return "", kagzi.Continue(ctx, "text")
		case 2:
			_, err := kagzi.Go(ctx, "b", func(ctx kagzi.Context) (int, error) {
				return 0, kagzi.Continue(ctx, 9)
			}).Result(ctx)
			return "", err
		case 3:
			kagzi.Compensate(ctx, "undo", undo.With(1))
			return "", kagzi.Continue(ctx, 9)
		case 4:
			return "", kagzi.Continue(ctx, 9, kagzi.Version(-1), nil, kagzi.Timeout(1))
		case 5:
			_ = kagzi.Continue(ctx, 9)
		case 6:
			end := kagzi.Continue(ctx, 9)
			_, err := kagzi.Go(ctx, "b", func(kagzi.Context) (int, error) { return 0, end }).Result(ctx)
			return "", cmp.Or(err, end)
		case 7:
			end := kagzi.Continue(ctx, 9)
			wrapped := fmt.Errorf("wrapped: %w", end)
			_, _ = kagzi.Go(ctx, "b", func(kagzi.Context) (int, error) { return 0, wrapped }).Result(ctx)
			return "", end
		}
		return "completed", nil
	})
	kit.StartWorker(t, w)
	for n, says := range map[int][]string{
		1: {`the input of workflow "wf" is int`, "called with a string"},
		2: {"a branch cannot end the run"},
		3: {"UndoneBy", "Compensate", "cannot continue"},
		4: {"Version", "nil option", "timeout"},
		5: {"return Continue's error"},
		6: {"a branch has returned the error of Continue"},
		7: {"a branch has returned the error of Continue"},
	} {
		re := kit.FailureOf(k, kit.Begin(k, wf, n), kagzi.StatusFailed)
		kit.MustContain(t, re, says...)
		if !errors.Is(re, kind.Validation) && !errors.Is(re, kind.BadRequest) {
			t.Errorf("%d: %v", n, re)
		}
	}
}

// A new epoch counts the attempts of the run anew, takes the newest code, and may get another deadline.
func TestANewEpochBeginsAfresh(t *testing.T) {
	k := kit.New(t)
	w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{})
	handle := func(version int) {
		kagzi.Handle(w, wf, func(ctx kagzi.Context, n int) (string, error) {
			switch n {
			case 0:
				if ctx.Attempt() < 2 {
					return "", errors.New("again")
				}
				return "", kagzi.Continue(ctx, 1, kagzi.Timeout(time.Hour))
			case 1:
				if _, err := kagzi.WaitSignal(ctx, goOn); err != nil {
					return "", err
				}
				return "", kagzi.Continue(ctx, 2, kagzi.Version(1))
			}
			return fmt.Sprintf("version %d attempt %d", version, ctx.Attempt()), nil
		}, kagzi.Version(version))
	}
	handle(1)
	handle(2)
	kit.StartWorker(t, w)
	run := kit.Begin(k, wf, 0, kagzi.Version(2), kagzi.Timeout(time.Minute),
		kagzi.RetryPolicy{MaxAttempts: 3, Backoff: time.Millisecond})
	if info := k.WaitStatus(run, kagzi.StatusSleeping); info.Error != "" || info.Kind != "" || info.Version != 2 {
		t.Errorf("in its second epoch the run is shown as %+v", info)
	}
	k.Signal(run, goOn.With(""))
	if got := kit.ResultOf(k, run); got != "version 1 attempt 1" {
		t.Errorf("got %q", got)
	}
	info := k.InfoOf(run)
	if left := info.DeadlineAt.Sub(info.CreatedAt); left < 59*time.Minute {
		t.Errorf("the deadline is after %v", left)
	}
}

// A run that is cancelled or paused while it continues ends, or rests, in the next epoch.
func TestCancelWhileARunContinues(t *testing.T) {
	k := kit.New(t)
	begun, goes := make(chan struct{}), make(chan struct{})
	serve(k, func(ctx kagzi.Context, n int) (string, error) {
		if n > 0 {
			return "not cancelled", nil
		}
		close(begun)
		<-goes
		return "", kagzi.Continue(ctx, 1)
	})
	run := kit.Begin(k, wf, 0)
	await.Opened(t, begun)
	k.Cancel(run)
	close(goes)
	kit.FailureOf(k, run, kagzi.StatusCancelled)
}
