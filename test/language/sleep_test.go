package language_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
)

func TestSleep(t *testing.T) {
	t.Parallel()
	t.Run("ShortStaysInMemory", func(t *testing.T) {
		k := kit.New(t)
		wf := kagzi.Define[struct{}, int]("wf")
		var executions atomic.Int64
		kit.Serve(k, wf, func(ctx kagzi.Context, _ struct{}) (int, error) {
			executions.Add(1)
			return 0, errors.Join(kagzi.Sleep(ctx, "a", 50*time.Millisecond),
				kagzi.Sleep(ctx, "b", 150*time.Millisecond))
		})
		run := kit.Begin(k, wf, struct{}{})
		kit.ResultOf(k, run)
		if executions.Load() != 1 {
			t.Errorf("executed %d times", executions.Load())
		}
		for name, d := range map[string]time.Duration{"a": 50 * time.Millisecond, "b": 150 * time.Millisecond} {
			s := k.Steps(run.ID())[name]
			if len(s) != 1 || s[0].EndedAt.Sub(s[0].StartedAt) < d {
				t.Errorf("sleep %q of %v: %+v", name, d, s)
			}
		}
	})
	t.Run("LongLeavesMemory", func(t *testing.T) {
		k := kit.New(t)
		wf := kagzi.Define[struct{}, int]("wf")
		ended := make(chan struct{}, 1)
		kit.Serve(k, wf, func(ctx kagzi.Context, _ struct{}) (int, error) {
			defer func() { ended <- struct{}{} }()
			return 0, kagzi.Sleep(ctx, "cooling-off", 24*time.Hour)
		})
		run := kit.Begin(k, wf, struct{}{})
		info := k.WaitStatus(run.ID(), kagzi.StatusSleeping)
		<-ended // its goroutine
		if info.WaitingOn.String() != "timer cooling-off" {
			t.Errorf("waits on %q", info.WaitingOn)
		}
		s := k.Steps(run.ID())["cooling-off"][0]
		if s.Status != kagzi.StatusRunning || s.WakeAt.Sub(s.StartedAt) < 24*time.Hour ||
			info.AvailableAt.Before(s.WakeAt) {
			t.Errorf("run is available at %v, sleep %+v", info.AvailableAt, s)
		}
		if n := k.Count(`SELECT count(*) FROM kagzi.workflow_runs WHERE locked_by IS NOT NULL`); n != 0 {
			t.Error("a worker holds the sleeping run")
		}
	})
	t.Run("NeverEarlyAndPromptly", func(t *testing.T) {
		k := kit.New(t)
		wf := kagzi.Define[struct{}, int]("wf")
		var executions atomic.Int64
		kit.Serve(k, wf, func(ctx kagzi.Context, _ struct{}) (int, error) {
			executions.Add(1)
			if err := kagzi.Sleep(ctx, "nap", 300*time.Millisecond); err != nil {
				return 0, err
			}
			return 0, kagzi.Do(ctx, "after", func(context.Context) error { return nil })
		})
		run := kit.Begin(k, wf, struct{}{})
		kit.ResultOf(k, run)
		nap, after := k.Steps(run.ID())["nap"][0], k.Steps(run.ID())["after"][0]
		if nap.EndedAt.Before(nap.WakeAt) || after.StartedAt.Before(nap.WakeAt) ||
			after.StartedAt.Sub(nap.WakeAt) > time.Minute {
			t.Errorf("sleep %+v\nstep %+v", nap, after)
		}
		if executions.Load() != 2 {
			t.Errorf("executed %d times, want 2", executions.Load())
		}
	})
	t.Run("ZeroNegativeAndPast", func(t *testing.T) {
		k := kit.New(t)
		kit.Complete(k, func(ctx kagzi.Context) (int, error) {
			return 0, errors.Join(kagzi.Sleep(ctx, "zero", 0), kagzi.Sleep(ctx, "negative", -time.Hour),
				kagzi.SleepUntil(ctx, "past", time.Unix(0, 0)))
		})
	})
	t.Run("Until", func(t *testing.T) {
		k := kit.New(t)
		var now time.Time
		if err := k.Pool.QueryRow(k.Ctx, `SELECT clock_timestamp() + interval '400 ms'`).Scan(&now); err != nil {
			t.Fatal(err)
		}
		wf := kagzi.Define[time.Time, int]("wf")
		kit.Serve(k, wf, func(ctx kagzi.Context, at time.Time) (int, error) {
			return 0, kagzi.SleepUntil(ctx, "until", at)
		})
		run := kit.Begin(k, wf, now)
		kit.ResultOf(k, run)
		if s := k.Steps(run.ID())["until"][0]; s.EndedAt.Before(now) || s.WakeAt.Sub(now) > time.Minute {
			t.Errorf("asked for %v, got %+v", now, s)
		}
	})
	t.Run("FarAway", func(t *testing.T) {
		k := kit.New(t)
		wf := kagzi.Define[struct{}, int]("wf")
		kit.Serve(k, wf, func(ctx kagzi.Context, _ struct{}) (int, error) {
			kagzi.Go(ctx, "b", func(ctx kagzi.Context) (int, error) {
				return 0, kagzi.SleepUntil(ctx, "y", time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC))
			})
			return 0, kagzi.Sleep(ctx, "x", 1<<63-1)
		})
		k.WaitStatus(kit.Begin(k, wf, struct{}{}).ID(), kagzi.StatusSleeping)
	})
	t.Run("BadCalls", func(t *testing.T) {
		k := kit.New(t)
		kit.Refused(k, func(ctx kagzi.Context) (int, error) {
			kit.MustContain(t, kagzi.Sleep(ctx, "nap", 30), `"nap"`, "30 ns", "time.Second")
			kit.MustContain(t, kagzi.SleepUntil(ctx, "until", time.Time{}), `"until"`, "the time is zero")
			kit.MustContain(t, kagzi.Sleep(nil, "nap", time.Hour), "Context is nil")
			return 0, kagzi.Sleep(ctx, "least", time.Microsecond)
		})
	})
	t.Run("InABranchWhileAnotherWorks", func(t *testing.T) {
		k := kit.New(t)
		wf := kagzi.Define[struct{}, int]("wf")
		var executions atomic.Int64
		slept := make(chan struct{})
		kit.Serve(k, wf, func(ctx kagzi.Context, _ struct{}) (int, error) {
			executions.Add(1)
			f := kagzi.Go(ctx, "sleeper", func(ctx kagzi.Context) (int, error) {
				defer close(slept)
				return 1, kagzi.Sleep(ctx, "nap", 400*time.Millisecond)
			})
			if err := kagzi.Do(ctx, "work", func(context.Context) error { <-slept; return nil }); err != nil {
				return 0, err
			}
			return f.Result(ctx)
		})
		run := kit.Begin(k, wf, struct{}{})
		kit.ResultOf(k, run)
		if executions.Load() != 1 {
			t.Errorf("executed %d times: while a branch works, waits stay in memory", executions.Load())
		}
		if s := k.Steps(run.ID())["sleeper/nap"][0]; s.EndedAt.Before(s.WakeAt) {
			t.Errorf("early: %+v", s)
		}
	})
	t.Run("ARestartDoesNotBeginItAgain", func(t *testing.T) {
		k := kit.New(t)
		wf := kagzi.Define[struct{}, int]("wf")
		fn := func(ctx kagzi.Context, _ struct{}) (int, error) {
			kagzi.Go(ctx, "busy", func(ctx kagzi.Context) (int, error) { // keeps the sleep in memory
				return 0, kagzi.Do(ctx, "s", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
			})
			return 0, kagzi.Sleep(ctx, "long", time.Hour)
		}
		ends := map[time.Time]bool{}
		var run *kagzi.Run[int]
		for range 3 {
			w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{DrainTimeout: time.Millisecond})
			kagzi.Handle(w, wf, fn)
			stop := kit.StartWorker(t, w)
			if run == nil {
				run = kit.Begin(k, wf, struct{}{})
			}
			await.True(t, "the sleep is recorded", func() bool { return len(k.Steps(run.ID())["long"]) == 1 })
			k.WaitStatus(run.ID(), kagzi.StatusRunning)
			stop()
			ends[k.Steps(run.ID())["long"][0].WakeAt] = true
		}
		if len(ends) != 1 {
			t.Errorf("the sleep has ends %v", ends)
		}
	})
}
