package language_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/kind"
)

// onceEnded fails the test if fn is called more than once, and returns v.
func onceEnded[T any](t *testing.T, what string, v T) func(context.Context) (T, error) {
	var calls atomic.Int64
	return func(context.Context) (T, error) {
		if calls.Add(1) > 1 {
			t.Errorf("%s was executed again", what)
		}
		return v, nil
	}
}

func failing(context.Context) error { return kagzi.Permanent(errors.New("broken")) }

// replayed makes fn's run leave memory and come back after fn has said what it saw: both times must be the same.
func replayed[T any](k *kit.Kit, fn func(kagzi.Context) T) T {
	k.T.Helper()
	wf := kagzi.Define[struct{}, int]("wf", kit.NoRetry)
	seen := make(chan T, 10)
	kit.Serve(k, wf, func(ctx kagzi.Context, _ struct{}) (int, error) {
		seen <- fn(ctx)
		return 0, kagzi.Sleep(ctx, "until the replay", time.Hour)
	})
	run := kit.Begin(k, wf, struct{}{})
	asleep := func() {
		k.T.Helper()
		k.WaitStatus(run.ID(), kagzi.StatusSleeping, "timer until the replay")
	}
	asleep()
	first := <-seen
	k.WaitStatus(run.ID(), kagzi.StatusSleeping) // it may have slept before
	for range 3 {
		k.Wake(run.ID())
		select {
		case again := <-seen:
			if !reflect.DeepEqual(first, again) {
				k.T.Errorf("seen first: %+v\nin a replay: %+v", first, again)
			}
		case <-k.Ctx.Done():
			info, _ := run.Info(k.Ctx)
			k.T.Fatalf("no replay: %+v", info)
		}
		asleep()
	}
	k.Forward(run.ID())
	kit.ResultOf(k, run)
	return first
}

func TestParallel(t *testing.T) {
	t.Parallel()
	t.Run("RunsAll", func(t *testing.T) {
		k := kit.New(t)
		var calls atomic.Int64
		kit.Complete(k, func(ctx kagzi.Context) (int, error) {
			b := func(ctx kagzi.Context) error { _, err := kagzi.Step(ctx, "s", kit.Once(&calls, 1)); return err }
			if err := kagzi.Parallel(ctx, "none", nil); err != nil {
				t.Error(err)
			}
			return 0, kagzi.Parallel(ctx, "p", map[string]func(kagzi.Context) error{"a": b, "b": b, "c": b})
		})
		if calls.Load() != 3 {
			t.Errorf("%d calls", calls.Load())
		}
	})
	t.Run("TheFirstErrorCancelsTheOthers", func(t *testing.T) {
		for name, other := range map[string]func(kagzi.Context) error{
			"Sleeping": func(ctx kagzi.Context) error { return kagzi.Sleep(ctx, "long", time.Hour) },
			"Retrying": func(ctx kagzi.Context) error {
				return kagzi.Do(ctx, "s", func(context.Context) error { return errors.New("x") },
					kagzi.RetryPolicy{Backoff: time.Hour})
			},
			"InAStep": func(ctx kagzi.Context) error {
				return kagzi.Do(ctx, "s", func(ctx context.Context) error {
					<-ctx.Done()
					if !errors.Is(context.Cause(ctx), kind.Cancelled) {
						t.Errorf("cause %v", context.Cause(ctx))
					}
					return ctx.Err()
				})
			},
			"Awaiting": func(ctx kagzi.Context) error {
				_, err := kagzi.Go(ctx, "inner", func(ctx kagzi.Context) (int, error) {
					return 0, kagzi.Sleep(ctx, "long", time.Hour)
				}).Result(ctx)
				return err
			},
		} {
			t.Run(name, func(t *testing.T) {
				k := kit.New(t)
				wf := kagzi.Define[struct{}, string]("wf", kit.NoRetry)
				kit.Serve(k, wf, func(ctx kagzi.Context, _ struct{}) (string, error) {
					err := kagzi.Parallel(ctx, "p", map[string]func(kagzi.Context) error{
						"bad": func(ctx kagzi.Context) error {
							if err := kagzi.Do(ctx, "first", func(context.Context) error { return nil }); err != nil {
								return err
							}
							return kagzi.Do(ctx, "s", failing)
						},
						"other": other, "third": other,
					})
					be, ok := errors.AsType[*kagzi.BranchError](err)
					if !ok || be.Name != "bad" {
						return "", fmt.Errorf("Parallel: %w", err)
					}
					return be.Error(), nil
				})
				run := kit.Begin(k, wf, struct{}{})
				if got := kit.ResultOf(k,
					run); got != `kagzi: branch "bad": step "p/bad/s": broken (unknown, 1 attempt)` {
					t.Errorf("got %s", got)
				}
			})
		}
	})
	t.Run("AFailureIsTheSameInAReplay", func(t *testing.T) {
		k := kit.New(t)
		var interrupted atomic.Int64
		type saw struct {
			Err string
			Now time.Time
			Out []int
		}
		got := replayed(k, func(ctx kagzi.Context) saw {
			out, err := kagzi.Map(ctx, "m", []int{0, 1, 2, 3}, func(ctx kagzi.Context, n int) (int, error) {
				switch n {
				case 0:
					return kagzi.Step(ctx, "ok", func(context.Context) (int, error) { return 10, nil })
				case 1:
					if err := kagzi.Sleep(ctx, "nap", 50*time.Millisecond); err != nil {
						return 0, err
					}
					return 0, kagzi.Do(ctx, "bad", failing)
				case 2:
					return 0, kagzi.Do(ctx, "interrupted", func(ctx context.Context) error {
						interrupted.Add(1)
						<-ctx.Done()
						return ctx.Err()
					})
				default: // succeeds although it was cancelled
					return kagzi.Step(ctx, "late", func(ctx context.Context) (int, error) {
						<-ctx.Done()
						return 13, nil
					})
				}
			})
			return saw{fmt.Sprint(err), ctx.Now(), out}
		})
		if want := `kagzi: branch "1": step "m/1/bad": broken (unknown, 1 attempt)`; got.Err != want {
			t.Errorf("got %s", got.Err)
		}
		if interrupted.Load() != 1 {
			t.Errorf("a cancelled step was executed %d times: its group was decided", interrupted.Load())
		}
	})
	t.Run("CollectErrors", func(t *testing.T) {
		k := kit.New(t)
		type saw struct {
			Out []int
			Err string
		}
		got := replayed(k, func(ctx kagzi.Context) saw {
			out, err := kagzi.Map(ctx, "m", []int{0, 1, 2, 3, 4}, func(ctx kagzi.Context, n int) (int, error) {
				if n%2 == 1 {
					return 99, kagzi.Do(ctx, "bad", failing)
				}
				return kagzi.Step(ctx, "good", func(context.Context) (int, error) { return 10 * n, nil })
			}, kagzi.CollectErrors(), kagzi.Concurrency(2))
			bes, _ := errors.AsType[kagzi.BranchErrors](err)
			if len(bes) != 2 || bes[0].Index != 1 || bes[1].Index != 3 {
				t.Errorf("got %v", err)
			}
			return saw{out, fmt.Sprint(err)}
		})
		if !slices.Equal(got.Out, []int{0, 0, 20, 0, 40}) {
			t.Errorf("results %v; want zero where fn failed", got.Out)
		}
	})
	t.Run("TimeoutIsTheSameInAReplay", func(t *testing.T) {
		k := kit.New(t)
		type saw struct {
			Err  string
			Kind bool
			Now  time.Time
			Out  []int
		}
		var calls atomic.Int64
		got := replayed(k, func(ctx kagzi.Context) saw {
			out, err := kagzi.Map(ctx, "m", []int{0, 1, 2}, func(ctx kagzi.Context, n int) (int, error) {
				if n == 0 {
					return kagzi.Step(ctx, "fast", onceEnded(t, "m/0/fast", 5))
				}
				if n == 1 {
					return 0, kagzi.Sleep(ctx, "long", time.Hour)
				}
				return kagzi.Step(ctx, "interrupted", func(ctx context.Context) (int, error) {
					calls.Add(1)
					<-ctx.Done()
					return 1, ctx.Err()
				})
			}, enough)
			return saw{fmt.Sprint(err), errors.Is(err, kind.Timeout), ctx.Now(), out}
		})
		if !got.Kind || calls.Load() != 1 {
			t.Errorf("got %+v after %d calls", got, calls.Load())
		}
	})
	t.Run("ATimeoutThatWasKeptIsKeptInAReplay", func(t *testing.T) {
		for name, fn := range map[string]func(kagzi.Context) error{
			"Parallel": func(ctx kagzi.Context) error {
				b := func(ctx kagzi.Context) error {
					for range 3 {
						if err := kagzi.Do(ctx, "s", func(context.Context) error { return nil }); err != nil {
							return err
						}
					}
					return nil
				}
				return kagzi.Parallel(ctx, "g", map[string]func(kagzi.Context) error{"a": b, "b": b}, enough)
			},
			"Race": func(ctx kagzi.Context) error {
				_, _, err := kagzi.Race(ctx, "g", map[string]func(kagzi.Context) (int, error){
					"a": func(ctx kagzi.Context) (int, error) {
						return kagzi.Step(ctx, "s", func(context.Context) (int, error) { return 1, nil })
					},
				}, enough)
				return err
			},
			"Failure": func(ctx kagzi.Context) error {
				err := kagzi.Parallel(ctx, "g", map[string]func(kagzi.Context) error{
					"a": func(ctx kagzi.Context) error { return kagzi.Do(ctx, "bad", failing) },
				}, enough)
				if errors.Is(err, kind.Timeout) || err == nil {
					return fmt.Errorf("got %w", err)
				}
				return nil
			},
		} {
			t.Run(name, func(t *testing.T) {
				k := kit.New(t)
				kit.Complete(k, func(ctx kagzi.Context) (int, error) {
					for range 2 {
						if err := fn(ctx); err != nil {
							t.Errorf("attempt %d: %v", ctx.Attempt(), err)
						}
						if err := kagzi.Sleep(ctx, "rest", time.Duration(enough)+100*time.Millisecond); err != nil {
							return 0, err
						}
					}
					return 0, nil
				})
			})
		}
	})
	t.Run("TheNextAttemptOfTheRunForgetsAFailure", func(t *testing.T) {
		k := kit.New(t)
		wf := kagzi.Define[struct{}, []int]("wf", kit.Soon)
		kit.Serve(k, wf, func(ctx kagzi.Context, _ struct{}) ([]int, error) {
			return kagzi.Map(ctx, "m", []int{0, 1}, func(sub kagzi.Context, n int) (int, error) {
				if n == 0 {
					return kagzi.Step(sub, "good", onceEnded(t, "m/0/good", 5))
				}
				if ctx.Attempt() == 1 {
					return 0, kagzi.Do(sub, "wait", func(context.Context) error { return errors.New("broken") },
						kit.NoRetry)
				}
				return kagzi.Step(sub, "wait", func(context.Context) (int, error) { return 6, nil })
			}, kagzi.Timeout(time.Minute))
		})
		run := kit.Begin(k, wf, struct{}{})
		if got := kit.ResultOf(k, run); !slices.Equal(got, []int{5, 6}) {
			t.Errorf("got %v", got)
		}
		if info, _ := run.Info(k.Ctx); info.Attempts != 1 {
			t.Errorf("%d attempts failed", info.Attempts)
		}
	})
	t.Run("TheNextAttemptHasTheGroupsTimeAgain", func(t *testing.T) {
		k := kit.New(t)
		wf := kagzi.Define[struct{}, int]("wf", kagzi.RetryPolicy{MaxAttempts: 2, Backoff: time.Duration(enough) +
			100*time.Millisecond, NoJitter: true})
		kit.Serve(k, wf, func(ctx kagzi.Context, _ struct{}) (int, error) {
			return 1, kagzi.Parallel(ctx, "p", map[string]func(kagzi.Context) error{
				"a": func(sub kagzi.Context) error {
					if ctx.Attempt() == 1 {
						return errors.New("broken")
					}
					return kagzi.Sleep(sub, "nap", 50*time.Millisecond)
				},
			}, enough)
		})
		kit.ResultOf(k, kit.Begin(k, wf, struct{}{}))
	})
	t.Run("BadCalls", func(t *testing.T) {
		k := kit.New(t)
		kit.Refused(k, func(ctx kagzi.Context) (int, error) {
			ok := func(kagzi.Context) error { return nil }
			kit.MustContain(t, kagzi.Parallel(ctx, "p", map[string]func(kagzi.Context) error{"a": nil}), `"p"`,
				`"a"`, "nil")
			kit.MustContain(t, kagzi.Parallel(ctx, "p", map[string]func(kagzi.Context) error{"a/b": ok}), `"a/b"`)
			kit.MustContain(t, kagzi.Parallel(ctx, "p", map[string]func(kagzi.Context) error{"": ok}), "empty")
			kit.MustContain(t, kagzi.Parallel(ctx, "p", map[string]func(kagzi.Context) error{"a": ok},
				kagzi.Timeout(30)), "30 ns")
			kit.MustContain(t, kagzi.Parallel(ctx, "p", map[string]func(kagzi.Context) error{"a": ok}, nil),
				"nil option")
			kit.MustContain(t, kagzi.Parallel(ctx, "a#2", nil), `"a#2"`)
			_, err := kagzi.Map(ctx, "m", []int{1}, func(kagzi.Context, int) (int, error) { return 0, nil },
				kagzi.Concurrency(0))
			kit.MustContain(t, err, "concurrency 0")
			_, err = kagzi.Map[int, int](ctx, "m", []int{1}, nil)
			kit.MustContain(t, err, "nil")
			_, err = kagzi.Map(ctx, "m", []any{1, make(chan int)}, func(kagzi.Context, any) (int, error) {
				return 0, nil
			})
			kit.MustContain(t, err, "item 1", "chan int")
			_, _, err = kagzi.Race[int](ctx, "r", nil)
			kit.MustContain(t, err, "has no branches")
			return 0, nil
		})
	})
}

func TestMap(t *testing.T) {
	t.Parallel()
	t.Run("AThousandItemsInOrderAndBounded", func(t *testing.T) {
		k := kit.New(t)
		items := make([]int, 1000)
		for i := range items {
			items[i] = i
		}
		var under, most atomic.Int64
		got := kit.Complete(k, func(ctx kagzi.Context) ([]int, error) {
			return kagzi.Map(ctx, "m", items, func(ctx kagzi.Context, n int) (int, error) {
				now := under.Add(1)
				defer under.Add(-1)
				for m := most.Load(); now > m && !most.CompareAndSwap(m, now); m = most.Load() {
				}
				return kagzi.Step(ctx, "double", func(context.Context) (int, error) { return 2 * n, nil })
			}, kagzi.Concurrency(7))
		})
		for i, v := range got {
			if v != 2*i {
				t.Fatalf("result %d is %d", i, v)
			}
		}
		if len(got) != 1000 || most.Load() != 7 {
			t.Errorf("%d results, %d at once; want 1000 and 7", len(got), most.Load())
		}
	})
	t.Run("ReplayOfAThousandItems", func(t *testing.T) {
		k := kit.New(t)
		items := make([]int, 1000)
		replayed(k, func(ctx kagzi.Context) int {
			out, err := kagzi.Map(ctx, "m", items, func(ctx kagzi.Context, _ int) (int, error) {
				return kagzi.Step(ctx, "one", func(context.Context) (int, error) { return 1, nil })
			})
			if err != nil {
				t.Error(err)
			}
			sum := 0
			for _, n := range out {
				sum += n
			}
			return sum
		})
	})
	t.Run("BranchesSleepTogether", func(t *testing.T) {
		k := kit.New(t)
		wf := kagzi.Define[struct{}, []int]("wf")
		kit.Serve(k, wf, func(ctx kagzi.Context, _ struct{}) ([]int, error) {
			return kagzi.Map(ctx, "m", []int{1, 2, 3}, func(ctx kagzi.Context, n int) (int, error) {
				if err := kagzi.Sleep(ctx, "long", time.Hour); err != nil {
					return 0, err
				}
				return n, nil
			})
		})
		run := kit.Begin(k, wf, struct{}{})
		k.WaitStatus(run.ID(), kagzi.StatusSleeping)
		if n := k.Count(`SELECT count(*) FROM kagzi.step_runs WHERE step_kind = 'SLEEP'
			AND status = 'RUNNING'`); n != 3 {
			t.Errorf("%d sleeps are recorded, want 3", n)
		}
		k.Forward(run.ID())
		if got := kit.ResultOf(k, run); !slices.Equal(got, []int{1, 2, 3}) {
			t.Errorf("got %v", got)
		}
	})
}
