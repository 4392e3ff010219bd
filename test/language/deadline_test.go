package language_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/kind"
)

func TestDeadline(t *testing.T) {
	t.Parallel()
	late := func(k *kit.Kit, run *kagzi.Run[int]) {
		k.T.Helper()
		re := kit.FailureOf(k, run, kagzi.StatusFailed)
		if re.Kind != kind.Deadline {
			k.T.Errorf("kind %q: %v", re.Kind, re)
		}
		info, _ := run.Info(k.Ctx)
		if info.EndedAt.Before(info.DeadlineAt) {
			k.T.Errorf("ended at %v, before the deadline %v", info.EndedAt, info.DeadlineAt)
		}
	}
	t.Run("Sleeping", func(t *testing.T) {
		k := kit.New(t)
		wf := kagzi.Define[int, int]("wf", enough)
		var executions atomic.Int64
		kit.Serve(k, wf, func(ctx kagzi.Context, _ int) (int, error) {
			executions.Add(1)
			return 0, kagzi.Sleep(ctx, "long", time.Hour)
		})
		late(k, kit.Begin(k, wf, 1))
		if executions.Load() != 1 {
			t.Errorf("the function was called %d times: a run past its deadline must not begin again",
				executions.Load())
		}
	})
	t.Run("RunningAStep", func(t *testing.T) {
		k := kit.New(t)
		wf := kagzi.Define[int, int]("wf", enough)
		cause := make(chan error, 10)
		kit.Serve(k, wf, func(ctx kagzi.Context, _ int) (int, error) {
			return 0, kagzi.Do(ctx, "long", func(sctx context.Context) error {
				<-sctx.Done()
				cause <- context.Cause(sctx)
				return sctx.Err()
			})
		})
		late(k, kit.Begin(k, wf, 1))
		if err := await.Receive(t, cause); !errors.Is(err, kind.Deadline) {
			t.Errorf("cause %v", err)
		}
	})
	t.Run("AStepThatDoesNotListenIsNotBegunAgain", func(t *testing.T) {
		k := kit.New(t)
		wf := kagzi.Define[int, int]("wf", enough)
		var calls atomic.Int64
		leave := make(chan struct{})
		stop := kit.Serve(k, wf, func(ctx kagzi.Context, _ int) (int, error) {
			return 0, kagzi.Do(ctx, "deaf", func(context.Context) error {
				calls.Add(1)
				await.Opened(t, leave)
				return nil
			})
		})
		late(k, kit.Begin(k, wf, 1))
		close(leave)
		stop()
		if calls.Load() != 1 {
			t.Errorf("the step was executed %d times", calls.Load())
		}
	})
	t.Run("OfABranchThatOutlivesTheFunction", func(t *testing.T) {
		k := kit.New(t)
		wf := kagzi.Define[int, int]("wf", enough)
		var calls atomic.Int64
		kit.Serve(k, wf, func(ctx kagzi.Context, _ int) (int, error) {
			kagzi.Go(ctx, "b", func(ctx kagzi.Context) (int, error) {
				return 0, kagzi.Do(ctx, "long", func(sctx context.Context) error {
					calls.Add(1)
					<-sctx.Done()
					return sctx.Err()
				})
			})
			return 1, nil
		})
		late(k, kit.Begin(k, wf, 1))
		if calls.Load() != 1 {
			t.Errorf("the step was executed %d times", calls.Load())
		}
	})
	t.Run("WaitingForItsRetry", func(t *testing.T) {
		k := kit.New(t)
		wf := kagzi.Define[int, int]("wf", enough, kagzi.RetryPolicy{
			Forever: true, Backoff: time.Hour,
			MaxBackoff: time.Hour,
		})
		kit.Serve(k, wf, func(kagzi.Context, int) (int, error) { return 0, errors.New("no") })
		late(k, kit.Begin(k, wf, 1))
	})
	t.Run("ResumeLiftsIt", func(t *testing.T) {
		k := kit.New(t)
		wf := kagzi.Define[int, int]("wf", enough)
		kit.Serve(k, wf, func(ctx kagzi.Context, _ int) (int, error) {
			return 5, kagzi.Sleep(ctx, "long", time.Duration(enough)+time.Second)
		})
		run := kit.Begin(k, wf, 1)
		late(k, run)
		k.Resume(run.ID())
		if got := kit.ResultOf(k, run); got != 5 {
			t.Errorf("result %d", got)
		}
	})
}
