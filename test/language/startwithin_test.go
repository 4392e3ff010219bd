package language_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/kind"
)

func wantNotBegun(t *testing.T, err error) {
	t.Helper()
	re, ok := errors.AsType[*kagzi.RunError](err)
	if !ok || re.Status != kagzi.StatusFailed || re.Kind != kind.Deadline ||
		re.Message != "no worker has taken the run within its StartWithin" {
		t.Errorf("error %v, want that of a run that has not begun", err)
	}
}

const soon = kagzi.StartWithin(50 * time.Millisecond)

// A run that no worker has taken in time ends; one that a worker has taken goes on, however long it takes.
func TestStartWithin(t *testing.T) {
	t.Parallel()
	wf := kagzi.Define[int, int]("wf")
	waits := func(ctx kagzi.Context, n int) (int, error) {
		return n, kagzi.Sleep(ctx, "long", 300*time.Millisecond)
	}
	t.Run("NotTaken", func(t *testing.T) {
		k := kit.New(t)
		run, later := kit.Begin(k, wf, 1, soon), kit.Begin(k, wf, 2, kagzi.StartWithin(time.Hour))
		if info := k.InfoOf(later); info.StartBy.Sub(info.CreatedAt) != time.Hour || !info.DeadlineAt.IsZero() {
			t.Errorf("it says %v and %v", info.StartBy, info.DeadlineAt)
		}
		keepHouse(k)
		_, err := run.Result(k.Ctx)
		wantNotBegun(t, err)
		kit.Serve(k, wf, waits)
		if got := kit.ResultOf(k, later); got != 2 {
			t.Errorf("got %d", got)
		}
		k.Resume(run) // the time was over, and the operator wants it nevertheless
		if got := kit.ResultOf(k, run); got != 1 {
			t.Errorf("got %d", got)
		}
	})
	t.Run("Taken", func(t *testing.T) {
		k := kit.New(t)
		keepHouse(k)
		goOn := kagzi.DefineSignal[int]("go")
		kit.Serve(k, wf, func(ctx kagzi.Context, n int) (int, error) {
			_, err := kagzi.WaitSignal(ctx, goOn)
			return n, err
		})
		run := kit.Begin(k, wf, 1, kagzi.StartWithin(time.Hour))
		k.WaitStatus(run, kagzi.StatusSleeping)
		k.Exec(`UPDATE kagzi.workflow_runs SET start_by = now() - interval '1 hour'`)
		if info := k.InfoOf(run); !info.StartBy.IsZero() {
			t.Errorf("it has begun, and is to begin by %v", info.StartBy)
		}
		_, err := kit.Begin(k, wf, 2, soon, kagzi.Queue("other")).Result(k.Ctx)
		wantNotBegun(t, err) // so a coordinator has looked
		if err := k.Client.Signal(k.Ctx, run.ID(), goOn.With(1)); err != nil {
			t.Fatal(err)
		}
		if got := kit.ResultOf(k, run); got != 1 {
			t.Errorf("got %d", got)
		}
	})
	// The time counts from when the run is due, also if an operator moves that.
	t.Run("FromWhenItIsDue", func(t *testing.T) {
		k := kit.New(t)
		run := kit.Begin(k, wf, 1, kagzi.StartWithin(time.Minute), kagzi.Delay(time.Hour))
		by := func() time.Duration {
			info := k.InfoOf(run)
			return info.StartBy.Sub(info.AvailableAt)
		}
		if d := by(); d != time.Minute {
			t.Errorf("%v after it is due", d)
		}
		if err := admin.New(k.Client).Runs.Update(k.Ctx, run, kagzi.Delay(2*time.Hour)); err != nil {
			t.Fatal(err)
		}
		if d := by(); d != time.Minute {
			t.Errorf("later: %v after it is due", d)
		}
	})
	// A restart has its time anew.
	t.Run("Restarted", func(t *testing.T) {
		k := kit.New(t)
		keepHouse(k)
		run := kit.Begin(k, wf, 1, soon)
		_, err := run.Result(k.Ctx)
		wantNotBegun(t, err)
		again, err := admin.New(k.Client).Runs.Restart(k.Ctx, run)
		if err != nil {
			t.Fatal(err)
		}
		_, err = kit.Find(t, k.Client, wf, again).Result(k.Ctx)
		wantNotBegun(t, err)
	})
	t.Run("Child", func(t *testing.T) {
		k := kit.New(t)
		keepHouse(k)
		parent := kagzi.Define[int, int]("parent")
		kit.Serve(k, parent, func(ctx kagzi.Context, n int) (int, error) {
			_, err := kagzi.RunChild(ctx, "child", wf, n, soon, kagzi.Queue("other"))
			wantNotBegun(t, err)
			return n, nil
		})
		kit.ResultOf(k, kit.Begin(k, parent, 1))
	})
}

// An ExecutionTimeout counts from when a worker has first taken the run, asleep or not.
func TestExecutionTimeout(t *testing.T) {
	t.Parallel()
	wf := kagzi.Define[int, int]("wf")
	const hour = kagzi.ExecutionTimeout(time.Hour)
	serve := func(k *kit.Kit, fn func(ctx kagzi.Context) error, cfg ...kagzi.WorkerConfig) {
		cfg = append(cfg, kagzi.WorkerConfig{})
		kit.ServeWith(k, cfg[0], wf, func(ctx kagzi.Context, n int) (int, error) { return n, fn(ctx) })
	}
	sleeps := func(ctx kagzi.Context) error { return kagzi.Sleep(ctx, "long", 24*time.Hour) }
	left := func(k *kit.Kit, run *kagzi.Run[int]) time.Duration {
		info := k.InfoOf(run)
		return info.DeadlineAt.Sub(info.StartedAt)
	}
	t.Run("BegunLater", func(t *testing.T) {
		k := kit.New(t)
		run := kit.Begin(k, wf, 1, hour)
		k.Exec(`UPDATE kagzi.workflow_runs SET created_at = created_at - interval '2 hours',
			available_at = available_at - interval '2 hours'`)
		if info := k.InfoOf(run); !info.DeadlineAt.IsZero() {
			t.Errorf("it waits for a worker, and ends %v", info.DeadlineAt)
		}
		serve(k, sleeps)
		k.WaitStatus(run, kagzi.StatusSleeping)
		if d := left(k, run); d != time.Hour {
			t.Errorf("it ends %v after its begin", d)
		}
		k.Cancel(run)
	})
	t.Run("StartedInPlace", func(t *testing.T) {
		k := kit.New(t)
		serve(k, sleeps)
		run := kit.Begin(k, wf, 1, hour, kagzi.Timeout(24*time.Hour))
		k.WaitStatus(run, kagzi.StatusSleeping)
		if d := left(k, run); d != time.Hour {
			t.Errorf("it ends %v after its begin", d)
		}
		k.Cancel(run)
	})
	t.Run("WithAKey", func(t *testing.T) {
		k := kit.New(t)
		limits := admin.QueueLimits{Queue: "default", MaxRunning: 1}
		if err := admin.New(k.Client).Queues.Set(k.Ctx, limits); err != nil {
			t.Fatal(err)
		}
		serve(k, sleeps)
		plain := kit.Begin(k, wf, 1, hour)
		k.WaitStatus(plain, kagzi.StatusSleeping)
		keyed := kit.Begin(k, wf, 1, hour, kagzi.Key("a"))
		k.WaitStatus(keyed, kagzi.StatusSleeping)
		if a, b := left(k, plain), left(k, keyed); a != time.Hour || b != time.Hour {
			t.Errorf("they end %v and %v after their begin", a, b)
		}
		k.Cancel(plain)
		k.Cancel(keyed)
	})
	t.Run("Passes", func(t *testing.T) {
		k := kit.New(t)
		keepHouse(k)
		serve(k, func(ctx kagzi.Context) error {
			return kagzi.Do(ctx, "slow", func(ctx context.Context) error {
				<-ctx.Done()
				return ctx.Err()
			})
		})
		_, err := kit.Begin(k, wf, 1, kagzi.ExecutionTimeout(100*time.Millisecond)).Result(k.Ctx)
		wantDeadline(t, err)
	})
	// The next attempt of the run, a resume and a replay do not begin the time again.
	t.Run("Once", func(t *testing.T) {
		k := kit.New(t)
		failed := false
		serve(k, func(ctx kagzi.Context) error {
			if !failed {
				failed = true
				return errors.New("once")
			}
			return sleeps(ctx)
		})
		run := kit.Begin(k, wf, 1, hour, kagzi.RetryPolicy{MaxAttempts: 2, Backoff: time.Millisecond})
		await.True(t, "the second attempt sleeps", func() bool {
			info := k.InfoOf(run)
			return info.Status == kagzi.StatusSleeping && info.Attempts == 1
		})
		if d := left(k, run); d != time.Hour {
			t.Errorf("it ends %v after its begin", d)
		}
		k.Cancel(run)
	})
}

// Wrong times are refused before any SQL.
func TestWrongTimes(t *testing.T) {
	k := kit.New(t)
	wf := kagzi.Define[int, int]("wf")
	for what, option := range map[string]kagzi.StartOption{
		"StartWithin is 0":       kagzi.StartWithin(0),
		"StartWithin is -1ns":    kagzi.StartWithin(-1),
		"ExecutionTimeout is 0":  kagzi.ExecutionTimeout(0),
		"ExecutionTimeout is 30": kagzi.ExecutionTimeout(30),
	} {
		_, err := kagzi.Start(k.Ctx, k.Client, wf, 1, option)
		kit.MustContain(t, err, what)
	}
}
