package kagzi

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// elsewhere calls f on another goroutine, and returns when it has returned.
func elsewhere(f func()) {
	var all sync.WaitGroup
	all.Go(f)
	all.Wait()
}

// TestAWrongCallWhoseErrorIsDroppedFailsTheRun has functions drop the errors of wrong calls and return none: what they were to
// do has not happened, so the runs do not complete.
func TestAWrongCallWhoseErrorIsDroppedFailsTheRun(t *testing.T) {
	t.Parallel()
	nothing := func(context.Context) error { return nil }
	branch := func(Context) (int, error) { return 0, nil }
	child := Define[string, int]("child")
	for name, tt := range map[string]struct {
		call func(ctx Context)
		says string
	}{
		"DoOnAnotherGoroutine":         {func(ctx Context) { elsewhere(func() { _ = Do(ctx, "s", nothing) }) }, "another goroutine"},
		"SleepOnAnotherGoroutine":      {func(ctx Context) { elsewhere(func() { _ = Sleep(ctx, "s", time.Hour) }) }, "another goroutine"},
		"GoOnAnotherGoroutine":         {func(ctx Context) { elsewhere(func() { _, _ = Go(ctx, "b", branch).Result(ctx) }) }, "another goroutine"},
		"ParallelOnAnotherGoroutine":   {func(ctx Context) { elsewhere(func() { _ = Parallel(ctx, "p", nil) }) }, "another goroutine"},
		"MapOnAnotherGoroutine":        {func(ctx Context) { elsewhere(func() { _, _ = Map[int, int](ctx, "m", nil, nil) }) }, "another goroutine"},
		"SignalOnAnotherGoroutine":     {func(ctx Context) { elsewhere(func() { _, _ = WaitSignal(ctx, DefineSignal[int]("s")) }) }, "another goroutine"},
		"ChildOnAnotherGoroutine":      {func(ctx Context) { elsewhere(func() { _, _ = StartChild(ctx, "c", child, "") }) }, "another goroutine"},
		"PatchedOnAnotherGoroutine":    {func(ctx Context) { elsewhere(func() { Patched(ctx, "c") }) }, "another goroutine"},
		"CompensateOnAnotherGoroutine": {func(ctx Context) { elsewhere(func() { Compensate(ctx, "c", child.With("")) }) }, "another goroutine"},
		"ResultOnAnotherGoroutine": {func(ctx Context) {
			f := Go(ctx, "b", branch)
			elsewhere(func() { _, _ = f.Result(ctx) })
		}, "another goroutine"},
		"TheContextOfTheRunInABranch": {func(ctx Context) {
			_, _ = Go(ctx, "b", func(Context) (int, error) { _ = Do(ctx, "s", nothing); return 0, nil }).Result(ctx)
		}, "another goroutine"},
		"InABranch": {func(ctx Context) {
			_ = Parallel(ctx, "p", map[string]func(Context) error{"b": func(ctx Context) error { _ = Do(ctx, "a/b", nothing); return nil }})
		}, "'/'"},
		"NameOfAStep":      {func(ctx Context) { _ = Do(ctx, "bad/name", nothing) }, "'/'"},
		"NameOfASleep":     {func(ctx Context) { _ = Sleep(ctx, "", time.Hour) }, "empty"},
		"NameOfABranch":    {func(ctx Context) { _, _ = Go(ctx, "a#2", branch).Result(ctx) }, "'#'"},
		"NameOfASignal":    {func(ctx Context) { _, _ = WaitSignal(ctx, DefineSignal[int]("a/b")) }, "'/'"},
		"NameOfAChild":     {func(ctx Context) { _, _ = RunChild(ctx, "a/b", child, "") }, "'/'"},
		"NameInAGroup":     {func(ctx Context) { _ = Parallel(ctx, "p", map[string]func(Context) error{"": nil}) }, "empty"},
		"TimeoutOfAStep":   {func(ctx Context) { _ = Do(ctx, "s", nothing, Timeout(30)) }, "30 ns"},
		"TimeoutOfASignal": {func(ctx Context) { _, _ = WaitSignal(ctx, DefineSignal[int]("s"), Timeout(30)) }, "30 ns"},
		"TimeoutsOfASignal": {func(ctx Context) {
			_, _ = WaitSignal(ctx, DefineSignal[int]("s"), Timeout(time.Hour), Timeout(time.Minute))
		}, "there are 2 timeouts: give one"},
		"InputOfAStep":        {func(ctx Context) { _ = Do(ctx, "s", nothing, Input(func() {})) }, "the Input: a func() cannot be encoded"},
		"LargeInputOfAStep":   {func(ctx Context) { _ = Do(ctx, "s", nothing, Input(strings.Repeat("x", 5<<20))) }, "the Input is 5242882 bytes, the limit"},
		"TimeoutOfAGroup":     {func(ctx Context) { _ = Parallel(ctx, "p", nil, Timeout(30)) }, "30 ns"},
		"TimeoutOfAChild":     {func(ctx Context) { _, _ = StartChild(ctx, "c", child, "", Timeout(30)) }, "30 ns"},
		"ShortSleep":          {func(ctx Context) { _ = Sleep(ctx, "s", 30) }, "30 ns"},
		"SleepUntilNoTime":    {func(ctx Context) { _ = SleepUntil(ctx, "s", time.Time{}) }, "zero"},
		"NilStep":             {func(ctx Context) { _ = Do(ctx, "s", nil) }, "nil"},
		"NilBranch":           {func(ctx Context) { _, _ = Go[int](ctx, "b", nil).Result(ctx) }, "nil"},
		"NilBranchOfMap":      {func(ctx Context) { _, _ = Map[int, int](ctx, "m", []int{1}, nil) }, "nil"},
		"RaceWithoutBranches": {func(ctx Context) { _, _, _ = Race[int](ctx, "r", nil) }, "no branches"},
		"EmptyChild":          {func(ctx Context) { _, _ = (&Child[int]{}).Result(ctx) }, "empty"},
		"EmptyChildren":       {func(ctx Context) { _, _ = Results(ctx, []*Child[int]{nil}) }, "empty"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var logged logBuffer
			k := newKitWith(t, ClientConfig{Logger: slog.New(slog.NewTextHandler(&logged, nil))})
			wf := Define[struct{}, int]("wf")
			var mended atomic.Bool
			w := newTestWorker(t, k.c, WorkerConfig{})
			Handle(w, wf, func(ctx Context, _ struct{}) (int, error) {
				if !mended.Load() {
					tt.call(ctx)
				}
				return 1, nil
			})
			startWorker(t, w)
			run := begin(k, wf, struct{}{})
			re := failureOf(k, run, StatusFailed)
			if re.Kind != KindBadRequest {
				t.Errorf("the failure is of kind %s", re.Kind)
			}
			mustContain(t, re, tt.says)
			if !strings.Contains(logged.String(), "level=WARN") || !strings.Contains(logged.String(), tt.says) {
				t.Errorf("it is not in the log:\n%s", logged.String())
			}
			if err := w.Replay(k.ctx, run.ID()); err != nil {
				t.Errorf("the same code does not come to the same end: %v", err)
			}
			mended.Store(true)
			k.resume(run.ID())
			if got := resultOf(k, run); got != 1 {
				t.Errorf("with the code mended the run returns %d", got)
			}
		})
	}
}

func TestAFunctionsOwnErrorCountsBeforeThatOfAWrongCall(t *testing.T) {
	k := newKit(t)
	wf := Define[struct{}, int]("wf", noRetry)
	serve(k, wf, func(ctx Context, _ struct{}) (int, error) {
		_ = Do(ctx, "bad/name", func(context.Context) error { return nil })
		return 0, KindRateLimited
	})
	if re := failureOf(k, begin(k, wf, struct{}{}), StatusFailed); re.Kind != KindRateLimited {
		t.Errorf("got %v", re)
	}
}

// TestAWrongCallInsideOfAStep has a step's function call durable operations of its workflow, and drop the errors: the step has
// failed, which a replay finds recorded.
func TestAWrongCallInsideOfAStep(t *testing.T) {
	k := newKit(t)
	wf := Define[struct{}, int]("wf", noRetry)
	var calls atomic.Int64
	serve(k, wf, func(ctx Context, _ struct{}) (int, error) {
		err := Do(ctx, "s", func(context.Context) error {
			calls.Add(1)
			_ = Sleep(ctx, "nap", time.Second)
			return nil
		}, soon)
		if !errors.Is(err, KindBadRequest) {
			t.Errorf("the step: %v", err)
		}
		mustContain(t, err, "inside of a step")
		if err := Sleep(ctx, "long", 300*time.Millisecond); err != nil {
			return 0, err
		}
		return 0, err
	})
	failureOf(k, begin(k, wf, struct{}{}), StatusFailed)
	if n := calls.Load(); n != 1 {
		t.Errorf("the step was executed %d times", n)
	}
}

// TestAWrongCallIsNotForgottenAtASuspension has another goroutine use the Context in the first execution alone, outside of a
// step and inside of one, before the run leaves memory: it does not complete as if the call had been made.
func TestAWrongCallIsNotForgottenAtASuspension(t *testing.T) {
	t.Parallel()
	charge := func(ctx Context) {
		elsewhere(func() { _ = Do(ctx, "charge", func(context.Context) error { return nil }) })
	}
	for name, call := range map[string]func(ctx Context, first bool) error{
		"OutsideOfAStep": func(ctx Context, first bool) error {
			if first {
				charge(ctx)
			}
			return nil
		},
		"InsideOfAStep": func(ctx Context, _ bool) error {
			return Do(ctx, "s", func(context.Context) error { charge(ctx); return nil })
		},
	} {
		for wait, f := range map[string]func(ctx Context) error{
			"Sleep":  func(ctx Context) error { return Sleep(ctx, "long", time.Hour) },
			"Signal": func(ctx Context) error { _, err := WaitSignal(ctx, approved); return err },
			"Branch": func(ctx Context) error {
				_, err := Go(ctx, "b", func(ctx Context) (int, error) { return 0, Sleep(ctx, "long", time.Hour) }).Result(ctx)
				return err
			},
		} {
			t.Run(name+wait, func(t *testing.T) {
				k := newKit(t)
				wf := Define[int, int]("wf", noRetry)
				var executions atomic.Int64
				w := newTestWorker(t, k.c, WorkerConfig{})
				Handle(w, wf, func(ctx Context, _ int) (int, error) {
					if err := call(ctx, executions.Add(1) == 1); err != nil {
						return 0, err
					}
					return 0, f(ctx)
				})
				startWorker(t, w)
				if re := failureOf(k, begin(k, wf, 1), StatusFailed); re.Kind != KindBadRequest {
					t.Errorf("the run failed with kind %s: %v", re.Kind, re)
				}
			})
		}
	}
}

// TestAWrongCallOfAnExecutionThatIsOver has a goroutine outlive the execution that began it, and misuse its Context then: what
// executes the run now has nothing to do with that.
func TestAWrongCallOfAnExecutionThatIsOver(t *testing.T) {
	k := newKit(t)
	wf := Define[struct{}, int]("wf")
	leaked := make(chan Context, 2)
	var executions atomic.Int64
	serve(k, wf, func(ctx Context, _ struct{}) (int, error) {
		if executions.Add(1) == 1 {
			leaked <- ctx
		}
		if err := Sleep(ctx, "long", time.Hour); err != nil {
			return 0, err
		}
		if executions.Load() > 1 {
			old := <-leaked
			elsewhere(func() {
				if err := Do(old, "s", func(context.Context) error { return nil }); !ofAnotherGoroutine(err) {
					t.Errorf("got %v", err)
				}
			})
		}
		return 1, nil
	})
	run := begin(k, wf, struct{}{})
	k.waitStatus(run.ID(), StatusSleeping)
	k.forward(run.ID())
	resultOf(k, run)
}

// TestAWrongCallOfALoserDecidesNothing has the loser of a race go on with what its cancelled calls have not returned.
func TestAWrongCallOfALoserDecidesNothing(t *testing.T) {
	k := newKit(t)
	child := Define[int, int]("child")
	complete(k, func(ctx Context) (int, error) {
		_, n, err := Race(ctx, "r", map[string]func(Context) (int, error){
			"winner": func(Context) (int, error) { return 1, nil },
			"loser": func(ctx Context) (int, error) {
				<-ctx.Done()
				c, _ := StartChild(ctx, "c", child, 1)
				return c.Result(ctx)
			},
		})
		return n, err
	})
}

// TestAnInputThatIsTooLargeIsNoWrongCall has a function go another way when its data turn out to be too large for a child.
func TestAnInputThatIsTooLargeIsNoWrongCall(t *testing.T) {
	t.Parallel()
	k := newKitWith(t, ClientConfig{MaxPayload: 100})
	child := Define[string, int]("child")
	complete(k, func(ctx Context) (int, error) {
		if _, err := StartChild(ctx, "c", child, strings.Repeat("x", 200)); !errors.Is(err, ErrPayloadTooLarge) {
			t.Errorf("got %v", err)
		}
		return 0, nil
	})
}
