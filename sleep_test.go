package kagzi

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"
)

func TestSleep(t *testing.T) {
	t.Parallel()
	t.Run("ShortStaysInMemory", func(t *testing.T) {
		k := newKit(t)
		wf := Define[struct{}, int]("wf")
		var executions atomic.Int64
		serve(k, wf, func(ctx Context, _ struct{}) (int, error) {
			executions.Add(1)
			return 0, errors.Join(Sleep(ctx, "a", 50*time.Millisecond), Sleep(ctx, "b", 150*time.Millisecond))
		})
		run := begin(k, wf, struct{}{})
		resultOf(k, run)
		if executions.Load() != 1 {
			t.Errorf("executed %d times", executions.Load())
		}
		for name, d := range map[string]time.Duration{"a": 50 * time.Millisecond, "b": 150 * time.Millisecond} {
			s := k.steps(run.ID())[name]
			if len(s) != 1 || s[0].EndedAt.Sub(s[0].StartedAt) < d {
				t.Errorf("sleep %q of %v: %+v", name, d, s)
			}
		}
	})
	t.Run("LongLeavesMemory", func(t *testing.T) {
		k := newKit(t)
		wf := Define[struct{}, int]("wf")
		ended := make(chan struct{}, 1)
		serve(k, wf, func(ctx Context, _ struct{}) (int, error) {
			defer func() { ended <- struct{}{} }()
			return 0, Sleep(ctx, "cooling-off", 24*time.Hour)
		})
		run := begin(k, wf, struct{}{})
		info := k.waitStatus(run.ID(), StatusSleeping)
		<-ended // its goroutine
		if info.WaitingOn != "timer cooling-off" {
			t.Errorf("waits on %q", info.WaitingOn)
		}
		s := k.steps(run.ID())["cooling-off"][0]
		if s.Status != StatusRunning || s.WakeAt.Sub(s.StartedAt) < 24*time.Hour || info.AvailableAt.Before(s.WakeAt) {
			t.Errorf("run is available at %v, sleep %+v", info.AvailableAt, s)
		}
		if n := k.count(`SELECT count(*) FROM kagzi.workflow_runs WHERE locked_by IS NOT NULL`); n != 0 {
			t.Error("a worker holds the sleeping run")
		}
	})
	t.Run("NeverEarlyAndPromptly", func(t *testing.T) {
		k := newKit(t)
		wf := Define[struct{}, int]("wf")
		var executions atomic.Int64
		serve(k, wf, func(ctx Context, _ struct{}) (int, error) {
			executions.Add(1)
			if err := Sleep(ctx, "nap", 300*time.Millisecond); err != nil {
				return 0, err
			}
			return 0, Do(ctx, "after", func(context.Context) error { return nil })
		})
		run := begin(k, wf, struct{}{})
		resultOf(k, run)
		nap, after := k.steps(run.ID())["nap"][0], k.steps(run.ID())["after"][0]
		if nap.EndedAt.Before(nap.WakeAt) || after.StartedAt.Before(nap.WakeAt) || after.StartedAt.Sub(nap.WakeAt) > 5*time.Second {
			t.Errorf("sleep %+v\nstep %+v", nap, after)
		}
		if executions.Load() != 2 {
			t.Errorf("executed %d times, want 2", executions.Load())
		}
	})
	t.Run("ZeroNegativeAndPast", func(t *testing.T) {
		k := newKit(t)
		complete(k, func(ctx Context) (int, error) {
			return 0, errors.Join(Sleep(ctx, "zero", 0), Sleep(ctx, "negative", -time.Hour), SleepUntil(ctx, "past", time.Unix(0, 0)))
		})
	})
	t.Run("Until", func(t *testing.T) {
		k := newKit(t)
		var now time.Time
		if err := k.pool.QueryRow(k.ctx, `SELECT clock_timestamp() + interval '400 ms'`).Scan(&now); err != nil {
			t.Fatal(err)
		}
		wf := Define[time.Time, int]("wf")
		serve(k, wf, func(ctx Context, at time.Time) (int, error) { return 0, SleepUntil(ctx, "until", at) })
		run := begin(k, wf, now)
		resultOf(k, run)
		if s := k.steps(run.ID())["until"][0]; s.EndedAt.Before(now) || s.WakeAt.Sub(now) > 5*time.Second {
			t.Errorf("asked for %v, got %+v", now, s)
		}
	})
	t.Run("FarAway", func(t *testing.T) {
		k := newKit(t)
		wf := Define[struct{}, int]("wf")
		serve(k, wf, func(ctx Context, _ struct{}) (int, error) {
			Go(ctx, "b", func(ctx Context) (int, error) {
				return 0, SleepUntil(ctx, "y", time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC))
			})
			return 0, Sleep(ctx, "x", 1<<63-1)
		})
		k.waitStatus(begin(k, wf, struct{}{}).ID(), StatusSleeping)
	})
	t.Run("BadCalls", func(t *testing.T) {
		k := newKit(t)
		refused(k, func(ctx Context) (int, error) {
			mustContain(t, Sleep(ctx, "nap", 30), `"nap"`, "30 ns", "time.Second")
			mustContain(t, SleepUntil(ctx, "until", time.Time{}), `"until"`, "the time is zero")
			mustContain(t, Sleep(nil, "nap", time.Hour), "Context is nil")
			return 0, Sleep(ctx, "least", time.Microsecond)
		})
	})
	t.Run("InABranchWhileAnotherWorks", func(t *testing.T) {
		k := newKit(t)
		wf := Define[struct{}, int]("wf")
		var executions atomic.Int64
		slept := make(chan struct{})
		serve(k, wf, func(ctx Context, _ struct{}) (int, error) {
			executions.Add(1)
			f := Go(ctx, "sleeper", func(ctx Context) (int, error) {
				defer close(slept)
				return 1, Sleep(ctx, "nap", 400*time.Millisecond)
			})
			if err := Do(ctx, "work", func(context.Context) error { <-slept; return nil }); err != nil {
				return 0, err
			}
			return f.Result(ctx)
		})
		run := begin(k, wf, struct{}{})
		resultOf(k, run)
		if executions.Load() != 1 {
			t.Errorf("executed %d times: while a branch works, waits stay in memory", executions.Load())
		}
		if s := k.steps(run.ID())["sleeper/nap"][0]; s.EndedAt.Before(s.WakeAt) {
			t.Errorf("early: %+v", s)
		}
	})
	t.Run("ARestartDoesNotBeginItAgain", func(t *testing.T) {
		k := newKit(t)
		wf := Define[struct{}, int]("wf")
		fn := func(ctx Context, _ struct{}) (int, error) {
			Go(ctx, "busy", func(ctx Context) (int, error) { // keeps the sleep in memory
				return 0, Do(ctx, "s", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
			})
			return 0, Sleep(ctx, "long", time.Hour)
		}
		ends := map[time.Time]bool{}
		var run *Run[int]
		for range 3 {
			w := newTestWorker(t, k.c, WorkerConfig{DrainTimeout: time.Millisecond})
			Handle(w, wf, fn)
			stop := startWorker(t, w)
			if run == nil {
				run = begin(k, wf, struct{}{})
			}
			waitFor(t, "the sleep is recorded", func() bool { return len(k.steps(run.ID())["long"]) == 1 })
			k.waitStatus(run.ID(), StatusRunning)
			stop()
			ends[k.steps(run.ID())["long"][0].WakeAt] = true
		}
		if len(ends) != 1 {
			t.Errorf("the sleep has ends %v", ends)
		}
	})
}
