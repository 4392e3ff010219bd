package kagzi

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"
)

func TestDeadline(t *testing.T) {
	t.Parallel()
	late := func(k *kit, run *Run[int]) {
		k.t.Helper()
		re := failureOf(k, run, StatusFailed)
		if re.Kind != KindDeadline {
			k.t.Errorf("kind %q: %v", re.Kind, re)
		}
		info, _ := run.Info(k.ctx)
		if info.EndedAt.Before(info.DeadlineAt) {
			k.t.Errorf("ended at %v, before the deadline %v", info.EndedAt, info.DeadlineAt)
		}
	}
	t.Run("Sleeping", func(t *testing.T) {
		k := newKit(t)
		wf := Define[int, int]("wf", Timeout(1500*time.Millisecond))
		var executions atomic.Int64
		serve(k, wf, func(ctx Context, _ int) (int, error) {
			executions.Add(1)
			return 0, Sleep(ctx, "long", time.Hour)
		})
		late(k, begin(k, wf, 1))
		if executions.Load() != 1 {
			t.Errorf("the function was called %d times: a run past its deadline must not begin again", executions.Load())
		}
	})
	t.Run("RunningAStep", func(t *testing.T) {
		k := newKit(t)
		wf := Define[int, int]("wf", Timeout(1500*time.Millisecond))
		cause := make(chan error, 10)
		serve(k, wf, func(ctx Context, _ int) (int, error) {
			return 0, Do(ctx, "long", func(sctx context.Context) error {
				<-sctx.Done()
				cause <- context.Cause(sctx)
				return sctx.Err()
			})
		})
		late(k, begin(k, wf, 1))
		if err := <-cause; !errors.Is(err, KindDeadline) {
			t.Errorf("cause %v", err)
		}
	})
	t.Run("AStepThatDoesNotListenIsNotBegunAgain", func(t *testing.T) {
		k := newKit(t)
		wf := Define[int, int]("wf", Timeout(1500*time.Millisecond))
		var calls atomic.Int64
		leave := make(chan struct{})
		stop := serve(k, wf, func(ctx Context, _ int) (int, error) {
			return 0, Do(ctx, "deaf", func(context.Context) error {
				calls.Add(1)
				<-leave
				return nil
			})
		})
		late(k, begin(k, wf, 1))
		close(leave)
		stop()
		if calls.Load() != 1 {
			t.Errorf("the step was executed %d times", calls.Load())
		}
	})
	t.Run("OfABranchThatOutlivesTheFunction", func(t *testing.T) {
		k := newKit(t)
		wf := Define[int, int]("wf", Timeout(1500*time.Millisecond))
		var calls atomic.Int64
		serve(k, wf, func(ctx Context, _ int) (int, error) {
			Go(ctx, "b", func(ctx Context) (int, error) {
				return 0, Do(ctx, "long", func(sctx context.Context) error {
					calls.Add(1)
					<-sctx.Done()
					return sctx.Err()
				})
			})
			return 1, nil
		})
		late(k, begin(k, wf, 1))
		if calls.Load() != 1 {
			t.Errorf("the step was executed %d times", calls.Load())
		}
	})
	t.Run("WaitingForItsRetry", func(t *testing.T) {
		k := newKit(t)
		wf := Define[int, int]("wf", Timeout(1500*time.Millisecond), RetryPolicy{Forever: true, Backoff: time.Hour, MaxBackoff: time.Hour})
		serve(k, wf, func(Context, int) (int, error) { return 0, errors.New("no") })
		late(k, begin(k, wf, 1))
	})
	t.Run("ResumeLiftsIt", func(t *testing.T) {
		k := newKit(t)
		wf := Define[int, int]("wf", Timeout(1500*time.Millisecond))
		serve(k, wf, func(ctx Context, _ int) (int, error) { return 5, Sleep(ctx, "long", 2*time.Second) })
		run := begin(k, wf, 1)
		late(k, run)
		k.resume(run.ID())
		if got := resultOf(k, run); got != 5 {
			t.Errorf("result %d", got)
		}
	})
}
