package kagzi

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"
)

func TestGo(t *testing.T) {
	t.Parallel()
	t.Run("AnUnawaitedFailureFailsTheRun", func(t *testing.T) {
		k := newKit(t)
		wf := Define[struct{}, int]("wf", noRetry)
		serve(k, wf, func(ctx Context, _ struct{}) (int, error) {
			Go(ctx, "lost", func(ctx Context) (int, error) { return 0, Do(ctx, "s", failing) })
			return 1, nil
		})
		re := failureOf(k, begin(k, wf, struct{}{}), StatusFailed)
		mustContain(t, re, `"lost"`, "broken")
	})
	t.Run("TheRunWaitsForItsBranches", func(t *testing.T) {
		k := newKit(t)
		wf := Define[struct{}, int]("wf")
		release := make(chan struct{})
		serve(k, wf, func(ctx Context, _ struct{}) (int, error) {
			Go(ctx, "b", func(ctx Context) (int, error) {
				return 0, Do(ctx, "slow", func(context.Context) error { <-release; return nil })
			})
			Go(ctx, "sleeper", func(ctx Context) (int, error) { return 0, Sleep(ctx, "nap", 300*time.Millisecond) })
			return 1, nil
		})
		run := begin(k, wf, struct{}{})
		waitFor(t, "the step runs", func() bool { return len(k.steps(run.ID())["b/slow"]) == 1 }) // shown after a second
		if info, _ := run.Info(k.ctx); info.Status != StatusRunning {
			t.Errorf("the run is %s before its branch has ended", info.Status)
		}
		close(release)
		resultOf(k, run)
	})
	t.Run("TheFunctionsErrorCancelsBranches", func(t *testing.T) {
		// Whatever they do: sleep for long, wait for a retry, wait for each other, execute a step.
		for name, fn := range map[string]func(Context) (int, error){
			"Sleeping": func(ctx Context) (int, error) { return 0, Sleep(ctx, "long", time.Hour) },
			"Retrying": func(ctx Context) (int, error) {
				return 0, Do(ctx, "s", func(context.Context) error { return errors.New("x") }, RetryPolicy{Backoff: time.Hour})
			},
			"Awaiting": func(ctx Context) (int, error) {
				return Go(ctx, "inner", func(ctx Context) (int, error) { return 0, Sleep(ctx, "long", time.Hour) }).Result(ctx)
			},
			"InAStep": func(ctx Context) (int, error) {
				return 0, Do(ctx, "s", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
			},
		} {
			t.Run(name, func(t *testing.T) {
				k := newKit(t)
				wf := Define[struct{}, int]("wf", noRetry)
				serve(k, wf, func(ctx Context, _ struct{}) (int, error) {
					Go(ctx, "b", fn)
					return 0, Do(ctx, "fails", failing)
				})
				mustContain(t, failureOf(k, begin(k, wf, struct{}{}), StatusFailed), "broken")
			})
		}
	})
	t.Run("ResultTwice", func(t *testing.T) {
		k := newKit(t)
		got := complete(k, func(ctx Context) ([]int, error) {
			f := Go(ctx, "b", func(ctx Context) (int, error) { return Step(ctx, "s", onceEnded(t, "b/s", 3)) })
			a, _ := f.Result(ctx)
			b, err := f.Result(ctx)
			return []int{a, b}, err
		})
		if !slices.Equal(got, []int{3, 3}) {
			t.Errorf("got %v", got)
		}
	})
	t.Run("NestedAndRepeatedNames", func(t *testing.T) {
		k := newKit(t)
		wf := Define[struct{}, int]("wf")
		serve(k, wf, func(ctx Context, _ struct{}) (int, error) {
			sum := 0
			for i := range 2 {
				n, err := Go(ctx, "b", func(ctx Context) (int, error) {
					return Go(ctx, "inner", func(ctx Context) (int, error) {
						for range 2 {
							if err := Do(ctx, "s", func(context.Context) error { return nil }); err != nil {
								return 0, err
							}
						}
						return i + 1, nil
					}).Result(ctx)
				}).Result(ctx)
				if err != nil {
					return 0, err
				}
				sum += n
			}
			return sum, nil
		})
		run := begin(k, wf, struct{}{})
		if got := resultOf(k, run); got != 3 {
			t.Errorf("got %d", got)
		}
		steps := k.steps(run.ID())
		for _, id := range []string{"b/inner/s", "b/inner/s#2", "b#2/inner/s", "b#2/inner/s#2"} {
			if len(steps[id]) != 1 {
				t.Errorf("no step %q in %v", id, steps)
			}
		}
	})
	t.Run("ABranchOutlivesTheOneThatStartedIt", func(t *testing.T) {
		k := newKit(t)
		wf := Define[struct{}, int]("wf", noRetry)
		var calls atomic.Int64
		serve(k, wf, func(ctx Context, _ struct{}) (int, error) {
			return Go(ctx, "outer", func(ctx Context) (int, error) {
				Go(ctx, "inner", func(ctx Context) (int, error) {
					if err := Sleep(ctx, "nap", 20*time.Millisecond); err != nil {
						return 0, err
					}
					return Step(ctx, "s", once(&calls, 1))
				})
				return 7, nil
			}).Result(ctx)
		})
		if got := resultOf(k, begin(k, wf, struct{}{})); got != 7 || calls.Load() != 1 {
			t.Errorf("result %d after %d calls", got, calls.Load())
		}
	})
	t.Run("WaitingForItselfFails", func(t *testing.T) {
		k := newKit(t)
		wf := Define[struct{}, int]("wf")
		serve(k, wf, func(ctx Context, _ struct{}) (int, error) {
			var f *Future[int]
			ready := make(chan struct{})
			f = Go(ctx, "b", func(ctx Context) (int, error) { <-ready; return f.Result(ctx) })
			close(ready)
			return f.Result(ctx)
		})
		if re := failureOf(k, begin(k, wf, struct{}{}), StatusFailed); re.Kind != KindNondeterminism {
			t.Errorf("got %v", re)
		}
	})
	t.Run("BadCalls", func(t *testing.T) {
		k := newKit(t)
		refused(k, func(ctx Context) (int, error) {
			_, err := Go[int](ctx, "b", nil).Result(ctx)
			mustContain(t, err, `"b"`, "nil")
			_, err = Go(ctx, "a/b", func(Context) (int, error) { return 0, nil }).Result(ctx)
			mustContain(t, err, "branch", `"a/b"`)
			_, err = Go(nil, "b", func(Context) (int, error) { return 0, nil }).Result(ctx)
			mustContain(t, err, "Context is nil")
			return 0, nil
		})
	})
}
