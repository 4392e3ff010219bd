package language_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/store"
)

// TestResultDoesNotWaitForAnInterceptor has an interceptor that returns only once the last result of its run is
// written. The end of the run waits for the interceptor.
func TestResultDoesNotWaitForAnInterceptor(t *testing.T) {
	t.Parallel()
	var k *kit.Kit
	k = kit.NewWith(t, kagzi.ClientConfig{Interceptors: []kagzi.Interceptor{{
		Execute: func(ctx context.Context, _ kagzi.Execution, next func(context.Context) error) error {
			err := next(ctx)
			await.True(t, "the result is written before the run's end", func() bool {
				return k.Count(`SELECT count(*) FROM kagzi.step_runs s JOIN kagzi.workflow_runs r USING (run_id)
					WHERE s.status = 'COMPLETED' AND r.status = 'RUNNING'`) == 1
			})
			return err
		},
	}}})
	kit.Complete(k, func(ctx kagzi.Context) (int, error) {
		return kagzi.Step(ctx, "s", func(context.Context) (int, error) { return 1, nil })
	})
}

// TestResultOfAnotherBranchSaysThatTheRunIsPaused has a step that is about to begin when another branch has a result.
// The answer to its record says that the run is paused.
func TestResultOfAnotherBranchSaysThatTheRunIsPaused(t *testing.T) {
	k := kit.New(t)
	wf, undo := kagzi.Define[int, int]("wf"), kagzi.Define[int, int]("undo")
	w := kit.NewWorker(t, kit.NewClient(t, k.Pool), kit.NotifiedOnly)
	var armed atomic.Bool
	var calls atomic.Int64
	hung, release := kit.HangAt(t, w, "before flush", armed.Load)
	t.Cleanup(release)
	begun := make(chan struct{})
	kagzi.Handle(w, undo, func(kagzi.Context, int) (int, error) { return 1, nil })
	kagzi.Handle(w, wf, func(ctx kagzi.Context, _ int) (int, error) {
		id := uuid.MustParse(string(ctx.RunID()))
		return 1, kagzi.Parallel(ctx, "p", map[string]func(kagzi.Context) error{
			"a": func(ctx kagzi.Context) error {
				defer release() // its result is known, and not written
				return kagzi.Do(ctx, "a", func(context.Context) error {
					if armed.Swap(true) {
						return nil
					}
					close(begun)
					await.Opened(t, hung)
					return store.New(k.Pool, "default").Pauses.PauseRun(k.Ctx, nil, id, store.Why{Reason: "a test"})
				})
			},
			"b": func(ctx kagzi.Context) error {
				await.Opened(t, begun)
				_, err := kagzi.Step(ctx, "b", func(context.Context) (int, error) {
					calls.Add(1)
					return 1, nil
				}, kagzi.UndoneBy(undo)) // the flush that announces it hangs
				return err
			},
		})
	})
	kit.StartWorker(t, w)
	run := kit.Begin(k, wf, 1)
	k.WaitStatus(run.ID(), kagzi.StatusPending, "pause")
	if n := calls.Load(); n != 0 {
		t.Error("the step has begun although the run is paused")
	}
	if err := admin.New(k.Client).Runs.Unpause(k.Ctx, run.ID()); err != nil {
		t.Fatal(err)
	}
	kit.ResultOf(k, run)
	if n := calls.Load(); n != 1 {
		t.Errorf("the step was called %d times", n)
	}
}

const recordedSteps = `SELECT count(*) FROM kagzi.step_runs WHERE status = 'COMPLETED'`

// TestTheFunctionGoesOnBeforeTheCommit holds up all writes of a run. Its function gets the result of the first step,
// and the second step begins only once that result is committed.
func TestTheFunctionGoesOnBeforeTheCommit(t *testing.T) {
	k := kit.New(t)
	wf := kagzi.Define[int, int64]("wf")
	w := kit.NewWorker(t, k.Client, kit.Unmonitored)
	open, got := make(chan struct{}), make(chan int64, 1)
	kit.Failpoint(t, w, func(point string, _ uuid.UUID) {
		if point == "before flush" {
			await.Opened(t, open)
		}
	})
	var begun atomic.Bool
	kagzi.Handle(w, wf, func(ctx kagzi.Context, _ int) (int64, error) {
		v, err := kagzi.Step(ctx, "first", func(context.Context) (int64, error) { return 7, nil })
		if err != nil {
			return 0, err
		}
		got <- v
		return kagzi.Step(ctx, "second", func(context.Context) (int64, error) {
			begun.Store(true)
			return int64(k.Count(recordedSteps)), nil
		})
	})
	kit.StartWorker(t, w)
	run := kit.Begin(k, wf, 1)
	if v := await.Receive(t, got); v != 7 {
		t.Errorf("the function has %d", v)
	}
	if n := k.Count(recordedSteps); n != 0 || begun.Load() {
		t.Errorf("%d results are recorded, and the second step has begun: %t", n, begun.Load())
	}
	close(open)
	if n := kit.ResultOf(k, run); n != 1 {
		t.Errorf("the second step began when %d results were recorded", n)
	}
}

// TestAResultIsCommittedThoughNothingFollows has functions that go on for long after a step, on the run's own branch
// and on another one.
func TestAResultIsCommittedThoughNothingFollows(t *testing.T) {
	k := kit.New(t)
	wf := kagzi.Define[int, int]("wf")
	w := kit.NewWorker(t, k.Client, kit.Unmonitored)
	open := make(chan struct{})
	kagzi.Handle(w, wf, func(ctx kagzi.Context, _ int) (int, error) {
		step := func(ctx kagzi.Context) (int, error) {
			v, err := kagzi.Step(ctx, "s", func(context.Context) (int, error) { return 1, nil })
			await.Opened(t, open)
			return v, err
		}
		other := kagzi.Go(ctx, "other", step)
		own, err := step(ctx)
		if err != nil {
			return 0, err
		}
		v, err := other.Result(ctx)
		return own + v, err
	})
	kit.StartWorker(t, w)
	run := kit.Begin(k, wf, 1)
	await.True(t, "both results are recorded", func() bool { return k.Count(recordedSteps) == 2 })
	close(open)
	if v := kit.ResultOf(k, run); v != 2 {
		t.Errorf("got %d", v)
	}
}
