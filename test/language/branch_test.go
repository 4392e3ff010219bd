package language_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/kind"
)

func TestGo(t *testing.T) {
	t.Parallel()
	t.Run("AnUnawaitedFailureFailsTheRun", func(t *testing.T) {
		k := kit.New(t)
		wf := kagzi.Define[struct{}, int]("wf", kit.NoRetry)
		kit.Serve(k, wf, func(ctx kagzi.Context, _ struct{}) (int, error) {
			kagzi.Go(ctx, "lost", func(ctx kagzi.Context) (int, error) { return 0, kagzi.Do(ctx, "s", failing) })
			return 1, nil
		})
		re := kit.FailureOf(k, kit.Begin(k, wf, struct{}{}), kagzi.StatusFailed)
		kit.MustContain(t, re, `"lost"`, "broken")
	})
	t.Run("TheRunWaitsForItsBranches", func(t *testing.T) {
		k := kit.New(t)
		wf := kagzi.Define[struct{}, int]("wf")
		release := make(chan struct{})
		kit.Serve(k, wf, func(ctx kagzi.Context, _ struct{}) (int, error) {
			kagzi.Go(ctx, "b", func(ctx kagzi.Context) (int, error) {
				return 0, kagzi.Do(ctx, "slow", func(context.Context) error { <-release; return nil })
			})
			kagzi.Go(ctx, "sleeper", func(ctx kagzi.Context) (int, error) {
				return 0, kagzi.Sleep(ctx, "nap", 300*time.Millisecond)
			})
			return 1, nil
		})
		run := kit.Begin(k, wf, struct{}{})
		// shown after a second
		await.True(t, "the step runs", func() bool { return len(k.Steps(run.ID())["b/slow"]) == 1 })
		if info, _ := run.Info(k.Ctx); info.Status != kagzi.StatusRunning {
			t.Errorf("the run is %s before its branch has ended", info.Status)
		}
		close(release)
		kit.ResultOf(k, run)
	})
	t.Run("TheFunctionsErrorCancelsBranches", func(t *testing.T) {
		// Whatever they do: sleep for long, wait for a retry, wait for each other, execute a step.
		for name, fn := range map[string]func(kagzi.Context) (int, error){
			"Sleeping": func(ctx kagzi.Context) (int, error) { return 0, kagzi.Sleep(ctx, "long", time.Hour) },
			"Retrying": func(ctx kagzi.Context) (int, error) {
				return 0, kagzi.Do(ctx, "s", func(context.Context) error { return errors.New("x") },
					kagzi.RetryPolicy{Backoff: time.Hour})
			},
			"Awaiting": func(ctx kagzi.Context) (int, error) {
				return kagzi.Go(ctx, "inner", func(ctx kagzi.Context) (int, error) {
					return 0, kagzi.Sleep(ctx, "long", time.Hour)
				}).Result(ctx)
			},
			"InAStep": func(ctx kagzi.Context) (int, error) {
				return 0, kagzi.Do(ctx, "s", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
			},
		} {
			t.Run(name, func(t *testing.T) {
				k := kit.New(t)
				wf := kagzi.Define[struct{}, int]("wf", kit.NoRetry)
				kit.Serve(k, wf, func(ctx kagzi.Context, _ struct{}) (int, error) {
					kagzi.Go(ctx, "b", fn)
					return 0, kagzi.Do(ctx, "fails", failing)
				})
				kit.MustContain(t, kit.FailureOf(k, kit.Begin(k, wf, struct{}{}), kagzi.StatusFailed), "broken")
			})
		}
	})
	t.Run("ResultTwice", func(t *testing.T) {
		k := kit.New(t)
		got := kit.Complete(k, func(ctx kagzi.Context) ([]int, error) {
			f := kagzi.Go(ctx, "b", func(ctx kagzi.Context) (int, error) {
				return kagzi.Step(ctx, "s", onceEnded(t, "b/s", 3))
			})
			a, _ := f.Result(ctx)
			b, err := f.Result(ctx)
			return []int{a, b}, err
		})
		if !slices.Equal(got, []int{3, 3}) {
			t.Errorf("got %v", got)
		}
	})
	t.Run("NestedAndRepeatedNames", func(t *testing.T) {
		k := kit.New(t)
		wf := kagzi.Define[struct{}, int]("wf")
		kit.Serve(k, wf, func(ctx kagzi.Context, _ struct{}) (int, error) {
			sum := 0
			for i := range 2 {
				n, err := kagzi.Go(ctx, "b", func(ctx kagzi.Context) (int, error) {
					return kagzi.Go(ctx, "inner", func(ctx kagzi.Context) (int, error) {
						for range 2 {
							if err := kagzi.Do(ctx, "s", func(context.Context) error { return nil }); err != nil {
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
		run := kit.Begin(k, wf, struct{}{})
		if got := kit.ResultOf(k, run); got != 3 {
			t.Errorf("got %d", got)
		}
		steps := k.Steps(run.ID())
		for _, id := range []string{"b/inner/s", "b/inner/s#2", "b#2/inner/s", "b#2/inner/s#2"} {
			if len(steps[id]) != 1 {
				t.Errorf("no step %q in %v", id, steps)
			}
		}
	})
	t.Run("ABranchOutlivesTheOneThatStartedIt", func(t *testing.T) {
		k := kit.New(t)
		wf := kagzi.Define[struct{}, int]("wf", kit.NoRetry)
		var calls atomic.Int64
		kit.Serve(k, wf, func(ctx kagzi.Context, _ struct{}) (int, error) {
			return kagzi.Go(ctx, "outer", func(ctx kagzi.Context) (int, error) {
				kagzi.Go(ctx, "inner", func(ctx kagzi.Context) (int, error) {
					if err := kagzi.Sleep(ctx, "nap", 20*time.Millisecond); err != nil {
						return 0, err
					}
					return kagzi.Step(ctx, "s", kit.Once(&calls, 1))
				})
				return 7, nil
			}).Result(ctx)
		})
		if got := kit.ResultOf(k, kit.Begin(k, wf, struct{}{})); got != 7 || calls.Load() != 1 {
			t.Errorf("result %d after %d calls", got, calls.Load())
		}
	})
	t.Run("WaitingForItselfFails", func(t *testing.T) {
		k := kit.New(t)
		wf := kagzi.Define[struct{}, int]("wf")
		kit.Serve(k, wf, func(ctx kagzi.Context, _ struct{}) (int, error) {
			var f *kagzi.Future[int]
			ready := make(chan struct{})
			f = kagzi.Go(ctx, "b", func(ctx kagzi.Context) (int, error) { <-ready; return f.Result(ctx) })
			close(ready)
			return f.Result(ctx)
		})
		if re := kit.FailureOf(k, kit.Begin(k, wf, struct{}{}), kagzi.StatusFailed); re.Kind != kind.Nondeterminism {
			t.Errorf("got %v", re)
		}
	})
	t.Run("BadCalls", func(t *testing.T) {
		k := kit.New(t)
		kit.Refused(k, func(ctx kagzi.Context) (int, error) {
			_, err := kagzi.Go[int](ctx, "b", nil).Result(ctx)
			kit.MustContain(t, err, `"b"`, "nil")
			_, err = kagzi.Go(ctx, "a/b", func(kagzi.Context) (int, error) { return 0, nil }).Result(ctx)
			kit.MustContain(t, err, "branch", `"a/b"`)
			_, err = kagzi.Go(nil, "b", func(kagzi.Context) (int, error) { return 0, nil }).Result(ctx)
			kit.MustContain(t, err, "Context is nil")
			return 0, nil
		})
	})
}
