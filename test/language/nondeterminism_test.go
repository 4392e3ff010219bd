package language_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/kind"
)

// A codeChange is a deploy: a run has passed the old code, and the new code replays it.
type codeChange struct {
	name     string
	old, new func(ctx kagzi.Context, calls *atomic.Int64) error
	want     []string // of the error
}

// begun starts a run with the old code, waits until it sleeps, and returns it with a function that wakes it with other
// code.
func (c codeChange) begun(k *kit.Kit,
	calls *atomic.Int64) (run *kagzi.Run[string],
	wake func(code func(kagzi.Context, *atomic.Int64) error) (stop func() error),
) {
	wf := kagzi.Define[int, string]("wf", kit.NoRetry)
	deploy := func(code func(kagzi.Context, *atomic.Int64) error) func() error {
		return kit.Serve(k, wf, func(ctx kagzi.Context, _ int) (string, error) {
			if err := code(ctx, calls); err != nil {
				return "", err
			}
			return "done", kagzi.Sleep(ctx, "nap", time.Hour)
		})
	}
	stop := deploy(c.old)
	run = kit.Begin(k, wf, 1)
	k.WaitStatus(run.ID(), kagzi.StatusSleeping)
	if err := stop(); err != nil {
		k.T.Fatal(err)
	}
	return run, func(code func(kagzi.Context, *atomic.Int64) error) func() error {
		k.Forward(run.ID())
		return deploy(code)
	}
}

func aStep[T any](name string, v T) func(kagzi.Context, *atomic.Int64) error {
	return func(ctx kagzi.Context, calls *atomic.Int64) error {
		_, err := kagzi.Step(ctx, name, kit.Once(calls, v))
		return err
	}
}

func aStepTx[T any](name string, v T) func(kagzi.Context, *atomic.Int64) error {
	return func(ctx kagzi.Context, calls *atomic.Int64) error {
		_, err := kagzi.StepTx(ctx, name, func(ctx context.Context, _ pgx.Tx) (T, error) {
			return kit.Once(calls, v)(ctx)
		})
		return err
	}
}

func aSleep(name string) func(kagzi.Context, *atomic.Int64) error {
	return func(ctx kagzi.Context, _ *atomic.Int64) error { return kagzi.Sleep(ctx, name, time.Millisecond) }
}

// aBranch and the groups have a step "s" in each branch.
func aBranch[T any](name string, v T) func(kagzi.Context, *atomic.Int64) error {
	return func(ctx kagzi.Context, calls *atomic.Int64) error {
		_, err := kagzi.Go(ctx, name, func(ctx kagzi.Context) (T, error) {
			return kagzi.Step(ctx, "s", kit.Once(calls, v))
		}).Result(ctx)
		return err
	}
}

func aParallel[T any](name string, v T, opts ...kagzi.BranchOption) func(kagzi.Context, *atomic.Int64) error {
	return func(ctx kagzi.Context, calls *atomic.Int64) error {
		return kagzi.Parallel(ctx, name, map[string]func(kagzi.Context) error{"b": func(ctx kagzi.Context) error {
			return aStep("s", v)(ctx, calls)
		}}, opts...)
	}
}

func aMap[In, T any](name string, items []In, v T) func(kagzi.Context, *atomic.Int64) error {
	return func(ctx kagzi.Context, calls *atomic.Int64) error {
		_, err := kagzi.Map(ctx, name, items, func(ctx kagzi.Context, _ In) (T, error) {
			return kagzi.Step(ctx, "s", kit.Once(calls, v))
		})
		return err
	}
}

func aRace[T any](name string, v T) func(kagzi.Context, *atomic.Int64) error {
	return func(ctx kagzi.Context, calls *atomic.Int64) error {
		_, _, err := kagzi.Race(ctx, name, map[string]func(kagzi.Context) (T,
			error){"b": func(ctx kagzi.Context) (T, error) { return kagzi.Step(ctx, "s", kit.Once(calls, v)) }})
		return err
	}
}

func inOrder(parts ...func(kagzi.Context, *atomic.Int64) error) func(kagzi.Context, *atomic.Int64) error {
	return func(ctx kagzi.Context, calls *atomic.Int64) error {
		for _, part := range parts {
			if err := part(ctx, calls); err != nil {
				return err
			}
		}
		return nil
	}
}

func nothingAtAll(kagzi.Context, *atomic.Int64) error { return nil }

// brokenParallel continues after a failed group.
func brokenParallel(name string) func(kagzi.Context, *atomic.Int64) error {
	return func(ctx kagzi.Context, _ *atomic.Int64) error {
		_ = kagzi.Parallel(ctx, name, map[string]func(kagzi.Context) error{"b": func(ctx kagzi.Context) error {
			return kagzi.Do(ctx, "s", failing)
		}})
		return nil
	}
}

// Code that contradicts the history of a run quarantines the run. The error names the step and says what to do. After a
// rollback the run is resumed, and completes without executing any step again.
func TestContradictionQuarantinesTheRun(t *testing.T) {
	t.Parallel()
	items := []string{"a", "b"}
	for _, tt := range []codeChange{
		{"StepToSleep", aStep("x", 1), aSleep("x"), []string{
			`"x" was recorded as a step`, "for a sleep",
			"another name",
		}},
		{
			"StepToParallel", aStep("x", 1), aParallel("x", 1),
			[]string{`"x" was recorded as a step`, "for a group of branches"},
		},
		{
			"StepToMap", aStep("x", 1), aMap("x", items, 1),
			[]string{`"x" was recorded as a step`, "for a group of branches"},
		},
		{"StepToBranch", aStep("x", 1), aBranch("x", 1), []string{`"x" was recorded as a step`, "for a branch"}},
		{"SleepToStep", aSleep("x"), aStep("x", 1), []string{`"x" was recorded as a sleep`, "for a step"}},
		{"SleepToStepTx", aSleep("x"), aStepTx("x", 1), []string{`"x" was recorded as a sleep`, "for a step"}},
		{"SleepToRace", aSleep("x"), aRace("x", 1), []string{`"x" was recorded as a sleep`, "for a group of branches"}},
		{"SleepToBranch", aSleep("x"), aBranch("x", 1), []string{`"x" was recorded as a sleep`, "for a branch"}},
		{"MapToStep", aMap("x", items, 1), aStep("x", 1), []string{
			`"x" was recorded as a group of branches`,
			"for a step",
		}},
		{"MapToSleep", aMap("x", items, 1), aSleep("x"), []string{
			`"x" was recorded as a group of branches`,
			"for a sleep",
		}},
		{"MapToBranch", aMap("x", items, 1), aBranch("x", 1), []string{
			`"x" was recorded as a group of branches`,
			"for a branch",
		}},
		{"ParallelToStep", aParallel("x", 1), aStep("x", 1), []string{
			`"x" was recorded as a branch or group`,
			"for a step",
		}},
		{
			"TimedParallelToStep", aParallel("x", 1, kagzi.Timeout(time.Hour)), aStep("x", 1),
			[]string{`"x" was recorded as a group of branches`, "for a step"},
		},
		{"BranchToStep", aBranch("x", 1), aStep("x", 1), []string{`"x" was recorded as a branch`, "for a step"}},
		{"BranchToSleep", aBranch("x", 1), aSleep("x"), []string{`"x" was recorded as a branch`, "for a sleep"}},
		{"RaceToParallel", aRace("x", 1), aParallel("x", 1), []string{`"x" was recorded as a Race`}},
		{"ParallelToRace", brokenParallel("x"), aRace("x", 1), []string{`"x" was recorded as a Parallel`}},
		{"MapToParallel", aMap("x", items, 1), aParallel("x", 1), []string{`Map "x" was begun with 2 items`}},
		{"ItemChanged", aMap("x", items, 1), aMap("x", []string{"a", "c"}, 1), []string{`item 1 of Map "x"`}},
		{"ResultType", aStep("x", "text"), aStep("x", 1), []string{`result of step "x" does not decode into int`}},
		{
			"ResultTypeTx", aStepTx("x", "text"), aStepTx("x", 1),
			[]string{`result of step "x" does not decode into int`},
		},
		{
			"ResultTypeInBranch", aBranch("b", "text"), aBranch("b", 1),
			[]string{`result of step "b/s" does not decode into int`},
		},
		{
			"ResultTypeInParallel", aParallel("g", "text"), aParallel("g", []int{1}),
			[]string{`result of step "g/b/s" does not decode into []int`},
		},
		{
			"ResultTypeInMap", aMap("m", items, "text"), aMap("m", items, 1),
			[]string{`result of step "m/`, `does not decode into int`},
		},
		{
			"ResultTypeInRace", aRace("r", "text"), aRace("r", 1),
			[]string{`result of step "r/b/s" does not decode into int`},
		},
		{
			"SecondOfAName", inOrder(aStep("x", 1), aStep("x", "text")), inOrder(aStep("x", 1), aStep("x", 2)),
			[]string{`result of step "x#2" does not decode`},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k := kit.New(t)
			var calls atomic.Int64
			run, wake := tt.begun(k, &calls)
			executed := calls.Load()
			stop := wake(tt.new)
			failure := kit.FailureOf(k, run, kagzi.StatusFailed)
			if failure.Kind != kind.Nondeterminism {
				t.Errorf("kind %q", failure.Kind)
			}
			kit.MustContain(t, failure, append(tt.want, "roll the code back or repair it, then Resume the run")...)
			if err := stop(); err != nil {
				t.Error(err)
			}
			k.Resume(run.ID())
			wake(tt.old)
			if got := kit.ResultOf(k, run); got != "done" {
				t.Errorf("got %q after the rollback", got)
			}
			if n := calls.Load(); n != executed {
				t.Errorf("%d steps were executed, and %d by the end: recorded ones were executed again", executed, n)
			}
		})
	}
}

// The new code has other steps than the history, but none contradicts it. The run continues, and executes the new
// steps.
func TestSafeChanges(t *testing.T) {
	t.Parallel()
	a, b, c := aStep("a", 1), aStep("b", "two"), aStep("c", []int{3})
	patch := func(ctx kagzi.Context, _ *atomic.Int64) error {
		kagzi.Patched(ctx, "a")
		return nil
	}
	for _, tt := range []struct {
		codeChange
		executed int64 // anew
	}{
		{codeChange{"AddedBefore", inOrder(a, b), inOrder(c, a, b), nil}, 1},
		{codeChange{"AddedBetween", inOrder(a, b), inOrder(a, c, b), nil}, 1},
		{codeChange{"AddedBehind", inOrder(a, b), inOrder(a, b, c), nil}, 1},
		{codeChange{"Removed", inOrder(a, b, c), inOrder(a, c), nil}, 0},
		{codeChange{"AllRemoved", inOrder(a, b, c), nothingAtAll, nil}, 0},
		{codeChange{"Reordered", inOrder(a, b, c), inOrder(c, a, b), nil}, 0},
		{codeChange{"Renamed", inOrder(a, b), inOrder(a, aStep("b2", "two")), nil}, 1},
		{codeChange{"MadeTransactional", inOrder(a, b), inOrder(aStepTx("a", 1), b), nil}, 0},
		{codeChange{"WiderResult", inOrder(a, b), inOrder(aStep("a", 1.5), b), nil}, 0},
		{codeChange{"SleepAdded", inOrder(a, b), inOrder(a, aSleep("s"), b), nil}, 0},
		{codeChange{"SleepRemoved", inOrder(a, aSleep("s"), b), inOrder(a, b), nil}, 0},
		{codeChange{"GroupAdded", inOrder(a, b), inOrder(a, aParallel("g", 1), aMap("m", []int{1, 2}, 1), b), nil}, 3},
		{codeChange{"GroupRemoved", inOrder(a, aParallel("g", 1), aRace("r", 1), b), inOrder(a, b), nil}, 0},
		{codeChange{"MovedIntoBranch", inOrder(a, b), inOrder(aBranch("a-branch", 1), b), nil}, 1},
		{codeChange{"PatchOfAStepsName", inOrder(a, b), inOrder(patch, a, b), nil}, 0},
		{codeChange{"PatchRemoved", inOrder(patch, a, patch, b), inOrder(a, b), nil}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k := kit.New(t)
			var calls atomic.Int64
			run, wake := tt.begun(k, &calls)
			before := calls.Load()
			wake(tt.new)
			if got := kit.ResultOf(k, run); got != "done" {
				t.Errorf("got %q", got)
			}
			if n := calls.Load() - before; n != tt.executed {
				t.Errorf("%d steps were executed after the change, want %d", n, tt.executed)
			}
			for id, attempts := range k.Steps(run.ID()) {
				if len(attempts) != 1 && !strings.Contains(id, "nap") {
					t.Errorf("%d attempts of %q", len(attempts), id)
				}
			}
		})
	}
}

func TestNondeterminism(t *testing.T) {
	t.Parallel()
	// Each second code meets the records of the first, and after a rollback to the first code the run continues.
	first := func(ctx kagzi.Context) (int, error) {
		n, err := kagzi.Step(ctx, "work", func(context.Context) (int, error) { return 7, nil })
		if err != nil {
			return 0, err
		}
		if _, err := kagzi.Map(ctx, "items", []int{1, 2}, func(_ kagzi.Context, n int) (int, error) {
			return n, nil
		}); err != nil {
			return 0, err
		}
		return n, kagzi.Sleep(ctx, "rest", time.Hour)
	}
	for _, tt := range []struct {
		name   string
		second func(kagzi.Context) error
		says   []string
	}{
		{
			"StepBecameSleep", func(ctx kagzi.Context) error { return kagzi.Sleep(ctx, "work", time.Second) },
			[]string{`"work"`, "a step", "a sleep"},
		},
		{"SleepBecameStep", func(ctx kagzi.Context) error {
			return kagzi.Do(ctx, "rest", func(context.Context) error { return nil })
		}, []string{`"rest"`, "a sleep", "a step"}},
		{"GroupBecameStep", func(ctx kagzi.Context) error {
			return kagzi.Do(ctx, "items", func(context.Context) error { return nil })
		}, []string{`"items"`, "a group"}},
		{"ResultNoLongerDecodes", func(ctx kagzi.Context) error {
			_, err := kagzi.Step(ctx, "work", func(context.Context) ([]string, error) { return nil, nil })
			return err
		}, []string{`"work"`, "[]string"}},
		{"ItemChanged", func(ctx kagzi.Context) error {
			_, err := kagzi.Map(ctx, "items", []int{1, 3}, func(_ kagzi.Context, n int) (int, error) { return n, nil })
			return err
		}, []string{"item 1", `"items"`}},
		{"ItemAdded", func(ctx kagzi.Context) error {
			_, err := kagzi.Map(ctx, "items", []int{1, 2, 3}, func(_ kagzi.Context, n int) (int, error) {
				return n, nil
			})
			return err
		}, []string{`"items"`, "2", "3"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k := kit.New(t)
			wf := kagzi.Define[struct{}, int]("wf", kagzi.RetryPolicy{MaxAttempts: 5, Backoff: time.Millisecond})
			stop := kit.Serve(k, wf, func(ctx kagzi.Context, _ struct{}) (int, error) { return first(ctx) })
			run := kit.Begin(k, wf, struct{}{})
			k.WaitStatus(run.ID(), kagzi.StatusSleeping)
			stop()
			stop = kit.Serve(k, wf, func(ctx kagzi.Context, _ struct{}) (int, error) {
				if err := tt.second(ctx); err != nil {
					t.Errorf("workflow code saw %v", err)
				}
				t.Error("workflow code went on")
				return 0, nil
			})
			k.Wake(run.ID())
			re := kit.FailureOf(k, run, kagzi.StatusFailed)
			if re.Kind != kind.Nondeterminism {
				t.Errorf("kind %q: %v", re.Kind, re)
			}
			kit.MustContain(t, re, append(tt.says, "Resume")...)
			stop()
			kit.Serve(k, wf, func(ctx kagzi.Context, _ struct{}) (int, error) { return first(ctx) })
			k.Resume(run.ID())
			k.WaitStatus(run.ID(), kagzi.StatusSleeping)
			k.Forward(run.ID())
			if got := kit.ResultOf(k, run); got != 7 {
				t.Errorf("result %d, want 7", got)
			}
		})
	}
}
