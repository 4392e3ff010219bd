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

// hasty returns two functions of interceptors: the outer one calls next on a goroutine of its own, and returns err as
// soon as Kagzi has begun what the inner one's next wraps. The inner one knows that from calling next twice: Kagzi
// refuses the call that comes second.
func hasty[T any](err error) (outer, inner func(context.Context, T, func(context.Context) error) error) {
	begun := make(chan struct{}, 1)
	outer = func(ctx context.Context, _ T, next func(context.Context) error) error {
		go func() { _ = next(ctx) }()
		<-begun
		return err
	}
	return outer, func(ctx context.Context, _ T, next func(context.Context) error) error {
		calls := make(chan error, 2)
		for range 2 {
			go func() { calls <- next(ctx) }()
		}
		first := <-calls
		begun <- struct{}{}
		if second := <-calls; kagzi.KindOf(first) == kind.BadRequest {
			return second
		}
		return first
	}
}

// An interceptor must not return before next has. If it does nevertheless, what it wraps is not taken for done, and
// goes on alone.
func TestInterceptorsThatDoNotWaitForNext(t *testing.T) {
	serve := func(k *kit.Kit, underWay, overlaps *atomic.Int64) *kagzi.Run[int] {
		wf := kagzi.Define[int, int]("wf", kit.NoRetry)
		kit.Serve(k, wf, func(ctx kagzi.Context, _ int) (int, error) {
			return kagzi.Step(ctx, "s", func(context.Context) (int, error) {
				if underWay.Add(1) > 1 {
					overlaps.Add(1)
				}
				defer underWay.Add(-1)
				<-time.After(100 * time.Millisecond) // long enough to see whether the run goes on meanwhile
				return 42, nil
			}, kagzi.RetryPolicy{MaxAttempts: 2, Backoff: time.Millisecond})
		})
		return kit.Begin(k, wf, 1)
	}
	t.Run("Result", func(t *testing.T) {
		start, afterStart := hasty[[]*kagzi.StartCall](nil)
		step, afterStep := hasty[kagzi.StepInfo](nil)
		k := kit.NewWith(t, kagzi.ClientConfig{Interceptors: []kagzi.Interceptor{
			{Start: start, Step: step},
			{Start: afterStart, Step: afterStep},
		}})
		var underWay, overlaps atomic.Int64
		if got := kit.ResultOf(k, serve(k, &underWay, &overlaps)); got != 42 {
			t.Errorf("the result is %d", got)
		}
	})
	t.Run("Error", func(t *testing.T) {
		step, afterStep := hasty[kagzi.StepInfo](errors.New("too slow"))
		k := kit.NewWith(t, kagzi.ClientConfig{Interceptors: []kagzi.Interceptor{{Step: step}, {Step: afterStep}}})
		var underWay, overlaps atomic.Int64
		err := kit.FailureOf(k, serve(k, &underWay, &overlaps), kagzi.StatusFailed)
		if kit.MustContain(t, err, "too slow", "2 attempts"); overlaps.Load() > 0 || underWay.Load() > 0 {
			t.Errorf("%d attempts overlap, %d go on after the end of the run", overlaps.Load(), underWay.Load())
		}
	})
	t.Run("Late", func(t *testing.T) {
		late, calls := make(chan error, 1), atomic.Int64{}
		k := kit.NewWith(t, kagzi.ClientConfig{Interceptors: []kagzi.Interceptor{{
			Step: func(ctx context.Context, _ kagzi.StepInfo, next func(context.Context) error) error {
				returned := make(chan struct{})
				go func() {
					await.Opened(t, returned)
					late <- next(ctx)
				}()
				defer time.AfterFunc(50*time.Millisecond, func() { close(returned) })
				return errors.New("refused")
			},
		}}})
		wf := kagzi.Define[int, int]("wf", kit.NoRetry)
		kit.Serve(k, wf, func(ctx kagzi.Context, _ int) (int, error) {
			return 0, kagzi.Do(ctx, "late", func(context.Context) error { calls.Add(1); return nil },
				kagzi.RetryPolicy{MaxAttempts: 1})
		})
		kit.MustContain(t, kit.FailureOf(k, kit.Begin(k, wf, 1), kagzi.StatusFailed), "refused")
		if err := <-late; err == nil || calls.Load() > 0 {
			t.Errorf("next returned %v, and the function was called %d times", err, calls.Load())
		} else {
			kit.MustContain(t, err, "after it had returned")
		}
	})
}
