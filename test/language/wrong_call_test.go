package language_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/testlog"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/topic"
)

// elsewhere calls f on another goroutine, and returns when it has returned.
func elsewhere(f func()) {
	var all sync.WaitGroup
	all.Go(f)
	all.Wait()
}

// A function ignores the error of an invalid call and returns none. The run must not complete, because the call had no
// effect.
func TestAWrongCallWhoseErrorIsDroppedFailsTheRun(t *testing.T) {
	t.Parallel()
	nothing := func(context.Context) error { return nil }
	branch := func(kagzi.Context) (int, error) { return 0, nil }
	child := kagzi.Define[string, int]("child")
	for name, tt := range map[string]struct {
		call func(ctx kagzi.Context)
		says string
	}{
		"DoOnAnotherGoroutine": {func(ctx kagzi.Context) {
			elsewhere(func() { _ = kagzi.Do(ctx, "s", nothing) })
		}, "another goroutine"},
		"SleepOnAnotherGoroutine": {func(ctx kagzi.Context) {
			elsewhere(func() { _ = kagzi.Sleep(ctx, "s", time.Hour) })
		}, "another goroutine"},
		"GoOnAnotherGoroutine": {func(ctx kagzi.Context) {
			elsewhere(func() { _, _ = kagzi.Go(ctx, "b", branch).Result(ctx) })
		}, "another goroutine"},
		"ParallelOnAnotherGoroutine": {func(ctx kagzi.Context) {
			elsewhere(func() { _ = kagzi.Parallel(ctx, "p", nil) })
		}, "another goroutine"},
		"MapOnAnotherGoroutine": {func(ctx kagzi.Context) {
			elsewhere(func() { _, _ = kagzi.Map[int, int](ctx, "m", nil, nil) })
		}, "another goroutine"},
		"SignalOnAnotherGoroutine": {func(ctx kagzi.Context) {
			elsewhere(func() { _, _ = kagzi.WaitSignal(ctx, kagzi.DefineSignal[int]("s")) })
		}, "another goroutine"},
		"ChildOnAnotherGoroutine": {func(ctx kagzi.Context) {
			elsewhere(func() { _, _ = kagzi.StartChild(ctx, "c", child, "") })
		}, "another goroutine"},
		"PublishOnAnotherGoroutine": {
			func(ctx kagzi.Context) { elsewhere(func() { _ = topic.Publish(ctx, "p") }) },
			"another goroutine",
		},
		"PatchedOnAnotherGoroutine": {
			func(ctx kagzi.Context) { elsewhere(func() { kagzi.Patched(ctx, "c") }) },
			"another goroutine",
		},
		"CompensateOnAnotherGoroutine": {func(ctx kagzi.Context) {
			elsewhere(func() { kagzi.Compensate(ctx, "c", child.With("")) })
		}, "another goroutine"},
		"ResultOnAnotherGoroutine": {func(ctx kagzi.Context) {
			f := kagzi.Go(ctx, "b", branch)
			elsewhere(func() { _, _ = f.Result(ctx) })
		}, "another goroutine"},
		"TheContextOfTheRunInABranch": {func(ctx kagzi.Context) {
			_, _ = kagzi.Go(ctx, "b", func(kagzi.Context) (int, error) {
				_ = kagzi.Do(ctx, "s", nothing)
				return 0, nil
			}).Result(ctx)
		}, "another goroutine"},
		"InABranch": {func(ctx kagzi.Context) {
			_ = kagzi.Parallel(ctx, "p", map[string]func(kagzi.Context) error{"b": func(ctx kagzi.Context) error {
				_ = kagzi.Do(ctx, "a/b", nothing)
				return nil
			}})
		}, "'/'"},
		"NameOfAStep":   {func(ctx kagzi.Context) { _ = kagzi.Do(ctx, "bad/name", nothing) }, "'/'"},
		"NameOfASleep":  {func(ctx kagzi.Context) { _ = kagzi.Sleep(ctx, "", time.Hour) }, "empty"},
		"NameOfABranch": {func(ctx kagzi.Context) { _, _ = kagzi.Go(ctx, "a#2", branch).Result(ctx) }, "'#'"},
		"NameOfASignal": {
			func(ctx kagzi.Context) { _, _ = kagzi.WaitSignal(ctx, kagzi.DefineSignal[int]("a/b")) },
			"'/'",
		},
		"NameOfAChild":   {func(ctx kagzi.Context) { _, _ = kagzi.RunChild(ctx, "a/b", child, "") }, "'/'"},
		"NameOfAPublish": {func(ctx kagzi.Context) { _ = topic.Publish(ctx, "a/b") }, "'/'"},
		"EmptyEvent": {
			func(ctx kagzi.Context) { _ = topic.Publish(ctx, "p", told.With("x"), topic.NewEvent{}) },
			"event 1: the NewEvent is empty",
		},
		"NameOfATopic": {func(ctx kagzi.Context) {
			_ = topic.Publish(ctx, "p", topic.Define[int]("").With(1))
		}, "topic is empty"},
		"IDOfAnEvent": {
			func(ctx kagzi.Context) { _ = topic.Publish(ctx, "p", told.With("x").WithID("")) },
			"the event's ID is empty",
		},
		"PayloadOfAnEvent": {func(ctx kagzi.Context) {
			_ = topic.Publish(ctx, "p", topic.Define[func()]("f").With(func() {}))
		}, "cannot be encoded"},
		"NameInAGroup": {func(ctx kagzi.Context) {
			_ = kagzi.Parallel(ctx, "p", map[string]func(kagzi.Context) error{"": nil})
		}, "empty"},
		"TimeoutOfAStep": {func(ctx kagzi.Context) { _ = kagzi.Do(ctx, "s", nothing, kagzi.Timeout(30)) }, "30 ns"},
		"TimeoutOfASignal": {func(ctx kagzi.Context) {
			_, _ = kagzi.WaitSignal(ctx, kagzi.DefineSignal[int]("s"), kagzi.Timeout(30))
		}, "30 ns"},
		"TimeoutsOfASignal": {func(ctx kagzi.Context) {
			_, _ = kagzi.WaitSignal(ctx, kagzi.DefineSignal[int]("s"), kagzi.Timeout(time.Hour),
				kagzi.Timeout(time.Minute))
		}, "there are 2 timeouts: give one"},
		"InputOfAStep": {
			func(ctx kagzi.Context) { _ = kagzi.Do(ctx, "s", nothing, kagzi.Input(func() {})) },
			"the Input: a func() cannot be encoded",
		},
		"LargeInputOfAStep": {func(ctx kagzi.Context) {
			_ = kagzi.Do(ctx, "s", nothing, kagzi.Input(strings.Repeat("x", 5<<20)))
		}, "the Input is 5242882 bytes, the limit"},
		"TimeoutOfAGroup": {
			func(ctx kagzi.Context) { _ = kagzi.Parallel(ctx, "p", nil, kagzi.Timeout(30)) },
			"30 ns",
		},
		"TimeoutOfAChild": {func(ctx kagzi.Context) {
			_, _ = kagzi.StartChild(ctx, "c", child, "", kagzi.Timeout(30))
		}, "30 ns"},
		"ShortSleep":          {func(ctx kagzi.Context) { _ = kagzi.Sleep(ctx, "s", 30) }, "30 ns"},
		"SleepUntilNoTime":    {func(ctx kagzi.Context) { _ = kagzi.SleepUntil(ctx, "s", time.Time{}) }, "zero"},
		"NilStep":             {func(ctx kagzi.Context) { _ = kagzi.Do(ctx, "s", nil) }, "nil"},
		"NilBranch":           {func(ctx kagzi.Context) { _, _ = kagzi.Go[int](ctx, "b", nil).Result(ctx) }, "nil"},
		"NilBranchOfMap":      {func(ctx kagzi.Context) { _, _ = kagzi.Map[int, int](ctx, "m", []int{1}, nil) }, "nil"},
		"RaceWithoutBranches": {func(ctx kagzi.Context) { _, _, _ = kagzi.Race[int](ctx, "r", nil) }, "no branches"},
		"EmptyChild":          {func(ctx kagzi.Context) { _, _ = (&kagzi.Child[int]{}).Result(ctx) }, "empty"},
		"EmptyChildren": {
			func(ctx kagzi.Context) { _, _ = kagzi.Results(ctx, []*kagzi.Child[int]{nil}) },
			"empty",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var logged testlog.Buffer
			k := kit.NewWith(t, kagzi.ClientConfig{Logger: slog.New(slog.NewTextHandler(&logged, nil))})
			wf := kagzi.Define[struct{}, int]("wf")
			var mended atomic.Bool
			w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{})
			kagzi.Handle(w, wf, func(ctx kagzi.Context, _ struct{}) (int, error) {
				if !mended.Load() {
					tt.call(ctx)
				}
				return 1, nil
			})
			kit.StartWorker(t, w)
			run := kit.Begin(k, wf, struct{}{})
			re := kit.FailureOf(k, run, kagzi.StatusFailed)
			if re.Kind != kind.BadRequest {
				t.Errorf("the failure is of kind %s", re.Kind)
			}
			kit.MustContain(t, re, tt.says)
			if !strings.Contains(logged.String(), "level=WARN") || !strings.Contains(logged.String(), tt.says) {
				t.Errorf("it is not in the log:\n%s", logged.String())
			}
			if err := w.Replay(k.Ctx, run.ID()); err != nil {
				t.Errorf("the same code does not come to the same end: %v", err)
			}
			mended.Store(true)
			k.Resume(run.ID())
			if got := kit.ResultOf(k, run); got != 1 {
				t.Errorf("with the code mended the run returns %d", got)
			}
		})
	}
}

func TestAFunctionsOwnErrorCountsBeforeThatOfAWrongCall(t *testing.T) {
	k := kit.New(t)
	wf := kagzi.Define[struct{}, int]("wf", kit.NoRetry)
	kit.Serve(k, wf, func(ctx kagzi.Context, _ struct{}) (int, error) {
		_ = kagzi.Do(ctx, "bad/name", func(context.Context) error { return nil })
		return 0, kind.RateLimited
	})
	if re := kit.FailureOf(k, kit.Begin(k, wf, struct{}{}), kagzi.StatusFailed); re.Kind != kind.RateLimited {
		t.Errorf("got %v", re)
	}
}

// The function of a step calls durable operations of its workflow, and ignores their errors. The step fails, and its
// failure is recorded for replays.
func TestAWrongCallInsideOfAStep(t *testing.T) {
	k := kit.New(t)
	wf := kagzi.Define[struct{}, int]("wf", kit.NoRetry)
	var calls atomic.Int64
	kit.Serve(k, wf, func(ctx kagzi.Context, _ struct{}) (int, error) {
		err := kagzi.Do(ctx, "s", func(context.Context) error {
			calls.Add(1)
			_ = kagzi.Sleep(ctx, "nap", time.Second)
			return nil
		}, kit.Soon)
		if !errors.Is(err, kind.BadRequest) {
			t.Errorf("the step: %v", err)
		}
		kit.MustContain(t, err, "inside of a step")
		if err := kagzi.Sleep(ctx, "long", 300*time.Millisecond); err != nil {
			return 0, err
		}
		return 0, err
	})
	kit.FailureOf(k, kit.Begin(k, wf, struct{}{}), kagzi.StatusFailed)
	if n := calls.Load(); n != 1 {
		t.Errorf("the step was executed %d times", n)
	}
}

// Only in the first execution, another goroutine uses the Context, outside or inside of a step, before the run is
// suspended. The run must not complete as though the call had been made.
func TestAWrongCallIsNotForgottenAtASuspension(t *testing.T) {
	t.Parallel()
	charge := func(ctx kagzi.Context) {
		elsewhere(func() { _ = kagzi.Do(ctx, "charge", func(context.Context) error { return nil }) })
	}
	for name, call := range map[string]func(ctx kagzi.Context, first bool) error{
		"OutsideOfAStep": func(ctx kagzi.Context, first bool) error {
			if first {
				charge(ctx)
			}
			return nil
		},
		"InsideOfAStep": func(ctx kagzi.Context, _ bool) error {
			return kagzi.Do(ctx, "s", func(context.Context) error { charge(ctx); return nil })
		},
	} {
		for wait, f := range map[string]func(ctx kagzi.Context) error{
			"Sleep":  func(ctx kagzi.Context) error { return kagzi.Sleep(ctx, "long", time.Hour) },
			"Signal": func(ctx kagzi.Context) error { _, err := kagzi.WaitSignal(ctx, kit.Approved); return err },
			"Branch": func(ctx kagzi.Context) error {
				_, err := kagzi.Go(ctx, "b", func(ctx kagzi.Context) (int, error) {
					return 0, kagzi.Sleep(ctx, "long", time.Hour)
				}).Result(ctx)
				return err
			},
		} {
			t.Run(name+wait, func(t *testing.T) {
				k := kit.New(t)
				wf := kagzi.Define[int, int]("wf", kit.NoRetry)
				var executions atomic.Int64
				w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{})
				kagzi.Handle(w, wf, func(ctx kagzi.Context, _ int) (int, error) {
					if err := call(ctx, executions.Add(1) == 1); err != nil {
						return 0, err
					}
					return 0, f(ctx)
				})
				kit.StartWorker(t, w)
				if re := kit.FailureOf(k, kit.Begin(k, wf, 1), kagzi.StatusFailed); re.Kind != kind.BadRequest {
					t.Errorf("the run failed with kind %s: %v", re.Kind, re)
				}
			})
		}
	}
}

// A goroutine outlives the execution that started it, and misuses its Context then. The current execution of the run is
// not affected.
func TestAWrongCallOfAnExecutionThatIsOver(t *testing.T) {
	k := kit.New(t)
	wf := kagzi.Define[struct{}, int]("wf")
	leaked := make(chan kagzi.Context, 2)
	var executions atomic.Int64
	kit.Serve(k, wf, func(ctx kagzi.Context, _ struct{}) (int, error) {
		if executions.Add(1) == 1 {
			leaked <- ctx
		}
		if err := kagzi.Sleep(ctx, "long", time.Hour); err != nil {
			return 0, err
		}
		if executions.Load() > 1 {
			old := <-leaked
			elsewhere(func() {
				if err := kagzi.Do(old, "s", func(context.Context) error { return nil }); !ofAnotherGoroutine(err) {
					t.Errorf("got %v", err)
				}
			})
		}
		return 1, nil
	})
	run := kit.Begin(k, wf, struct{}{})
	k.WaitStatus(run.ID(), kagzi.StatusSleeping)
	k.Forward(run.ID())
	kit.ResultOf(k, run)
}

// The loser of a race uses values that its cancelled calls have not returned. Its invalid calls do not fail the run.
func TestAWrongCallOfALoserDecidesNothing(t *testing.T) {
	k := kit.New(t)
	child := kagzi.Define[int, int]("child")
	kit.Complete(k, func(ctx kagzi.Context) (int, error) {
		_, n, err := kagzi.Race(ctx, "r", map[string]func(kagzi.Context) (int, error){
			"winner": func(kagzi.Context) (int, error) { return 1, nil },
			"loser": func(ctx kagzi.Context) (int, error) {
				<-ctx.Done()
				c, _ := kagzi.StartChild(ctx, "c", child, 1)
				return c.Result(ctx)
			},
		})
		return n, err
	})
}

// A function may handle the error of an input that is too large for a child.
func TestAnInputThatIsTooLargeIsNoWrongCall(t *testing.T) {
	t.Parallel()
	k := kit.NewWith(t, kagzi.ClientConfig{MaxPayload: 100})
	child := kagzi.Define[string, int]("child")
	kit.Complete(k, func(ctx kagzi.Context) (int, error) {
		if _, err := kagzi.StartChild(ctx, "c", child, strings.Repeat("x", 200)); !errors.Is(err,
			kagzi.ErrPayloadTooLarge) {
			t.Errorf("got %v", err)
		}
		return 0, nil
	})
}
