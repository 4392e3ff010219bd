package language_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
)

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
