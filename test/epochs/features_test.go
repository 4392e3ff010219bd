package epochs_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/request"
	"github.com/kagzi/kagzi/topic"
	"github.com/kagzi/kagzi/value"
)

// Each epoch publishes events of its own, under the same name.
func TestEventsOfEpochs(t *testing.T) {
	k := kit.New(t)
	news := topic.Define[int]("news")
	serve(k, func(ctx kagzi.Context, n int) (string, error) {
		err := topic.Publish(ctx, "tell", news.With(n))
		if err == nil && n < 2 {
			err = kagzi.Continue(ctx, n+1)
		}
		return "", err
	})
	kit.ResultOf(k, kit.Begin(k, wf, 0))
	if n := k.Count(`SELECT count(*) FROM kagzi.events`); n != 3 {
		t.Errorf("%d events", n)
	}
}

// Each epoch sends messages and starts runs of its own, from the step of the same name.
func TestStepsOfEpochsSend(t *testing.T) {
	k := kit.New(t)
	child := kagzi.Define[int, int]("child")
	w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{})
	kagzi.Handle(w, child, func(ctx kagzi.Context, n int) (int, error) {
		for range 3 {
			if _, err := kagzi.WaitSignal(ctx, later); err != nil {
				return 0, err
			}
		}
		return n, nil
	})
	kagzi.Handle(w, wf, func(ctx kagzi.Context, n int) (string, error) {
		before := ctx.Metadata()["epoch"]
		err := kagzi.Do(ctx, "send", func(ctx context.Context) error {
			_, err := kagzi.Start(ctx, k.Client, child, 0)
			return errors.Join(err, k.Client.Signal(ctx, kagzi.ID("child"), later.With("same")))
		})
		if err == nil {
			err = kagzi.SetMetadata(ctx, "meta", kagzi.Metadata{"epoch": fmt.Sprint(n)})
		}
		if err == nil && n < 2 {
			err = kagzi.Continue(ctx, n+1)
		}
		return before, err
	})
	kit.StartWorker(t, w)
	other := kit.Begin(k, child, 0, kagzi.ID("child"))
	run := kit.Begin(k, wf, 0)
	if got := kit.ResultOf(k, run); got != "1" {
		t.Errorf("the last epoch began with the metadata of epoch %q", got)
	}
	kit.ResultOf(k, other)
	if n := k.Count(`SELECT count(*) FROM kagzi.workflow_runs WHERE workflow_type = 'child'`); n != 4 {
		t.Errorf("%d children", n)
	}
}

// A fork of a run that has continued counts its own epochs. So its values are those that it has set last.
func TestForkContinues(t *testing.T) {
	k := kit.New(t)
	last := 4
	serve(k, func(ctx kagzi.Context, n int) (string, error) {
		for _, step := range []string{"copied", "step"} {
			if err := kagzi.Do(ctx, step, func(context.Context) error { return nil }); err != nil {
				return "", err
			}
			if err := value.Set(ctx, state, fmt.Sprint(step, " of epoch ", n)); err != nil {
				return "", err
			}
		}
		if n < last {
			return "", kagzi.Continue(ctx, n+1)
		}
		return "", nil
	})
	run := kit.Begin(k, wf, 0)
	kit.ResultOf(k, run)
	last = 5
	forked, err := admin.New(k.Client).Runs.Fork(k.Ctx, run, "step")
	if err != nil {
		t.Fatal(err)
	}
	kit.ResultOf(k, kit.Find(t, k.Client, wf, forked))
	v, err := value.Get(k.Ctx, k.Client, forked, state)
	if err != nil || v.Value != "step of epoch 5" {
		t.Errorf("got %+v, %v", v, err)
	}
}

// A branch registers a compensation after the function has returned Continue's error. The run fails, and undoes it.
func TestLateRegistration(t *testing.T) {
	k := kit.New(t)
	var j kit.Journal
	undo := kagzi.Define[int, int]("undo")
	w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{})
	kagzi.Handle(w, undo, func(kagzi.Context, int) (int, error) { j.Add("undone"); return 0, nil })
	kagzi.Handle(w, wf, func(ctx kagzi.Context, n int) (string, error) {
		kagzi.Go(ctx, "b", func(ctx kagzi.Context) (int, error) {
			if _, err := kagzi.WaitSignal(ctx, goOn); err != nil {
				return 0, err
			}
			kagzi.Compensate(ctx, "undo", undo.With(1))
			return 0, nil
		})
		return "", kagzi.Continue(ctx, n+1)
	})
	kit.StartWorker(t, w)
	run := kit.Begin(k, wf, 0)
	k.WaitStatus(run, kagzi.StatusSleeping, "signal go on")
	k.Signal(run, goOn.With(""))
	kit.MustContain(t, kit.FailureOf(k, run, kagzi.StatusFailed), "Compensate", "cannot continue")
	j.Want(t, "undone")
	if e := k.InfoOf(run).Epoch; e != 0 {
		t.Errorf("epoch %d", e)
	}
}

// Continue's error counts as the end of the function alone: with another error it fails the run, and a branch or a step
// that uses the function's Context cannot make it.
func TestContinueBesideAnotherError(t *testing.T) {
	k := kit.New(t)
	serve(k, func(ctx kagzi.Context, n int) (string, error) {
		next := func() error { return kagzi.Continue(ctx, 9) }
		switch n {
		case 1:
			return "", errors.Join(errors.New("not closed"), next())
		case 2:
			_, err := kagzi.Go(ctx, "b", func(kagzi.Context) (int, error) { return 0, next() }).Result(ctx)
			return "", err
		case 3:
			return "", kagzi.Do(ctx, "step", func(context.Context) error { return next() })
		case 4:
			return "", fmt.Errorf("wrapped: %w", next())
		}
		return "continued", nil
	})
	for n, says := range map[int]string{
		1: "not closed", 2: "another goroutine", 3: "inside of a step", 4: "as it is",
	} {
		run := kit.Begin(k, wf, n)
		kit.MustContain(t, kit.FailureOf(k, run, kagzi.StatusFailed), says)
	}
}

// The next epoch may be for another worker, which hears of it at once.
func TestAnotherWorkerContinues(t *testing.T) {
	k := kit.New(t)
	for v := 1; v <= 2; v++ {
		w := kit.NewWorker(t, kit.NewClient(t, k.Pool), kit.NotifiedOnly)
		kagzi.Handle(w, wf, func(ctx kagzi.Context, n int) (string, error) {
			if n < 4 {
				return "", kagzi.Continue(ctx, n+1, kagzi.Version(3-v))
			}
			return fmt.Sprint("version ", v), nil
		}, kagzi.Version(v))
		kit.StartWorker(t, w)
	}
	kit.WaitListening(t, k.Pool, 2)
	if got := kit.ResultOf(k, kit.Begin(k, wf, 1, kagzi.Version(1))); got != "version 2" {
		t.Errorf("got %q", got)
	}
}

// For an interceptor an epoch that ends is no end of the run, and its own error does not change that.
func TestInterceptorsOfEpochs(t *testing.T) {
	t.Parallel()
	var j kit.Journal
	k := kit.NewWith(t, kagzi.ClientConfig{Interceptors: []kagzi.Interceptor{{
		Execute: func(ctx context.Context, _ kagzi.Execution, next func(context.Context) error) error {
			err := next(ctx)
			j.Add(fmt.Sprint(err == nil, errors.Is(err, kagzi.ErrSuspended)))
			return err
		},
	}}})
	kit.Serve(k, wf, turn(2))
	kit.ResultOf(k, kit.Begin(k, wf, 0))
	j.Want(t, "false true false true true false")
}

// A request that two epochs read without an answer expires, or its asker learns that the run has ended.
func TestRequestsThatNoEpochAnswers(t *testing.T) {
	k := kit.New(t)
	serve(k, func(ctx kagzi.Context, n int) (string, error) {
		if _, err := request.Wait(ctx, add); err != nil {
			return "", err
		}
		if n < 2 {
			return "", kagzi.Continue(ctx, n+1)
		}
		_, err := kagzi.WaitSignal(ctx, goOn)
		return "", err
	})
	run := kit.Begin(k, wf, 0)
	errs := make(chan error, 1)
	go func() {
		_, err := request.Ask(k.Ctx, k.Client, run, add.With(1))
		errs <- err
	}()
	k.WaitStatus(run, kagzi.StatusSleeping, "signal go on")
	k.Signal(run, goOn.With(""))
	if err := await.Receive(t, errs); !errors.Is(err, kagzi.ErrRunFinished) {
		t.Errorf("got %v", err)
	}
}

// Children of several epochs have the same step name. An ID is that of the child that has it.
func TestChildrenOfOneName(t *testing.T) {
	k := kit.New(t)
	child := kagzi.Define[int, int]("child")
	w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{})
	kagzi.Handle(w, child, func(ctx kagzi.Context, n int) (int, error) {
		_, err := kagzi.WaitSignal(ctx, later)
		return n, err
	})
	kagzi.Handle(w, wf, func(ctx kagzi.Context, n int) (string, error) {
		switch n {
		case 0:
			if _, err := kagzi.StartChild(ctx, "child", child, n, kagzi.ID("c")); err != nil {
				return "", err
			}
			return "", kagzi.Continue(ctx, 1)
		case 1:
			if _, err := kagzi.RunChild(ctx, "child", child, n, kagzi.ID("c")); err == nil {
				return "", errors.New("a second child has the ID of an active one")
			}
			return "", kagzi.Continue(ctx, 2)
		}
		got, err := kagzi.RunChild(ctx, "child", child, n)
		return fmt.Sprint("child of epoch ", got), err
	})
	kit.StartWorker(t, w)
	run := kit.Begin(k, wf, 0)
	k.WaitStatus(run, kagzi.StatusSleeping, "child child")
	k.Signal(kagzi.ID("c"), later.With("")) // its end is not that of the epoch's child
	k.WaitStatus(kagzi.ID("c"), kagzi.StatusCompleted)
	k.WaitStatus(run, kagzi.StatusSleeping, "child child")
	rows, err := k.Client.List(k.Ctx, kagzi.RunFilter{Parent: run.ID()})
	if err != nil || len(rows) != 2 {
		t.Fatalf("%d children, %v", len(rows), err)
	}
	for _, r := range rows {
		if r.ExternalID == "" {
			k.Signal(r.ID, later.With(""))
		}
	}
	if got := kit.ResultOf(k, run); got != "child of epoch 2" {
		t.Errorf("got %q", got)
	}
}

// A run that failed because it cannot continue comes to the same end when it is replayed.
func TestReplayOfARunThatCannotContinue(t *testing.T) {
	k := kit.New(t)
	undo := kagzi.Define[int, int]("undo")
	w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{})
	kagzi.Handle(w, undo, func(kagzi.Context, int) (int, error) { return 0, nil })
	kagzi.Handle(w, wf, func(ctx kagzi.Context, n int) (string, error) {
		if n == 1 {
			kagzi.Compensate(ctx, "undo", undo.With(1))
			return "", kagzi.Continue(ctx, 2)
		}
		_ = kagzi.Continue(ctx, 2)
		return "", nil
	})
	kit.StartWorker(t, w)
	for n := 1; n <= 2; n++ {
		run := kit.Begin(k, wf, n)
		kit.FailureOf(k, run, kagzi.StatusFailed)
		if err := w.Replay(k.Ctx, run); err != nil {
			t.Errorf("%d: %v", n, err)
		}
	}
}
