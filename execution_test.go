package kagzi

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/store"
)

func TestFailedAttemptOfARun(t *testing.T) {
	t.Parallel()
	t.Run("KeepsGoodStepsAndForgetsFinalFailures", func(t *testing.T) {
		k := newKit(t)
		wf := Define[struct{}, int]("wf", soon)
		var good, tx, slept atomic.Int64
		var keys sync.Map
		serve(k, wf, func(ctx Context, _ struct{}) (int, error) {
			if _, err := Step(ctx, "good", once(&good, 1)); err != nil {
				return 0, err
			}
			if err := Sleep(ctx, "nap", time.Millisecond); err != nil {
				return 0, err
			}
			slept.Add(1)
			f := Go(ctx, "branch", func(ctx Context) (int, error) { return Step(ctx, "good", once(&tx, 2)) })
			if _, err := f.Result(ctx); err != nil {
				return 0, err
			}
			return Step(ctx, "bad", func(sctx context.Context) (int, error) {
				info := CurrentStep(sctx)
				keys.Store(info.Key, true)
				if info.Attempt < 5 {
					return 0, fmt.Errorf("attempt %d of run attempt %d", info.Attempt, ctx.Attempt())
				}
				return info.Attempt, nil
			}, RetryPolicy{MaxAttempts: 2, Backoff: time.Millisecond})
		})
		run := begin(k, wf, struct{}{})
		if got := resultOf(k, run); got != 5 {
			t.Errorf("result %d, want 5: two attempts in each of two attempts of the run, then one", got)
		}
		if good.Load() != 1 || tx.Load() != 1 {
			t.Errorf("good steps were executed %d and %d times, want once", good.Load(), tx.Load())
		}
		info, _ := run.Info(k.ctx)
		if info.Attempts != 2 {
			t.Errorf("%d attempts failed, want 2", info.Attempts)
		}
		n := 0
		keys.Range(func(any, any) bool { n++; return true })
		if n != 1 {
			t.Errorf("%d idempotency keys for one step, want 1", n)
		}
		if bad := k.steps(run.ID())["bad"]; len(bad) != 5 || bad[1].Error != "attempt 2 of run attempt 1" || bad[2].Error != "attempt 3 of run attempt 2" {
			t.Errorf("attempts of the step: %+v", bad)
		}
	})
	t.Run("WaitsPendingAndWakeUpsDoNotMoveTheBackoff", func(t *testing.T) {
		k := newKit(t)
		wf := Define[struct{}, int]("wf", RetryPolicy{MaxAttempts: 2, Backoff: time.Hour})
		serve(k, wf, func(Context, struct{}) (int, error) { return 0, errors.New("bro\x00ken \xff") })
		run := begin(k, wf, struct{}{})
		var info RunInfo
		waitFor(t, "the first attempt failed", func() bool {
			info, _ = run.Info(k.ctx)
			return info.Attempts == 1
		})
		if info.Status != StatusPending || info.WaitingOn != "retry" || info.Kind != KindUnknown || info.Error != "bro\ufffdken \ufffd" {
			t.Errorf("run waits as %+v", info)
		}
		k.wake(run.ID())
		if after, _ := run.Info(k.ctx); !after.AvailableAt.Equal(info.AvailableAt) || time.Until(info.AvailableAt) < 30*time.Minute {
			t.Errorf("available at %v, then %v; want a backoff of an hour", info.AvailableAt, after.AvailableAt)
		}
	})
	t.Run("ExhaustedIsFailed", func(t *testing.T) {
		k := newKit(t)
		wf := Define[struct{}, int]("wf", RetryPolicy{MaxAttempts: 2, Backoff: time.Millisecond})
		var calls atomic.Int64
		const declined Kind = "card_declined"
		serve(k, wf, func(Context, struct{}) (int, error) { return 0, fmt.Errorf("no %d: %w", calls.Add(1), declined) })
		re := failureOf(k, begin(k, wf, struct{}{}), StatusFailed)
		if calls.Load() != 2 || !errors.Is(re, declined) || re.Message != "no 2: card_declined" || re.Workflow != "wf" {
			t.Errorf("after %d calls: %+v", calls.Load(), re)
		}
	})
}

func TestRunFailsForGood(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		fn   func(Context) (any, error)
		kind Kind
		text string
	}{
		{"Permanent", func(Context) (any, error) { return nil, Permanent(errors.New("never")) }, KindUnknown, "never"},
		{"PermanentTimeout", func(Context) (any, error) { return nil, Permanent(fmt.Errorf("late: %w", KindTimeout)) }, KindTimeout, "late"},
		{"KindThatIs", func(Context) (any, error) { return nil, fmt.Errorf("x: %w", KindValidation) }, KindValidation, "x"},
		{"PermanentStep", func(ctx Context) (any, error) {
			return nil, Do(ctx, "s", func(context.Context) error { return Permanent(errors.New("gone")) })
		}, KindUnknown, "gone"},
		{"Panic", func(Context) (any, error) { panic("ouch") }, KindPanic, "ouch"},
		{"NilPanic", func(Context) (any, error) { panic(nil) }, KindPanic, "nil"}, //nolint:govet // on purpose
		{"ErrorPanic", func(Context) (any, error) { panic(errors.New("ouch")) }, KindPanic, "ouch"},
		{"PanicWhoseTextPanics", func(Context) (any, error) { panic(evil{}) }, KindPanic, "evil"},
		{"ErrorWhoseTextPanics", func(Context) (any, error) { return nil, Permanent(evil{}) }, KindUnknown, "evil"},
		{"PanicInABranch", func(ctx Context) (any, error) {
			return Go(ctx, "b", func(Context) (any, error) { panic("ouch") }).Result(ctx)
		}, KindPanic, "ouch"},
		{"Goexit", func(Context) (any, error) { runtime.Goexit(); return nil, nil }, KindPanic, "Goexit"},
		{"GoexitInAStep", func(ctx Context) (any, error) {
			return nil, Do(ctx, "s", func(context.Context) error { runtime.Goexit(); return nil })
		}, KindPanic, "Goexit"},
		{"GoexitInAStepTx", func(ctx Context) (any, error) {
			return nil, DoTx(ctx, "s", func(context.Context, pgx.Tx) error { runtime.Goexit(); return nil })
		}, KindPanic, "Goexit"},
		{"GoexitInABranch", func(ctx Context) (any, error) {
			return Go(ctx, "b", func(Context) (any, error) { runtime.Goexit(); return nil, nil }).Result(ctx)
		}, KindPanic, "Goexit"},
		{"ResultThatDoesNotEncode", func(Context) (any, error) { return make(chan int), nil }, KindValidation, "chan int"},
		{"ResultTooLarge", func(Context) (any, error) { return strings.Repeat("x", 4<<20), nil }, KindValidation, "4194306"},
		{"HugeError", func(Context) (any, error) { return nil, Permanent(errors.New(strings.Repeat("é", 2<<20))) }, KindUnknown, "truncated"},
		{"EmptyError", func(Context) (any, error) { return nil, Permanent(errors.New("")) }, KindUnknown, "without a text"},
		{"HostileKind", func(Context) (any, error) { return nil, Permanent(Kind("a\x00b\xff")) }, "a\ufffdb\ufffd", "a"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k := newKit(t)
			wf := Define[struct{}, any]("wf", RetryPolicy{MaxAttempts: 5, Backoff: time.Millisecond})
			var calls atomic.Int64
			serve(k, wf, func(ctx Context, _ struct{}) (any, error) {
				calls.Add(1)
				return tt.fn(ctx)
			})
			re := failureOf(k, begin(k, wf, struct{}{}), StatusFailed)
			if re.Kind != tt.kind || !strings.Contains(re.Message, tt.text) {
				t.Errorf("kind %q, message %.200q; want %q, …%q…", re.Kind, re.Message, tt.kind, tt.text)
			}
			if calls.Load() != 1 {
				t.Errorf("%d attempts of the run, want 1", calls.Load())
			}
		})
	}
}

// An evil error panics when asked for its text, with a value that does so too.
type evil struct{}

func (evil) Error() string  { panic(evil{}) }
func (evil) String() string { panic(evil{}) }

func TestInputThatNoLongerDecodes(t *testing.T) {
	k := newKit(t)
	run := begin(k, Define[string, int]("wf"), "twelve")
	serve(k, Define[int, int]("wf"), func(_ Context, n int) (int, error) { return n, nil })
	re := failureOf(k, run, StatusFailed)
	if re.Kind != KindBadInput || !strings.Contains(re.Message, "int") {
		t.Errorf("got %+v", re)
	}
	if info, _ := run.Info(k.ctx); string(info.Input) != `"twelve"` {
		t.Errorf("input is %s; it must be kept", info.Input)
	}
}

func TestResume(t *testing.T) {
	k := newKit(t)
	wf := Define[struct{}, int]("wf", noRetry)
	var good, bad atomic.Int64
	var broken atomic.Bool
	broken.Store(true)
	serve(k, wf, func(ctx Context, _ struct{}) (int, error) {
		a, err := Step(ctx, "good", once(&good, 1))
		if err != nil {
			return 0, err
		}
		b, err := Step(ctx, "bad", func(context.Context) (int, error) {
			bad.Add(1)
			if broken.Load() {
				return 0, Permanent(errors.New("down"))
			}
			return 2, nil
		})
		return a + b + 10*ctx.Attempt(), err
	})
	run := begin(k, wf, struct{}{}, ID("x"))
	failureOf(k, run, StatusFailed)
	broken.Store(false)
	if err := k.c.Resume(k.ctx, ID("x")); err != nil {
		t.Fatal(err)
	}
	if got := resultOf(k, run); got != 23 || good.Load() != 1 || bad.Load() != 2 {
		t.Errorf("result %d after %d and %d calls; want 23 after 1 and 2", got, good.Load(), bad.Load())
	}
	if err := k.c.Resume(k.ctx, run.ID()); !errors.Is(err, ErrRunFinished) {
		t.Errorf("Resume of a completed run: %v", err)
	}
	if err := k.c.Resume(k.ctx, ID("nobody")); !errors.Is(err, ErrRunNotFound) {
		t.Errorf("Resume of nothing: %v", err)
	}
	waiting := begin(k, wf, struct{}{}, ID("x"), Delay(time.Hour))
	if err := k.c.Resume(k.ctx, waiting.ID()); !errors.Is(err, ErrRunActive) {
		t.Errorf("Resume of an active run: %v", err)
	}
}

func TestResumeOfATakenIDIsAConflict(t *testing.T) {
	k := newKit(t)
	wf := Define[int, int]("wf", noRetry)
	serve(k, wf, func(_ Context, n int) (int, error) { return 0, errors.New("no") })
	first := begin(k, wf, 1, ID("x"))
	failureOf(k, first, StatusFailed)
	begin(k, wf, 2, ID("x"), Delay(time.Hour))
	if err := k.c.Resume(k.ctx, first.ID()); !errors.Is(err, ErrIDConflict) {
		t.Errorf("got %v", err)
	}
	tx, err := k.pool.Begin(k.ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(k.ctx)
	if err := k.c.Resume(k.ctx, first.ID(), InTx(tx)); !errors.Is(err, ErrIDConflict) {
		t.Errorf("got %v", err)
	}
	if _, err := tx.Exec(k.ctx, "SELECT 1"); err != nil {
		t.Errorf("the conflict broke the caller's transaction: %v", err)
	}
}

func TestNondeterminism(t *testing.T) {
	t.Parallel()
	// Each second code meets what the first has recorded, and after a rollback to the first the run goes on.
	first := func(ctx Context) (int, error) {
		n, err := Step(ctx, "work", func(context.Context) (int, error) { return 7, nil })
		if err != nil {
			return 0, err
		}
		if _, err := Map(ctx, "items", []int{1, 2}, func(_ Context, n int) (int, error) { return n, nil }); err != nil {
			return 0, err
		}
		return n, Sleep(ctx, "rest", time.Hour)
	}
	for _, tt := range []struct {
		name   string
		second func(Context) error
		says   []string
	}{
		{"StepBecameSleep", func(ctx Context) error { return Sleep(ctx, "work", time.Second) }, []string{`"work"`, "a step", "a sleep"}},
		{"SleepBecameStep", func(ctx Context) error { return Do(ctx, "rest", func(context.Context) error { return nil }) }, []string{`"rest"`, "a sleep", "a step"}},
		{"GroupBecameStep", func(ctx Context) error { return Do(ctx, "items", func(context.Context) error { return nil }) }, []string{`"items"`, "a group"}},
		{"ResultNoLongerDecodes", func(ctx Context) error {
			_, err := Step(ctx, "work", func(context.Context) ([]string, error) { return nil, nil })
			return err
		}, []string{`"work"`, "[]string"}},
		{"ItemChanged", func(ctx Context) error {
			_, err := Map(ctx, "items", []int{1, 3}, func(_ Context, n int) (int, error) { return n, nil })
			return err
		}, []string{"item 1", `"items"`}},
		{"ItemAdded", func(ctx Context) error {
			_, err := Map(ctx, "items", []int{1, 2, 3}, func(_ Context, n int) (int, error) { return n, nil })
			return err
		}, []string{`"items"`, "2", "3"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k := newKit(t)
			wf := Define[struct{}, int]("wf", RetryPolicy{MaxAttempts: 5, Backoff: time.Millisecond})
			stop := serve(k, wf, func(ctx Context, _ struct{}) (int, error) { return first(ctx) })
			run := begin(k, wf, struct{}{})
			k.waitStatus(run.ID(), StatusSleeping)
			stop()
			stop = serve(k, wf, func(ctx Context, _ struct{}) (int, error) {
				if err := tt.second(ctx); err != nil {
					t.Errorf("workflow code saw %v", err)
				}
				t.Error("workflow code went on")
				return 0, nil
			})
			k.wake(run.ID())
			re := failureOf(k, run, StatusFailed)
			if re.Kind != KindNondeterminism {
				t.Errorf("kind %q: %v", re.Kind, re)
			}
			mustContain(t, re, append(tt.says, "Resume")...)
			stop()
			serve(k, wf, func(ctx Context, _ struct{}) (int, error) { return first(ctx) })
			if err := k.c.Resume(k.ctx, run.ID()); err != nil {
				t.Fatal(err)
			}
			k.waitStatus(run.ID(), StatusSleeping)
			k.forward(run.ID())
			if got := resultOf(k, run); got != 7 {
				t.Errorf("result %d, want 7", got)
			}
		})
	}
}

func TestWakeUpIsNotLost(t *testing.T) {
	t.Parallel()
	t.Run("WhileSuspended", func(t *testing.T) {
		k := newKit(t)
		wf := Define[struct{}, int]("wf")
		var executions atomic.Int64
		serve(k, wf, func(ctx Context, _ struct{}) (int, error) {
			executions.Add(1)
			return 1, Sleep(ctx, "long", time.Hour)
		})
		run := begin(k, wf, struct{}{})
		for i := range int64(3) {
			waitFor(t, "executed", func() bool { return executions.Load() == i+1 })
			k.waitStatus(run.ID(), StatusSleeping)
			k.wake(run.ID())
		}
	})
	t.Run("BetweenClaimAndSuspension", func(t *testing.T) {
		k := newKit(t)
		wf := Define[struct{}, string]("wf")
		w := newTestWorker(t, k.c, told)
		send := func(run RunID, v string) { // nobody is told: the suspension itself must find it
			if _, err := k.c.store.Signal(k.ctx, nil, store.Message{RunID: uuid.MustParse(string(run)), Name: "approved", ID: v, Payload: []byte(`"` + v + `"`)}); err != nil {
				t.Error(err)
			}
		}
		var suspended atomic.Int64
		w.failpoint = func(point string, run uuid.UUID) {
			if point == "suspend" && suspended.Add(1) == 1 {
				send(RunID(run.String()), "c")
			}
		}
		Handle(w, wf, func(ctx Context, _ struct{}) (string, error) {
			if err := Do(ctx, "send", func(context.Context) error { send(ctx.RunID(), "b"); return nil }); err != nil {
				return "", err
			}
			return reading(3, approved)(ctx, struct{}{})
		})
		run := begin(k, wf, struct{}{}, approved.With("a"))
		startWorker(t, w)
		if got := resultOf(k, run); got != "a b c" {
			t.Errorf("got %q", got)
		}
		if suspended.Load() == 0 {
			t.Error("the run was never suspended")
		}
	})
}

func TestEarliestWaitWakes(t *testing.T) {
	k := newKit(t)
	wf := Define[struct{}, []string]("wf")
	var mu sync.Mutex
	var order []string
	serve(k, wf, func(ctx Context, _ struct{}) ([]string, error) {
		nap := func(name string, d time.Duration) *Future[int] {
			return Go(ctx, name, func(ctx Context) (int, error) {
				if err := Sleep(ctx, "nap", d); err != nil {
					return 0, err
				}
				return 0, Do(ctx, "note", func(context.Context) error {
					mu.Lock()
					defer mu.Unlock()
					order = append(order, name)
					return nil
				})
			})
		}
		futures := []*Future[int]{nap("c", time.Hour), nap("a", 250*time.Millisecond), nap("b", 600*time.Millisecond)}
		for _, f := range futures {
			if _, err := f.Result(ctx); err != nil {
				return nil, err
			}
		}
		mu.Lock()
		defer mu.Unlock()
		return order, nil
	})
	run := begin(k, wf, struct{}{})
	waitFor(t, "the shorter sleeps are over", func() bool { return len(k.steps(run.ID())["b/note"]) == 1 })
	if info := k.waitStatus(run.ID(), StatusSleeping); info.WaitingOn != "timer c/nap" || time.Until(info.AvailableAt) < 30*time.Minute {
		t.Errorf("waits on %q until %v", info.WaitingOn, info.AvailableAt)
	}
	k.forward(run.ID())
	if got := fmt.Sprint(resultOf(k, run)); got != "[a b c]" {
		t.Errorf("order %s", got)
	}
}

func TestDeferredCallsAtSuspension(t *testing.T) {
	k := newKit(t)
	wf := Define[struct{}, int]("wf")
	var deferred, executed, recovered atomic.Int64
	serve(k, wf, func(ctx Context, _ struct{}) (out int, err error) {
		defer func() {
			if deferred.Add(1) == 1 {
				panic("a deferred call that panics does no harm")
			}
		}()
		defer func() {
			if v := recover(); v != nil {
				recovered.Add(1)
			}
		}()
		defer func() {
			if err != nil {
				t.Errorf("a deferred call sees %v", err)
			}
		}()
		if out == 0 && len(k.steps(ctx.RunID())) == 0 {
			defer func() { // while the run leaves memory
				_ = Do(ctx, "undo", func(context.Context) error { executed.Add(1); return nil })
				t.Error("a durable call in a deferred function returned")
			}()
		}
		return 1, Sleep(ctx, "long", 300*time.Millisecond)
	})
	run := begin(k, wf, struct{}{})
	if got := resultOf(k, run); got != 1 {
		t.Errorf("result %d", got)
	}
	if deferred.Load() != 2 || executed.Load() != 0 || recovered.Load() != 0 {
		t.Errorf("deferred calls ran %d times, executed %d steps, recovered %d times; want 2, 0, 0", deferred.Load(), executed.Load(), recovered.Load())
	}
}

func TestCancel(t *testing.T) {
	t.Parallel()
	cancelled := func(k *kit, run *Run[int]) {
		k.t.Helper()
		re := failureOf(k, run, StatusCancelled)
		if !errors.Is(re, KindCancelled) {
			k.t.Errorf("kind %q", re.Kind)
		}
		if err := run.Cancel(k.ctx); err != nil {
			k.t.Errorf("the second Cancel: %v", err)
		}
		if info, _ := run.Info(k.ctx); !info.AvailableAt.IsZero() || info.EndedAt.IsZero() {
			k.t.Errorf("the run's row: %+v", info)
		}
	}
	t.Run("Pending", func(t *testing.T) {
		k := newKit(t)
		run := begin(k, Define[int, int]("wf"), 1, ID("x"))
		if err := k.c.Cancel(k.ctx, ID("x")); err != nil {
			t.Fatal(err)
		}
		cancelled(k, run)
		if again := begin(k, Define[int, int]("wf"), 2, ID("x")); again.Existed() {
			t.Error("the ID of a cancelled run is still taken")
		}
	})
	t.Run("Sleeping", func(t *testing.T) {
		k := newKit(t)
		wf := Define[int, int]("wf")
		serve(k, wf, func(ctx Context, _ int) (int, error) { return 0, Sleep(ctx, "long", time.Hour) })
		run := begin(k, wf, 1)
		k.waitStatus(run.ID(), StatusSleeping)
		if err := run.Cancel(k.ctx); err != nil {
			t.Fatal(err)
		}
		cancelled(k, run)
	})
	t.Run("Running", func(t *testing.T) {
		k := newKit(t)
		wf := Define[int, int]("wf")
		inStep, cause, doneIn := make(chan struct{}), make(chan error, 1), make(chan time.Time, 1)
		var after atomic.Int64
		stop := serve(k, wf, func(ctx Context, _ int) (int, error) {
			_, err := Step(ctx, "long", func(sctx context.Context) (int, error) {
				close(inStep)
				<-sctx.Done()
				doneIn <- time.Now()
				cause <- context.Cause(sctx)
				return 1, nil // a success, but after the end
			})
			after.Add(1)
			return 0, err
		})
		run := begin(k, wf, 1)
		<-inStep
		begun := time.Now()
		if err := run.Cancel(k.ctx); err != nil {
			t.Fatal(err)
		}
		if d := (<-doneIn).Sub(begun); d > 2*time.Second {
			t.Errorf("the step's context ended after %v", d)
		}
		if err := <-cause; !errors.Is(err, KindCancelled) {
			t.Errorf("cause %v", err)
		}
		cancelled(k, run)
		stop()
		if steps := k.steps(run.ID()); len(steps) != 0 {
			t.Errorf("recorded after the end: %+v", steps)
		}
		if after.Load() != 0 {
			t.Error("workflow code went on")
		}
	})
	t.Run("Finished", func(t *testing.T) {
		k := newKit(t)
		wf := Define[int, int]("wf", noRetry)
		serve(k, wf, func(_ Context, n int) (int, error) {
			if n == 0 {
				return 0, errors.New("no")
			}
			return n, nil
		})
		for n := range 2 {
			run := begin(k, wf, n)
			_, _ = run.Result(k.ctx)
			if err := run.Cancel(k.ctx); !errors.Is(err, ErrRunFinished) {
				t.Errorf("Cancel of a finished run: %v", err)
			}
		}
	})
	t.Run("InTx", func(t *testing.T) {
		k := newKit(t)
		run := begin(k, Define[int, int]("wf"), 1, ID("x"))
		for _, commit := range []bool{false, true} {
			tx, err := k.pool.Begin(k.ctx)
			if err != nil {
				t.Fatal(err)
			}
			if err := k.c.Cancel(k.ctx, ID("x"), InTx(tx)); err != nil {
				t.Fatal(err)
			}
			if info, _ := run.Info(k.ctx); info.Status != StatusPending {
				t.Errorf("before the end of the transaction the run is %s", info.Status)
			}
			if commit {
				err = tx.Commit(k.ctx)
			} else {
				err = tx.Rollback(k.ctx)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		cancelled(k, run)
	})
	t.Run("ThenResume", func(t *testing.T) {
		k := newKit(t)
		wf := Define[int, int]("wf")
		var calls atomic.Int64
		serve(k, wf, func(ctx Context, n int) (int, error) {
			if _, err := Step(ctx, "once", once(&calls, 1)); err != nil {
				return 0, err
			}
			return ctx.Attempt(), Sleep(ctx, "long", time.Hour)
		})
		run := begin(k, wf, 1)
		k.waitStatus(run.ID(), StatusSleeping)
		if err := run.Cancel(k.ctx); err != nil {
			t.Fatal(err)
		}
		if err := k.c.Resume(k.ctx, run.ID()); err != nil {
			t.Fatal(err)
		}
		k.waitStatus(run.ID(), StatusSleeping)
		k.forward(run.ID())
		if got := resultOf(k, run); got != 2 || calls.Load() != 1 {
			t.Errorf("attempt %d, %d calls of the step; want 2 and 1", got, calls.Load())
		}
	})
}

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
		if err := k.c.Resume(k.ctx, run.ID()); err != nil {
			t.Fatal(err)
		}
		if got := resultOf(k, run); got != 5 {
			t.Errorf("result %d", got)
		}
	})
}

func TestStepIDsTooLongForTheIndexFailTheRun(t *testing.T) {
	k := newKit(t)
	wf := Define[struct{}, int]("wf", RetryPolicy{MaxAttempts: 5, Backoff: time.Millisecond})
	var deep func(ctx Context, level int) (int, error)
	deep = func(ctx Context, level int) (int, error) {
		name := ""
		for i := 0; len(name) < 250; i++ { // nothing to compress
			name += fmt.Sprintf("%x", hashOf([]byte(fmt.Sprint(level, i))))
		}
		if name = name[:250]; level == 0 {
			return Step(ctx, name, func(context.Context) (int, error) { return 1, nil })
		}
		return Go(ctx, name, func(ctx Context) (int, error) { return deep(ctx, level-1) }).Result(ctx)
	}
	serve(k, wf, func(ctx Context, _ struct{}) (int, error) { return deep(ctx, 30) })
	if re := failureOf(k, begin(k, wf, struct{}{}), StatusFailed); re.Kind != KindDatabase {
		t.Errorf("got %+v", re)
	}
}
