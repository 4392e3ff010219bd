package language_test

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

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/store"
)

func TestFailedAttemptOfARun(t *testing.T) {
	t.Parallel()
	t.Run("KeepsGoodStepsAndForgetsFinalFailures", func(t *testing.T) {
		k := kit.New(t)
		wf := kagzi.Define[struct{}, int]("wf", kit.Soon)
		var good, tx, slept atomic.Int64
		var keys sync.Map
		kit.Serve(k, wf, func(ctx kagzi.Context, _ struct{}) (int, error) {
			if _, err := kagzi.Step(ctx, "good", kit.Once(&good, 1)); err != nil {
				return 0, err
			}
			if err := kagzi.Sleep(ctx, "nap", time.Millisecond); err != nil {
				return 0, err
			}
			slept.Add(1)
			f := kagzi.Go(ctx, "branch", func(ctx kagzi.Context) (int, error) {
				return kagzi.Step(ctx, "good", kit.Once(&tx, 2))
			})
			if _, err := f.Result(ctx); err != nil {
				return 0, err
			}
			return kagzi.Step(ctx, "bad", func(sctx context.Context) (int, error) {
				info := kagzi.CurrentStep(sctx)
				keys.Store(info.Key, true)
				if info.Attempt < 5 {
					return 0, fmt.Errorf("attempt %d of run attempt %d", info.Attempt, ctx.Attempt())
				}
				return info.Attempt, nil
			}, kagzi.RetryPolicy{MaxAttempts: 2, Backoff: time.Millisecond})
		})
		run := kit.Begin(k, wf, struct{}{})
		if got := kit.ResultOf(k, run); got != 5 {
			t.Errorf("result %d, want 5: two attempts in each of two attempts of the run, then one", got)
		}
		if good.Load() != 1 || tx.Load() != 1 {
			t.Errorf("good steps were executed %d and %d times, want once", good.Load(), tx.Load())
		}
		info, _ := run.Info(k.Ctx)
		if info.Attempts != 2 {
			t.Errorf("%d attempts failed, want 2", info.Attempts)
		}
		n := 0
		keys.Range(func(any, any) bool { n++; return true })
		if n != 1 {
			t.Errorf("%d idempotency keys for one step, want 1", n)
		}
		if bad := k.Steps(run.ID())["bad"]; len(bad) != 5 || bad[1].Error != "attempt 2 of run attempt 1" ||
			bad[2].Error != "attempt 3 of run attempt 2" {
			t.Errorf("attempts of the step: %+v", bad)
		}
	})
	t.Run("WaitsPendingAndWakeUpsDoNotMoveTheBackoff", func(t *testing.T) {
		k := kit.New(t)
		wf := kagzi.Define[struct{}, int]("wf", kagzi.RetryPolicy{MaxAttempts: 2, Backoff: time.Hour})
		kit.Serve(k, wf, func(kagzi.Context, struct{}) (int, error) { return 0, errors.New("bro\x00ken \xff") })
		run := kit.Begin(k, wf, struct{}{})
		var info kagzi.RunInfo
		await.True(t, "the first attempt failed", func() bool {
			info, _ = run.Info(k.Ctx)
			return info.Attempts == 1
		})
		if info.Status != kagzi.StatusPending || info.WaitingOn.String() != "retry" || info.Kind != kind.Unknown ||
			info.Error != "bro\ufffdken \ufffd" {
			t.Errorf("run waits as %+v", info)
		}
		k.Wake(run.ID())
		if after, _ := run.Info(k.Ctx); !after.AvailableAt.Equal(info.AvailableAt) ||
			time.Until(info.AvailableAt) < 30*time.Minute {
			t.Errorf("available at %v, then %v; want a backoff of an hour", info.AvailableAt, after.AvailableAt)
		}
	})
	t.Run("ExhaustedIsFailed", func(t *testing.T) {
		k := kit.New(t)
		wf := kagzi.Define[struct{}, int]("wf", kagzi.RetryPolicy{MaxAttempts: 2, Backoff: time.Millisecond})
		var calls atomic.Int64
		const declined kind.Kind = "card_declined"
		kit.Serve(k, wf, func(kagzi.Context, struct{}) (int, error) {
			return 0, fmt.Errorf("no %d: %w", calls.Add(1), declined)
		})
		re := kit.FailureOf(k, kit.Begin(k, wf, struct{}{}), kagzi.StatusFailed)
		if calls.Load() != 2 || !errors.Is(re, declined) || re.Message != "no 2: card_declined" || re.Workflow != "wf" {
			t.Errorf("after %d calls: %+v", calls.Load(), re)
		}
	})
}

func TestRunFailsForGood(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		fn   func(kagzi.Context) (any, error)
		kind kind.Kind
		text string
	}{
		{
			"Permanent", func(kagzi.Context) (any, error) { return nil, kagzi.Permanent(errors.New("never")) },
			kind.Unknown, "never",
		},
		{"PermanentTimeout", func(kagzi.Context) (any, error) {
			return nil, kagzi.Permanent(fmt.Errorf("late: %w", kind.Timeout))
		}, kind.Timeout, "late"},
		{
			"KindThatIs", func(kagzi.Context) (any, error) { return nil, fmt.Errorf("x: %w", kind.Validation) },
			kind.Validation, "x",
		},
		{"PermanentStep", func(ctx kagzi.Context) (any, error) {
			return nil, kagzi.Do(ctx, "s", func(context.Context) error { return kagzi.Permanent(errors.New("gone")) })
		}, kind.Unknown, "gone"},
		{"Panic", func(kagzi.Context) (any, error) { panic("ouch") }, kind.Panic, "ouch"},
		{"NilPanic", func(kagzi.Context) (any, error) { panic(nil) }, kind.Panic, "nil"}, //nolint:govet // on purpose
		{"ErrorPanic", func(kagzi.Context) (any, error) { panic(errors.New("ouch")) }, kind.Panic, "ouch"},
		{"PanicWhoseTextPanics", func(kagzi.Context) (any, error) { panic(evil{}) }, kind.Panic, "evil"},
		{
			"ErrorWhoseTextPanics", func(kagzi.Context) (any, error) { return nil, kagzi.Permanent(evil{}) },
			kind.Unknown, "evil",
		},
		{"PanicInABranch", func(ctx kagzi.Context) (any, error) {
			return kagzi.Go(ctx, "b", func(kagzi.Context) (any, error) { panic("ouch") }).Result(ctx)
		}, kind.Panic, "ouch"},
		{"Goexit", func(kagzi.Context) (any, error) { runtime.Goexit(); return nil, nil }, kind.Panic, "Goexit"},
		{"GoexitInAStep", func(ctx kagzi.Context) (any, error) {
			return nil, kagzi.Do(ctx, "s", func(context.Context) error { runtime.Goexit(); return nil })
		}, kind.Panic, "Goexit"},
		{"GoexitInAStepTx", func(ctx kagzi.Context) (any, error) {
			return nil, kagzi.DoTx(ctx, "s", func(context.Context, pgx.Tx) error { runtime.Goexit(); return nil })
		}, kind.Panic, "Goexit"},
		{"GoexitInABranch", func(ctx kagzi.Context) (any, error) {
			return kagzi.Go(ctx, "b", func(kagzi.Context) (any, error) { runtime.Goexit(); return nil, nil }).
				Result(ctx)
		}, kind.Panic, "Goexit"},
		{
			"ResultThatDoesNotEncode", func(kagzi.Context) (any, error) { return make(chan int), nil }, kind.Validation,
			"chan int",
		},
		{
			"ResultTooLarge", func(kagzi.Context) (any, error) { return strings.Repeat("x", 4<<20), nil },
			kind.Validation,
			"4194306",
		},
		{"HugeError", func(kagzi.Context) (any, error) {
			return nil, kagzi.Permanent(errors.New(strings.Repeat("é", 2<<20)))
		}, kind.Unknown, "truncated"},
		{
			"EmptyError", func(kagzi.Context) (any, error) { return nil, kagzi.Permanent(errors.New("")) },
			kind.Unknown,
			"without a text",
		},
		{
			"HostileKind", func(kagzi.Context) (any, error) { return nil, kagzi.Permanent(kind.Kind("a\x00b\xff")) },
			"a\ufffdb\ufffd", "a",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k := kit.New(t)
			wf := kagzi.Define[struct{}, any]("wf", kagzi.RetryPolicy{MaxAttempts: 5, Backoff: time.Millisecond})
			var calls atomic.Int64
			kit.Serve(k, wf, func(ctx kagzi.Context, _ struct{}) (any, error) {
				calls.Add(1)
				return tt.fn(ctx)
			})
			re := kit.FailureOf(k, kit.Begin(k, wf, struct{}{}), kagzi.StatusFailed)
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
	k := kit.New(t)
	run := kit.Begin(k, kagzi.Define[string, int]("wf"), "twelve")
	kit.Serve(k, kagzi.Define[int, int]("wf"), func(_ kagzi.Context, n int) (int, error) { return n, nil })
	re := kit.FailureOf(k, run, kagzi.StatusFailed)
	if re.Kind != kind.BadInput {
		t.Errorf("got %+v", re)
	}
	kit.MustContain(t, re, "into int", "deploy code", "Resume", "Restart it with another admin.NewInput")
	if info, _ := run.Info(k.Ctx); string(info.Input) != `"twelve"` {
		t.Errorf("input is %s; it must be kept", info.Input)
	}
}

func TestWakeUpIsNotLost(t *testing.T) {
	t.Parallel()
	t.Run("WhileSuspended", func(t *testing.T) {
		k := kit.New(t)
		wf := kagzi.Define[struct{}, int]("wf")
		var executions atomic.Int64
		kit.Serve(k, wf, func(ctx kagzi.Context, _ struct{}) (int, error) {
			executions.Add(1)
			return 1, kagzi.Sleep(ctx, "long", time.Hour)
		})
		run := kit.Begin(k, wf, struct{}{})
		for i := range int64(3) {
			await.True(t, "executed", func() bool { return executions.Load() == i+1 })
			k.WaitStatus(run.ID(), kagzi.StatusSleeping)
			k.Wake(run.ID())
		}
	})
	t.Run("BetweenClaimAndSuspension", func(t *testing.T) {
		k := kit.New(t)
		wf := kagzi.Define[struct{}, string]("wf")
		w := kit.NewWorker(t, k.Client, kit.NotifiedOnly)
		send := func(run kagzi.RunID, v string) { // without a notification: the suspension itself must find it
			if _, err := store.New(k.Pool, "default").Messages.Send(k.Ctx, nil,
				store.Message{
					RunID: uuid.MustParse(string(run)), Name: "approved", ID: v,
					Payload: []byte(`"` + v + `"`),
				}); err != nil {
				t.Error(err)
			}
		}
		var suspended atomic.Int64
		kit.Failpoint(t, w, func(point string, run uuid.UUID) {
			if point == "suspend" && suspended.Add(1) == 1 {
				send(kagzi.RunID(run.String()), "c")
			}
		})
		kagzi.Handle(w, wf, func(ctx kagzi.Context, _ struct{}) (string, error) {
			if err := kagzi.Do(ctx, "send", func(context.Context) error {
				send(ctx.RunID(), "b")
				return nil
			}); err != nil {
				return "", err
			}
			return reading(3, kit.Approved)(ctx, struct{}{})
		})
		run := kit.Begin(k, wf, struct{}{}, kit.Approved.With("a"))
		kit.StartWorker(t, w)
		if got := kit.ResultOf(k, run); got != "a b c" {
			t.Errorf("got %q", got)
		}
		if suspended.Load() == 0 {
			t.Error("the run was never suspended")
		}
	})
}

func TestEarliestWaitWakes(t *testing.T) {
	k := kit.New(t)
	wf := kagzi.Define[struct{}, []string]("wf")
	var mu sync.Mutex
	var order []string
	kit.Serve(k, wf, func(ctx kagzi.Context, _ struct{}) ([]string, error) {
		nap := func(name string, d time.Duration) *kagzi.Future[int] {
			return kagzi.Go(ctx, name, func(ctx kagzi.Context) (int, error) {
				if err := kagzi.Sleep(ctx, "nap", d); err != nil {
					return 0, err
				}
				return 0, kagzi.Do(ctx, "note", func(context.Context) error {
					mu.Lock()
					defer mu.Unlock()
					order = append(order, name)
					return nil
				})
			})
		}
		futures := []*kagzi.Future[int]{nap("c", 3*time.Hour), nap("a", 50*time.Millisecond), nap("b", 2*time.Hour)}
		for _, f := range futures {
			if _, err := f.Result(ctx); err != nil {
				return nil, err
			}
		}
		mu.Lock()
		defer mu.Unlock()
		return order, nil
	})
	run := kit.Begin(k, wf, struct{}{})
	for i, name := range []string{"b", "c"} {
		var info kagzi.RunInfo
		await.True(t, "the earliest wait is that of "+name, func() bool {
			info = k.InfoOf(run)
			return info.Status == kagzi.StatusSleeping && strings.HasPrefix(info.WaitingOn.String(),
				"timer "+name+"/nap")
		})
		if left := time.Until(info.AvailableAt); left < time.Duration(i+1)*time.Hour ||
			left > time.Duration(i+2)*time.Hour {
			t.Errorf("waits for %s until %v", name, info.AvailableAt)
		}
		k.Exec(`UPDATE kagzi.step_runs SET wake_at = clock_timestamp() WHERE run_id = $1 AND step_id = $2`,
			string(run.ID()), name+"/nap")
		k.Wake(run.ID())
	}
	if got := fmt.Sprint(kit.ResultOf(k, run)); got != "[a b c]" {
		t.Errorf("order %s", got)
	}
}

func TestDeferredCallsAtSuspension(t *testing.T) {
	k := kit.New(t)
	wf := kagzi.Define[struct{}, int]("wf")
	var deferred, executed, recovered atomic.Int64
	kit.Serve(k, wf, func(ctx kagzi.Context, _ struct{}) (out int, err error) {
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
		if out == 0 && len(k.Steps(ctx.RunID())) == 0 {
			defer func() { // while the run leaves memory
				_ = kagzi.Do(ctx, "undo", func(context.Context) error { executed.Add(1); return nil })
				t.Error("a durable call in a deferred function returned")
			}()
		}
		return 1, kagzi.Sleep(ctx, "long", 300*time.Millisecond)
	})
	run := kit.Begin(k, wf, struct{}{})
	if got := kit.ResultOf(k, run); got != 1 {
		t.Errorf("result %d", got)
	}
	if deferred.Load() != 2 || executed.Load() != 0 || recovered.Load() != 0 {
		t.Errorf("deferred calls ran %d times, executed %d steps, recovered %d times; want 2, 0, 0", deferred.Load(),
			executed.Load(), recovered.Load())
	}
}

// A path that nothing compresses fits into the indexes up to its limit, and is refused beyond that, before its step is
// executed.
func TestPathsThatDoNotCompress(t *testing.T) {
	t.Parallel()
	k := kit.NewWith(t, kagzi.ClientConfig{Namespace: hexOf(-1, 255)})
	wf := kagzi.Define[int, int]("wf", kagzi.RetryPolicy{MaxAttempts: 5, Backoff: time.Millisecond})
	var calls atomic.Int64
	var deep func(ctx kagzi.Context, level int) (int, error)
	deep = func(ctx kagzi.Context, level int) (int, error) {
		name := hexOf(level, 249)
		if level == 0 {
			return kagzi.Step(ctx, name, kit.Once(&calls, 1))
		}
		return kagzi.Go(ctx, name, func(ctx kagzi.Context) (int, error) { return deep(ctx, level-1) }).Result(ctx)
	}
	kit.Serve(k, wf, deep)
	if out := kit.ResultOf(k, kit.Begin(k, wf, 7)); out != 1 { // 1,999 bytes
		t.Errorf("result %d", out)
	}
	if re := kit.FailureOf(k, kit.Begin(k, wf, 8), kagzi.StatusFailed); re.Kind != kind.BadRequest {
		t.Errorf("got %+v", re)
	}
	if n := calls.Load(); n != 1 {
		t.Errorf("the steps were executed %d times", n)
	}
}

// hexOf returns so many bytes that differ for each n.
func hexOf(n, size int) (s string) {
	for i := 0; len(s) < size; i++ {
		s += fmt.Sprintf("%x", sha256.Sum256([]byte(fmt.Sprint(n, i))))[:32]
	}
	return s[:size]
}
