package kagzi

import (
	"context"
	"crypto/sha256"
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
	if re.Kind != KindBadInput {
		t.Errorf("got %+v", re)
	}
	mustContain(t, re, "into int", "deploy code", "Resume", "Restart it with another kagzi.NewInput")
	if info, _ := run.Info(k.ctx); string(info.Input) != `"twelve"` {
		t.Errorf("input is %s; it must be kept", info.Input)
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
			if _, err := store.New(k.pool, "default").Signal(k.ctx, nil, store.Message{RunID: uuid.MustParse(string(run)), Name: "approved", ID: v, Payload: []byte(`"` + v + `"`)}); err != nil {
				t.Error(err)
			}
		}
		var suspended atomic.Int64
		failpoint(t, w, func(point string, run uuid.UUID) {
			if point == "suspend" && suspended.Add(1) == 1 {
				send(RunID(run.String()), "c")
			}
		})
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
		futures := []*Future[int]{nap("c", 3*time.Hour), nap("a", 50*time.Millisecond), nap("b", 2*time.Hour)}
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
	for i, name := range []string{"b", "c"} {
		info := k.waitStatus(run.ID(), StatusSleeping, "timer "+name+"/nap")
		if left := time.Until(info.AvailableAt); left < time.Duration(i+1)*time.Hour || left > time.Duration(i+2)*time.Hour {
			t.Errorf("waits for %s until %v", name, info.AvailableAt)
		}
		k.exec(`UPDATE kagzi.step_runs SET wake_at = clock_timestamp() WHERE run_id = $1 AND step_id = $2`, string(run.ID()), name+"/nap")
		k.wake(run.ID())
	}
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

func TestStepIDsTooLongForTheIndexFailTheRun(t *testing.T) {
	k := newKit(t)
	wf := Define[struct{}, int]("wf", RetryPolicy{MaxAttempts: 5, Backoff: time.Millisecond})
	var deep func(ctx Context, level int) (int, error)
	deep = func(ctx Context, level int) (int, error) {
		name := ""
		for i := 0; len(name) < 250; i++ { // nothing to compress
			name += fmt.Sprintf("%x", sha256.Sum256([]byte(fmt.Sprint(level, i))))[:32]
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
