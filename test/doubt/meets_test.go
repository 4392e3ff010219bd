package doubt_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/kind"
)

// wantRecorded resolves the step of a run in which nothing waits for it, once it is in doubt.
func wantRecorded(k *kit.Kit, run kagzi.Ref, step string) {
	k.T.Helper()
	runs := admin.New(k.Client).Runs
	await.True(k.T, "the step is resolved", func() bool {
		return runs.Resolve(k.Ctx, run, step, admin.Happened(7)) == nil
	})
	steps := k.Steps(run)[step]
	if len(steps) != 1 || steps[0].Status != kagzi.StatusCompleted || string(steps[0].Output) != "7" {
		k.T.Errorf("steps %+v", steps)
	}
	if err := runs.Resolve(k.Ctx, run, step, admin.DidNotHappen()); !errors.Is(err, admin.ErrNoDoubt) {
		k.T.Errorf("resolved twice: %v", err)
	}
}

func TestARunThatIsOverIsInDoubt(t *testing.T) {
	t.Parallel()
	t.Run("Cancelled", func(t *testing.T) {
		k := kit.New(t)
		p := &provider{does: always(0, errReset)}
		kit.Serve(k, refund, p.workflow())
		run := kit.Begin(k, refund, struct{}{})
		inDoubt(k, run)
		k.Cancel(run)
		kit.FailureOf(k, run, kagzi.StatusCancelled)
		wantRecorded(k, run, "pay")
		p.called(t, 1)
	})
	t.Run("CancelledInTheCall", func(t *testing.T) {
		k := kit.New(t)
		begun := make(chan struct{})
		kit.Serve(k, refund, func(ctx kagzi.Context, _ struct{}) (int, error) {
			return kagzi.Step(ctx, "pay", func(ctx context.Context) (int, error) {
				close(begun)
				<-ctx.Done()
				return 0, ctx.Err()
			}, kagzi.AtMostOnce())
		})
		run := kit.Begin(k, refund, struct{}{})
		<-begun
		k.Cancel(run)
		kit.FailureOf(k, run, kagzi.StatusCancelled)
		wantRecorded(k, run, "pay")
	})
	t.Run("Terminated", func(t *testing.T) {
		k := kit.New(t)
		p := &provider{does: always(0, errReset)}
		kit.Serve(k, refund, p.workflow())
		run := kit.Begin(k, refund, struct{}{})
		inDoubt(k, run)
		if err := admin.New(k.Client).Runs.Terminate(k.Ctx, run); err != nil {
			t.Fatal(err)
		}
		wantRecorded(k, run, "pay")
	})
	// The run is cancelled before it reads what the first call has said: that stands.
	t.Run("CancelledBeforeItReads", func(t *testing.T) {
		k := kit.New(t)
		p := &provider{does: always(0, errReset)}
		stop := kit.StartWorker(t, handling(k, p))
		run := kit.Begin(k, refund, struct{}{})
		inDoubt(k, run)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		resolve(k, run, admin.Happened(7))
		k.Cancel(run)
		kit.FailureOf(k, run, kagzi.StatusCancelled)
		err := admin.New(k.Client).Runs.Resolve(k.Ctx, run, "pay", admin.DidNotHappen())
		if !errors.Is(err, admin.ErrNoDoubt) {
			t.Errorf("resolved again: %v", err)
		}
		if steps := k.Steps(run)["pay"]; len(steps) != 1 || string(steps[0].Output) != "7" {
			t.Errorf("steps %+v", steps)
		}
	})
	// A resumed run waits again.
	t.Run("Resumed", func(t *testing.T) {
		k := kit.New(t)
		p := &provider{does: always(0, errReset)}
		kit.Serve(k, refund, p.workflow())
		run := kit.Begin(k, refund, struct{}{})
		inDoubt(k, run)
		k.Cancel(run)
		kit.FailureOf(k, run, kagzi.StatusCancelled)
		k.Resume(run)
		inDoubt(k, run)
		resolve(k, run, admin.Happened(7))
		if got := kit.ResultOf(k, run); got != 7 {
			t.Errorf("got %d", got)
		}
		p.called(t, 1)
	})
}

func TestABranchThatIsOverIsInDoubt(t *testing.T) {
	t.Parallel()
	// The group has failed, and the workflow goes on without the branch that is in doubt.
	t.Run("ItsGroupFailed", func(t *testing.T) {
		k := kit.New(t)
		p := &provider{does: always(0, errReset)}
		goOn := kagzi.DefineSignal[int]("go on")
		kit.Serve(k, refund, func(ctx kagzi.Context, _ struct{}) (int, error) {
			_ = kagzi.Parallel(ctx, "both", map[string]func(kagzi.Context) error{
				"pays": func(ctx kagzi.Context) error {
					_, err := kagzi.Step(ctx, "pay", p.pay, kagzi.AtMostOnce())
					return err
				},
				"fails": func(ctx kagzi.Context) error {
					_, err := kagzi.WaitSignal(ctx, goOn)
					return errors.Join(err, errReset)
				},
			})
			return kagzi.WaitSignal(ctx, goOn)
		})
		run := kit.Begin(k, refund, struct{}{})
		k.WaitStatus(run, kagzi.StatusSleeping, "doubt both/pays/pay; signal go on")
		k.Signal(run, goOn.With(1))
		await.True(t, "the run waits for the signal alone", func() bool {
			return k.InfoOf(run).WaitingOn.String() == "signal go on"
		})
		wantRecorded(k, run, "both/pays/pay")
		k.Signal(run, goOn.With(3))
		if got := kit.ResultOf(k, run); got != 3 {
			t.Errorf("got %d", got)
		}
		p.called(t, 1)
	})
	// The loser of a race returns, and leaves no doubt.
	t.Run("ItLostARace", func(t *testing.T) {
		k := kit.New(t)
		begun, open := make(chan struct{}), make(chan struct{})
		t.Cleanup(sync.OnceFunc(func() { close(open) }))
		kit.Serve(k, refund, func(ctx kagzi.Context, _ struct{}) (int, error) {
			_, got, err := kagzi.Race(ctx, "race", map[string]func(kagzi.Context) (int, error){
				"pays": func(ctx kagzi.Context) (int, error) {
					return kagzi.Step(ctx, "pay", func(ctx context.Context) (int, error) {
						close(begun)
						<-ctx.Done()
						return 5, nil
					}, kagzi.AtMostOnce())
				},
				"wins": func(ctx kagzi.Context) (int, error) {
					return kagzi.Step(ctx, "win", func(context.Context) (int, error) {
						<-begun
						return 3, nil
					})
				},
			})
			return got, errors.Join(err, kagzi.Sleep(ctx, "replay", time.Millisecond))
		})
		run := kit.Begin(k, refund, struct{}{})
		if got := kit.ResultOf(k, run); got != 3 {
			t.Errorf("got %d", got)
		}
		await.True(t, "the loser's outcome is recorded", func() bool {
			steps := k.Steps(run)["race/pays/pay"]
			return len(steps) == 1 && steps[0].Status == kagzi.StatusCompleted && string(steps[0].Output) == "5"
		})
	})
}

func TestCompensationOfADoubt(t *testing.T) {
	t.Parallel()
	undo := kagzi.Define[int, int]("undo")
	begin := func(t *testing.T, undone *kit.Journal) (*kit.Kit, *kagzi.Run[int]) {
		k := kit.New(t)
		p := &provider{does: always(0, errReset)}
		kit.Serve(k, undo, func(_ kagzi.Context, n int) (int, error) {
			if n == 7 {
				undone.Add("undone")
			}
			return 0, nil
		})
		kit.Serve(k, refund, func(ctx kagzi.Context, _ struct{}) (int, error) {
			_, err := kagzi.Step(ctx, "pay", p.pay, kagzi.AtMostOnce(), kagzi.UndoneBy(undo))
			return 0, errors.Join(err, kagzi.Permanent(kind.Kind("later")))
		})
		run := kit.Begin(k, refund, struct{}{})
		inDoubt(k, run)
		return k, run
	}
	// What has happened is undone.
	t.Run("Happened", func(t *testing.T) {
		var undone kit.Journal
		k, run := begin(t, &undone)
		resolve(k, run, admin.Happened(7))
		kit.FailureOf(k, run, kagzi.StatusFailed)
		undone.Want(t, "undone")
	})
	t.Run("GiveUp", func(t *testing.T) {
		var undone kit.Journal
		k, run := begin(t, &undone)
		resolve(k, run, admin.GiveUp(errReset))
		kit.FailureOf(k, run, kagzi.StatusFailed)
		undone.Want(t, "")
	})
	// A cancel does not wait for the resolution, and nothing is undone.
	t.Run("Cancelled", func(t *testing.T) {
		var undone kit.Journal
		k, run := begin(t, &undone)
		k.Cancel(run, kagzi.Grace(1e6))
		kit.FailureOf(k, run, kagzi.StatusCancelled)
		undone.Want(t, "")
		wantRecorded(k, run, "pay")
	})
}

// No attempt of the run repeats the call, whatever the workflow makes of its failure.
func TestANewAttemptOfTheRunDoesNotCallAgain(t *testing.T) {
	k := kit.New(t)
	p := &provider{does: always(0, kagzi.Permanent(kind.Kind("declined")))}
	kit.Serve(k, refund, func(ctx kagzi.Context, _ struct{}) (int, error) {
		_, err := kagzi.Step(ctx, "pay", p.pay, kagzi.AtMostOnce())
		if err != nil && ctx.Attempt() == 1 {
			return 0, errReset // another attempt of the run may help
		}
		return 3, nil
	})
	run := kit.Begin(k, refund, struct{}{}, kagzi.RetryPolicy{MaxAttempts: 2, Backoff: 1000})
	if got := kit.ResultOf(k, run); got != 3 {
		t.Errorf("got %d", got)
	}
	p.called(t, 1)
}

// A Resume is an operator's decision to call again.
func TestAResumedRunCallsAgain(t *testing.T) {
	k := kit.New(t)
	p := &provider{does: func(call int64) (int, error) {
		if call == 1 {
			return 0, kagzi.Permanent(kind.Kind("declined"))
		}
		return 7, nil
	}}
	kit.Serve(k, refund, p.workflow())
	run := kit.Begin(k, refund, struct{}{})
	kit.FailureOf(k, run, kagzi.StatusFailed)
	k.Resume(run)
	if got := kit.ResultOf(k, run); got != 7 {
		t.Errorf("got %d", got)
	}
	p.called(t, 2)
}

// A fork executes the step itself, and what was said of the source's call is not said of its own.
func TestAForkHasItsOwnDoubt(t *testing.T) {
	k := kit.New(t)
	p := &provider{does: always(0, errReset)}
	kit.Serve(k, refund, p.workflow())
	run := kit.Begin(k, refund, struct{}{}, kit.NoRetry)
	inDoubt(k, run)
	resolve(k, run, admin.GiveUp(errReset))
	kit.FailureOf(k, run, kagzi.StatusFailed)
	id, err := admin.New(k.Client).Runs.Fork(k.Ctx, run, "pay")
	if err != nil {
		t.Fatal(err)
	}
	fork := kit.Find(t, k.Client, refund, id)
	inDoubt(k, fork)
	p.called(t, 2)
	resolve(k, fork, admin.Happened(7))
	if got := kit.ResultOf(k, fork); got != 7 {
		t.Errorf("got %d", got)
	}
}

// handling returns a worker that is not started.
func handling(k *kit.Kit, p *provider) *kagzi.Worker {
	w := kit.NewWorker(k.T, k.Client, kagzi.WorkerConfig{})
	kagzi.Handle(w, refund, p.workflow())
	return w
}
