package kagzi

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync/atomic"
	"testing"
	"time"
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

func failing(context.Context) error { return Permanent(errors.New("broken")) }

// replayed makes fn's run leave memory and come back after fn has said what it saw: both times must be the same.
func replayed[T any](k *kit, fn func(Context) T) T {
	k.t.Helper()
	wf := Define[struct{}, int]("wf", noRetry)
	seen := make(chan T, 10)
	serve(k, wf, func(ctx Context, _ struct{}) (int, error) {
		seen <- fn(ctx)
		return 0, Sleep(ctx, "until the replay", time.Hour)
	})
	run := begin(k, wf, struct{}{})
	asleep := func() {
		k.t.Helper()
		k.waitStatus(run.ID(), StatusSleeping, "timer until the replay")
	}
	asleep()
	first := <-seen
	k.waitStatus(run.ID(), StatusSleeping) // it may have slept before
	for range 3 {
		k.wake(run.ID())
		select {
		case again := <-seen:
			if !reflect.DeepEqual(first, again) {
				k.t.Errorf("seen first: %+v\nin a replay: %+v", first, again)
			}
		case <-k.ctx.Done():
			info, _ := run.Info(k.ctx)
			k.t.Fatalf("no replay: %+v", info)
		}
		asleep()
	}
	k.forward(run.ID())
	resultOf(k, run)
	return first
}

func TestParallel(t *testing.T) {
	t.Parallel()
	t.Run("RunsAll", func(t *testing.T) {
		k := newKit(t)
		var calls atomic.Int64
		complete(k, func(ctx Context) (int, error) {
			b := func(ctx Context) error { _, err := Step(ctx, "s", once(&calls, 1)); return err }
			if err := Parallel(ctx, "none", nil); err != nil {
				t.Error(err)
			}
			return 0, Parallel(ctx, "p", map[string]func(Context) error{"a": b, "b": b, "c": b})
		})
		if calls.Load() != 3 {
			t.Errorf("%d calls", calls.Load())
		}
	})
	t.Run("TheFirstErrorCancelsTheOthers", func(t *testing.T) {
		for name, other := range map[string]func(Context) error{
			"Sleeping": func(ctx Context) error { return Sleep(ctx, "long", time.Hour) },
			"Retrying": func(ctx Context) error {
				return Do(ctx, "s", func(context.Context) error { return errors.New("x") }, RetryPolicy{Backoff: time.Hour})
			},
			"InAStep": func(ctx Context) error {
				return Do(ctx, "s", func(ctx context.Context) error {
					<-ctx.Done()
					if !errors.Is(context.Cause(ctx), KindCancelled) {
						t.Errorf("cause %v", context.Cause(ctx))
					}
					return ctx.Err()
				})
			},
			"Awaiting": func(ctx Context) error {
				_, err := Go(ctx, "inner", func(ctx Context) (int, error) { return 0, Sleep(ctx, "long", time.Hour) }).Result(ctx)
				return err
			},
		} {
			t.Run(name, func(t *testing.T) {
				k := newKit(t)
				wf := Define[struct{}, string]("wf", noRetry)
				serve(k, wf, func(ctx Context, _ struct{}) (string, error) {
					err := Parallel(ctx, "p", map[string]func(Context) error{
						"bad": func(ctx Context) error {
							if err := Do(ctx, "first", func(context.Context) error { return nil }); err != nil {
								return err
							}
							return Do(ctx, "s", failing)
						},
						"other": other, "third": other,
					})
					be, ok := errors.AsType[*BranchError](err)
					if !ok || be.Name != "bad" {
						return "", fmt.Errorf("Parallel: %w", err)
					}
					return be.Error(), nil
				})
				run := begin(k, wf, struct{}{})
				if got := resultOf(k, run); got != `kagzi: branch "bad": step "p/bad/s": broken (unknown, 1 attempt)` {
					t.Errorf("got %s", got)
				}
			})
		}
	})
	t.Run("AFailureIsTheSameInAReplay", func(t *testing.T) {
		k := newKit(t)
		var interrupted atomic.Int64
		type saw struct {
			Err string
			Now time.Time
			Out []int
		}
		got := replayed(k, func(ctx Context) saw {
			out, err := Map(ctx, "m", []int{0, 1, 2, 3}, func(ctx Context, n int) (int, error) {
				switch n {
				case 0:
					return Step(ctx, "ok", func(context.Context) (int, error) { return 10, nil })
				case 1:
					if err := Sleep(ctx, "nap", 50*time.Millisecond); err != nil {
						return 0, err
					}
					return 0, Do(ctx, "bad", failing)
				case 2:
					return 0, Do(ctx, "interrupted", func(ctx context.Context) error {
						interrupted.Add(1)
						<-ctx.Done()
						return ctx.Err()
					})
				default: // succeeds although it was cancelled
					return Step(ctx, "late", func(ctx context.Context) (int, error) { <-ctx.Done(); return 13, nil })
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
		k := newKit(t)
		type saw struct {
			Out []int
			Err string
		}
		got := replayed(k, func(ctx Context) saw {
			out, err := Map(ctx, "m", []int{0, 1, 2, 3, 4}, func(ctx Context, n int) (int, error) {
				if n%2 == 1 {
					return 99, Do(ctx, "bad", failing)
				}
				return Step(ctx, "good", func(context.Context) (int, error) { return 10 * n, nil })
			}, CollectErrors(), Concurrency(2))
			bes, _ := errors.AsType[BranchErrors](err)
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
		k := newKit(t)
		type saw struct {
			Err  string
			Kind bool
			Now  time.Time
			Out  []int
		}
		var calls atomic.Int64
		got := replayed(k, func(ctx Context) saw {
			out, err := Map(ctx, "m", []int{0, 1, 2}, func(ctx Context, n int) (int, error) {
				if n == 0 {
					return Step(ctx, "fast", onceEnded(t, "m/0/fast", 5))
				}
				if n == 1 {
					return 0, Sleep(ctx, "long", time.Hour)
				}
				return Step(ctx, "interrupted", func(ctx context.Context) (int, error) { calls.Add(1); <-ctx.Done(); return 1, ctx.Err() })
			}, Timeout(time.Second))
			return saw{fmt.Sprint(err), errors.Is(err, KindTimeout), ctx.Now(), out}
		})
		if !got.Kind || calls.Load() != 1 {
			t.Errorf("got %+v after %d calls", got, calls.Load())
		}
	})
	t.Run("ATimeoutThatWasKeptIsKeptInAReplay", func(t *testing.T) {
		const kept = 2 * time.Second // enough on a busy machine; the replay comes when it is over
		for name, fn := range map[string]func(Context) error{
			"Parallel": func(ctx Context) error {
				b := func(ctx Context) error {
					for range 3 {
						if err := Do(ctx, "s", func(context.Context) error { return nil }); err != nil {
							return err
						}
					}
					return nil
				}
				return Parallel(ctx, "g", map[string]func(Context) error{"a": b, "b": b}, Timeout(kept))
			},
			"Race": func(ctx Context) error {
				_, _, err := Race(ctx, "g", map[string]func(Context) (int, error){
					"a": func(ctx Context) (int, error) {
						return Step(ctx, "s", func(context.Context) (int, error) { return 1, nil })
					},
				}, Timeout(kept))
				return err
			},
			"Failure": func(ctx Context) error {
				err := Parallel(ctx, "g", map[string]func(Context) error{
					"a": func(ctx Context) error { return Do(ctx, "bad", failing) },
				}, Timeout(kept))
				if errors.Is(err, KindTimeout) || err == nil {
					return fmt.Errorf("got %w", err)
				}
				return nil
			},
		} {
			t.Run(name, func(t *testing.T) {
				k := newKit(t)
				complete(k, func(ctx Context) (int, error) {
					for range 2 {
						if err := fn(ctx); err != nil {
							t.Errorf("attempt %d: %v", ctx.Attempt(), err)
						}
						if err := Sleep(ctx, "rest", kept+100*time.Millisecond); err != nil {
							return 0, err
						}
					}
					return 0, nil
				})
			})
		}
	})
	t.Run("TheNextAttemptOfTheRunForgetsAFailure", func(t *testing.T) {
		k := newKit(t)
		wf := Define[struct{}, []int]("wf", soon)
		serve(k, wf, func(ctx Context, _ struct{}) ([]int, error) {
			return Map(ctx, "m", []int{0, 1}, func(sub Context, n int) (int, error) {
				if n == 0 {
					return Step(sub, "good", onceEnded(t, "m/0/good", 5))
				}
				if ctx.Attempt() == 1 {
					return 0, Do(sub, "wait", func(context.Context) error { return errors.New("broken") }, noRetry)
				}
				return Step(sub, "wait", func(context.Context) (int, error) { return 6, nil })
			}, Timeout(time.Minute))
		})
		run := begin(k, wf, struct{}{})
		if got := resultOf(k, run); !slices.Equal(got, []int{5, 6}) {
			t.Errorf("got %v", got)
		}
		if info, _ := run.Info(k.ctx); info.Attempts != 1 {
			t.Errorf("%d attempts failed", info.Attempts)
		}
	})
	t.Run("TheNextAttemptHasTheGroupsTimeAgain", func(t *testing.T) {
		k := newKit(t)
		wf := Define[struct{}, int]("wf", RetryPolicy{MaxAttempts: 2, Backoff: 2100 * time.Millisecond, NoJitter: true})
		serve(k, wf, func(ctx Context, _ struct{}) (int, error) {
			return 1, Parallel(ctx, "p", map[string]func(Context) error{
				"a": func(sub Context) error {
					if ctx.Attempt() == 1 {
						return errors.New("broken")
					}
					return Sleep(sub, "nap", 50*time.Millisecond)
				},
			}, Timeout(2*time.Second))
		})
		resultOf(k, begin(k, wf, struct{}{}))
	})
	t.Run("BadCalls", func(t *testing.T) {
		k := newKit(t)
		refused(k, func(ctx Context) (int, error) {
			ok := func(Context) error { return nil }
			mustContain(t, Parallel(ctx, "p", map[string]func(Context) error{"a": nil}), `"p"`, `"a"`, "nil")
			mustContain(t, Parallel(ctx, "p", map[string]func(Context) error{"a/b": ok}), `"a/b"`)
			mustContain(t, Parallel(ctx, "p", map[string]func(Context) error{"": ok}), "empty")
			mustContain(t, Parallel(ctx, "p", map[string]func(Context) error{"a": ok}, Timeout(30)), "30 ns")
			mustContain(t, Parallel(ctx, "p", map[string]func(Context) error{"a": ok}, nil), "nil option")
			mustContain(t, Parallel(ctx, "a#2", nil), `"a#2"`)
			_, err := Map(ctx, "m", []int{1}, func(Context, int) (int, error) { return 0, nil }, Concurrency(0))
			mustContain(t, err, "concurrency 0")
			_, err = Map[int, int](ctx, "m", []int{1}, nil)
			mustContain(t, err, "nil")
			_, err = Map(ctx, "m", []any{1, make(chan int)}, func(Context, any) (int, error) { return 0, nil })
			mustContain(t, err, "item 1", "chan int")
			_, _, err = Race[int](ctx, "r", nil)
			mustContain(t, err, "has no branches")
			return 0, nil
		})
	})
}

func TestMap(t *testing.T) {
	t.Parallel()
	t.Run("AThousandItemsInOrderAndBounded", func(t *testing.T) {
		k := newKit(t)
		items := make([]int, 1000)
		for i := range items {
			items[i] = i
		}
		var under, most atomic.Int64
		got := complete(k, func(ctx Context) ([]int, error) {
			return Map(ctx, "m", items, func(ctx Context, n int) (int, error) {
				now := under.Add(1)
				defer under.Add(-1)
				for m := most.Load(); now > m && !most.CompareAndSwap(m, now); m = most.Load() {
				}
				return Step(ctx, "double", func(context.Context) (int, error) { return 2 * n, nil })
			}, Concurrency(7))
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
		k := newKit(t)
		items := make([]int, 1000)
		replayed(k, func(ctx Context) int {
			out, err := Map(ctx, "m", items, func(ctx Context, _ int) (int, error) {
				return Step(ctx, "one", func(context.Context) (int, error) { return 1, nil })
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
		k := newKit(t)
		wf := Define[struct{}, []int]("wf")
		serve(k, wf, func(ctx Context, _ struct{}) ([]int, error) {
			return Map(ctx, "m", []int{1, 2, 3}, func(ctx Context, n int) (int, error) {
				if err := Sleep(ctx, "long", time.Hour); err != nil {
					return 0, err
				}
				return n, nil
			})
		})
		run := begin(k, wf, struct{}{})
		k.waitStatus(run.ID(), StatusSleeping)
		if n := k.count(`SELECT count(*) FROM kagzi.step_runs WHERE step_kind = 'SLEEP' AND status = 'RUNNING'`); n != 3 {
			t.Errorf("%d sleeps are recorded, want 3", n)
		}
		k.forward(run.ID())
		if got := resultOf(k, run); !slices.Equal(got, []int{1, 2, 3}) {
			t.Errorf("got %v", got)
		}
	})
}
