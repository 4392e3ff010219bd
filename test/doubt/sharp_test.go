package doubt_test

import (
	"context"
	"errors"
	"math"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/kind"
)

var goOn = kagzi.DefineSignal[int]("go on")

// paysBeside pays in one branch of a group, whose other branch fails after a signal in the run's first attempt.
func paysBeside(ctx kagzi.Context, pay func(context.Context) (int, error), opts ...kagzi.StepOption) (got int,
	err error,
) {
	err = kagzi.Parallel(ctx, "both", map[string]func(kagzi.Context) error{
		"pays": func(ctx kagzi.Context) (err error) {
			got, err = kagzi.Step(ctx, "pay", pay, append(opts, kagzi.AtMostOnce())...)
			return err
		},
		"fails": func(ctx kagzi.Context) error {
			if _, err := kagzi.WaitSignal(ctx, goOn); err != nil || ctx.Attempt() > 1 {
				return err
			}
			return errReset
		},
	})
	return got, err
}

func doubts(k *kit.Kit) []admin.Doubt {
	k.T.Helper()
	all, err := admin.New(k.Client).Runs.Doubts(k.Ctx, 0)
	if err != nil {
		k.T.Fatal(err)
	}
	return all
}

// An operator resolves a doubt for which nothing waits, while the next attempt of the run is about to wait for it: that
// stands, whatever Reconcile says.
func TestResolvedBeforeTheBranchComesAgain(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]kagzi.StepOption{
		"Alone": nil,
		"BesideReconcile": {kagzi.Reconcile(func(context.Context) (int, bool, error) {
			return 0, false, errReset
		})},
	} {
		t.Run(name, func(t *testing.T) {
			k := kit.New(t)
			p := &provider{does: always(0, errReset)}
			begun, open := make(chan struct{}), make(chan struct{})
			t.Cleanup(sync.OnceFunc(func() { close(open) }))
			var again sync.Once
			kit.Serve(k, refund, func(ctx kagzi.Context, _ struct{}) (int, error) {
				if ctx.Attempt() > 1 {
					_ = kagzi.Do(ctx, "check", func(context.Context) error {
						again.Do(func() {
							close(begun)
							<-open
						})
						return nil
					})
				}
				return paysBeside(ctx, p.pay, opts...)
			})
			run := kit.Begin(k, refund, struct{}{}, kagzi.RetryPolicy{MaxAttempts: 3, Backoff: 1000})
			k.WaitStatus(run, kagzi.StatusSleeping, "doubt both/pays/pay; signal go on")
			k.Signal(run, goOn.With(1))
			<-begun
			if err := admin.New(k.Client).Runs.Resolve(k.Ctx, run, "both/pays/pay", admin.Happened(7)); err != nil {
				t.Fatal(err)
			}
			open <- struct{}{}
			if got := kit.ResultOf(k, run); got != 7 {
				t.Errorf("got %d", got)
			}
			p.called(t, 1)
		})
	}
}

// A doubt of an epoch that is over stays in sight through all later ones, when the attempts before it are gone, too.
func TestContinueKeepsADoubt(t *testing.T) {
	k := kit.New(t)
	p := &provider{does: always(0, errReset)}
	loop := kagzi.Define[int, int]("loop")
	kit.Serve(k, loop, func(ctx kagzi.Context, n int) (int, error) {
		if n == 0 {
			_, _ = paysBeside(ctx, p.pay)
		}
		if _, err := kagzi.WaitSignal(ctx, goOn); err != nil || n == 3 {
			return n, err
		}
		return 0, kagzi.Continue(ctx, n+1)
	})
	run := kit.Begin(k, loop, 0)
	k.WaitStatus(run, kagzi.StatusSleeping, "doubt both/pays/pay; signal go on")
	if err := admin.New(k.Client).Runs.Resolve(k.Ctx, run, "both/pays/pay", admin.DidNotHappen()); err != nil {
		t.Fatal(err)
	}
	await.True(t, "the second attempt is in doubt", func() bool {
		d := doubts(k)
		return p.calls.Load() == 2 && len(d) == 1 && d[0].Attempt == 2
	})
	k.WaitStatus(run, kagzi.StatusSleeping, "doubt both/pays/pay; signal go on")
	for epoch := range 4 {
		k.Signal(run, goOn.With(epoch))
		await.True(t, "the run has come to the epoch", func() bool {
			return k.Count(`SELECT epoch FROM kagzi.workflow_runs`) == epoch &&
				k.InfoOf(run).WaitingOn.String() == "signal go on"
		})
		if d := doubts(k); len(d) != 1 || d[0].Step != "both/pays/pay" {
			t.Fatalf("in epoch %d these are in doubt: %+v", epoch, d)
		}
	}
	if err := admin.New(k.Client).Runs.Resolve(k.Ctx, run, "both/pays/pay", admin.Happened(7)); err != nil {
		t.Error(err)
	}
	if d := doubts(k); len(d) != 0 {
		t.Errorf("in doubt: %+v", d)
	}
	k.Signal(run, goOn.With(4))
	kit.ResultOf(k, run)
}

// The function has returned, or has exited, and what it did cannot be recorded.
func TestWhatCannotBeRecordedLeavesDoubt(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		fn   func(context.Context) (any, error)
		over bool // the run is over, because the goroutine has exited
	}{
		"NaN":      {func(context.Context) (any, error) { return math.NaN(), nil }, false},
		"TooLarge": {func(context.Context) (any, error) { return strings.Repeat("x", 5000), nil }, false},
		"Goexit": {func(context.Context) (any, error) {
			runtime.Goexit()
			return nil, nil
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			k := kit.NewWith(t, kagzi.ClientConfig{MaxPayload: 1024})
			kit.Serve(k, refund, func(ctx kagzi.Context, _ struct{}) (int, error) {
				_, err := kagzi.Step(ctx, "pay", tt.fn, kagzi.AtMostOnce())
				return 3, err
			})
			run := kit.Begin(k, refund, struct{}{}, kit.NoRetry)
			if tt.over {
				kit.FailureOf(k, run, kagzi.StatusFailed)
			} else {
				inDoubt(k, run)
			}
			resolve(k, run, admin.Happened(nil))
			if !tt.over {
				kit.ResultOf(k, run)
			}
			if s := k.Steps(run)["pay"]; len(s) != 1 || s[0].Status != kagzi.StatusCompleted {
				t.Errorf("steps %+v", s)
			}
		})
	}
}

// An interceptor that refuses a step has not called it.
func TestARefusedCallLeavesNoDoubt(t *testing.T) {
	refuses := kagzi.Interceptor{
		Step: func(context.Context, kagzi.StepInfo, func(context.Context) error) error { return kind.Unauthorized },
	}
	k := kit.NewWith(t, kagzi.ClientConfig{Interceptors: []kagzi.Interceptor{refuses}})
	p := &provider{does: always(7, nil)}
	kit.Serve(k, refund, p.workflow())
	failed := kit.FailureOf(k, kit.Begin(k, refund, struct{}{}), kagzi.StatusFailed)
	if failed.Kind != kind.Unauthorized {
		t.Errorf("failed with %v", failed)
	}
	p.called(t, 0)
}

// A racer loses while its intent is written: it calls nothing, and leaves no doubt.
func TestARacerThatLosesBeforeItsCall(t *testing.T) {
	k := kit.New(t)
	p := &provider{does: always(7, nil)}
	w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{})
	won := make(chan struct{})
	kagzi.Handle(w, refund, func(ctx kagzi.Context, _ struct{}) (int, error) {
		_, got, err := kagzi.Race(ctx, "race", map[string]func(kagzi.Context) (int, error){
			"pays": func(ctx kagzi.Context) (int, error) { return kagzi.Step(ctx, "pay", p.pay, kagzi.AtMostOnce()) },
			"wins": func(kagzi.Context) (int, error) {
				close(won)
				return 3, nil
			},
		})
		if err == nil {
			_, err = kagzi.WaitSignal(ctx, goOn)
		}
		return got, err
	})
	hung, release := kit.HangAt(t, w, "before flush")
	kit.StartWorker(t, w)
	run := kit.Begin(k, refund, struct{}{})
	<-hung
	<-won
	release()
	await.True(t, "the run waits for the signal", func() bool {
		return k.InfoOf(run).WaitingOn.String() == "signal go on"
	})
	if d := doubts(k); len(d) != 0 {
		t.Errorf("in doubt: %+v", d)
	}
}

// A worker that stops before the call uses up no attempt.
func TestAWithdrawalUsesUpNoAttempt(t *testing.T) {
	k := kit.New(t)
	p := &provider{does: failsFirst(7)}
	run := drainedBeforeTheCall(k, p, kagzi.RetryPolicy{MaxAttempts: 2, Backoff: 1000},
		kagzi.Reconcile(func(context.Context) (int, bool, error) { return 0, false, nil }))
	if got := kit.ResultOf(k, run); got != 7 {
		t.Errorf("got %d", got)
	}
	p.called(t, 2)
}

// A deploy takes the option away while the step is in doubt: the resolution counts.
func TestADeployWithoutTheOption(t *testing.T) {
	k := kit.New(t)
	p := &provider{does: failsFirst(8)}
	stop := kit.StartWorker(t, handling(k, p))
	run := kit.Begin(k, refund, struct{}{}, kit.NoRetry)
	inDoubt(k, run)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	kit.Serve(k, refund, func(ctx kagzi.Context, _ struct{}) (int, error) { return kagzi.Step(ctx, "pay", p.pay) })
	resolve(k, run, admin.Happened(7))
	if got := kit.ResultOf(k, run); got != 7 {
		t.Errorf("got %d", got)
	}
	p.called(t, 1)
}

// The worker has gone during the call, and no other one comes: that is in sight, and can be resolved.
func TestADoubtThatNoWorkerHasSeen(t *testing.T) {
	k := kit.New(t)
	var calls atomic.Int64
	begun, open := make(chan struct{}), make(chan struct{})
	release := sync.OnceFunc(func() { close(open) })
	t.Cleanup(release)
	w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{})
	kagzi.Handle(w, refund, func(ctx kagzi.Context, _ struct{}) (int, error) {
		return kagzi.Step(ctx, "pay", func(context.Context) (int, error) {
			calls.Add(1)
			close(begun)
			<-open
			return 0, errors.New("late")
		}, kagzi.AtMostOnce())
	})
	kit.StartWorker(t, w)
	run := kit.Begin(k, refund, struct{}{}, kit.NoRetry)
	<-begun
	k.Exec(`UPDATE kagzi.workflow_runs SET status = 'PENDING', lease = NULL, task_queue = 'rescue',
		available_at = now() WHERE run_id = $1`, string(run.ID()))
	if d := doubts(k); len(d) != 1 || d[0].Step != "pay" {
		t.Errorf("in doubt: %+v", d)
	}
	resolve(k, run, admin.Happened(7))
	release()
	kit.Rescue(k, refund, func(ctx kagzi.Context, _ struct{}) (int, error) {
		return kagzi.Step(ctx, "pay", func(context.Context) (int, error) {
			return int(calls.Add(1)), nil
		}, kagzi.AtMostOnce())
	})
	if got := kit.ResultOf(k, run); got != 7 || calls.Load() != 1 {
		t.Errorf("got %d after %d calls", got, calls.Load())
	}
}

// drainedBeforeTheCall returns a run whose worker has drained after the intent, and before the call. Another worker
// executes it.
func drainedBeforeTheCall(k *kit.Kit, p *provider, opts ...kagzi.StepOption) *kagzi.Run[int] {
	t := k.T
	t.Helper()
	ended := make(chan struct{})
	pays := func(watch func(context.Context) (int, error)) func(kagzi.Context, struct{}) (int, error) {
		return func(ctx kagzi.Context, in struct{}) (int, error) {
			kagzi.Go(ctx, "watch", func(ctx kagzi.Context) (int, error) { return kagzi.Step(ctx, "end", watch) })
			return p.workflow(opts...)(ctx, in)
		}
	}
	w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{DrainTimeout: time.Microsecond})
	kagzi.Handle(w, refund, pays(func(ctx context.Context) (int, error) {
		<-ctx.Done()
		close(ended)
		return 0, ctx.Err()
	}))
	hung, release := kit.HangAt(t, w, "after intent")
	stop := kit.StartWorker(t, w)
	run := kit.Begin(k, refund, struct{}{}, kit.NoRetry)
	<-hung
	stopped := kit.Stopping(func() { _ = stop() })
	<-ended
	release()
	<-stopped
	p.called(t, 0)
	kit.Serve(k, refund, pays(func(context.Context) (int, error) { return 0, nil }))
	return run
}
