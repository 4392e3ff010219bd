package language_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/kind"
)

func TestWaitSignalTimeout(t *testing.T) {
	t.Parallel()
	timed := func(d time.Duration) func(kagzi.Context, struct{}) (string, error) {
		return func(ctx kagzi.Context, _ struct{}) (string, error) {
			began := ctx.Now()
			v, err := kagzi.WaitSignal(ctx, kit.Approved, kagzi.Timeout(d))
			if err == nil {
				return "message " + v, nil
			}
			var se *kagzi.StepError
			if !errors.Is(err, kind.Timeout) || !errors.Is(err, kagzi.ErrNoMessage) || !errors.As(err, &se) ||
				se.Step != "approved" {
				return "", fmt.Errorf("the error is %T: %w", err, err)
			}
			after := ctx.Now().Sub(began)
			text, err := kagzi.Step(ctx, "text", func(context.Context) (string, error) { return err.Error(), nil })
			if err != nil {
				return "", err
			}
			late, err := kagzi.WaitSignal(ctx, kit.Approved)
			return fmt.Sprintf("%s, after %v at least: %t, then %s", text, d, after >= d, late), err
		}
	}
	t.Run("IsAnOutcome", func(t *testing.T) {
		for name, d := range map[string]time.Duration{
			"InMemory":  50 * time.Millisecond,
			"Suspended": 300 * time.Millisecond,
		} {
			t.Run(name, func(t *testing.T) {
				k := kit.New(t)
				wf := kagzi.Define[struct{}, string]("wf")
				kit.Serve(k, wf, timed(d))
				run := kit.Begin(k, wf, struct{}{})
				await.True(t, "the wait is over", func() bool { return len(k.Steps(run.ID())["text"]) == 1 })
				k.WaitStatus(run.ID(), kagzi.StatusSleeping)
				k.Signal(run.ID(), kit.Approved.With("late"))
				want := fmt.Sprintf(`kagzi: step "approved": no message came in time (timeout), after %v at least: `+
					`true, then late`, d)
				if got := kit.ResultOf(k, run); got != want {
					t.Errorf("got %q", got)
				}
			})
		}
	})
	t.Run("AMessageInTime", func(t *testing.T) {
		k := kit.New(t)
		wf := kagzi.Define[struct{}, string]("wf")
		kit.ServeWith(k, kit.NotifiedOnly, wf, timed(time.Hour))
		run := kit.Begin(k, wf, struct{}{})
		if info := k.WaitStatus(run.ID(), kagzi.StatusSleeping); time.Until(info.AvailableAt) < 50*time.Minute ||
			info.WaitingOn.String() != "signal approved" {
			t.Errorf("waits on %q until %v", info.WaitingOn, info.AvailableAt)
		}
		k.Signal(run.ID(), kit.Approved.With("a"))
		if got := kit.ResultOf(k, run); got != "message a" {
			t.Errorf("got %q", got)
		}
	})
	t.Run("IsNotTriedAgain", func(t *testing.T) {
		k := kit.New(t)
		wf := kagzi.Define[struct{}, string]("wf", kit.Soon)
		kit.Serve(k, wf, func(ctx kagzi.Context, _ struct{}) (string, error) {
			return kagzi.WaitSignal(ctx, kit.Approved, kagzi.Timeout(50*time.Millisecond))
		})
		run := kit.Begin(k, wf, struct{}{})
		if re := kit.FailureOf(k, run, kagzi.StatusFailed); re.Kind != kind.Timeout || k.InfoOf(run).Attempts != 1 {
			t.Errorf("%v, after %d attempts", re, k.InfoOf(run).Attempts)
		}
	})
	// No worker was there when the time was over: the time of the message's storing counts.
	t.Run("CountsTheTimeOfTheMessage", func(t *testing.T) {
		for late, want := range map[bool]string{false: "message a", true: "then a"} {
			t.Run(fmt.Sprintf("Late=%t", late), func(t *testing.T) {
				k := kit.New(t)
				wf := kagzi.Define[struct{}, string]("wf")
				_, stop := kit.ServeWith(k, kagzi.WorkerConfig{}, wf, timed(time.Hour))
				run := kit.Begin(k, wf, struct{}{})
				k.WaitStatus(run.ID(), kagzi.StatusSleeping)
				if err := stop(); err != nil {
					t.Fatal(err)
				}
				if late {
					k.Forward(run.ID())
				}
				k.Signal(run.ID(), kit.Approved.With("a"))
				if !late {
					k.Forward(run.ID())
				}
				kit.ServeWith(k, kagzi.WorkerConfig{}, wf, timed(time.Hour))
				if got := kit.ResultOf(k, run); !strings.HasSuffix(got, want) {
					t.Errorf("got %q, want %q", got, want)
				}
			})
		}
	})
	// A restart does not begin the timeout again, and a message that came in time without a notification is found.
	t.Run("LooksBeforeItGivesUp", func(t *testing.T) {
		k := kit.New(t)
		wf := kagzi.Define[struct{}, string]("wf")
		busy, open := make(chan struct{}), make(chan struct{})
		kit.ServeWith(k, kit.NotifiedOnly, wf, func(ctx kagzi.Context, _ struct{}) (string, error) {
			f := kagzi.Go(ctx, "busy", func(ctx kagzi.Context) (int, error) {
				return kagzi.Step(ctx, "s", func(context.Context) (int, error) { close(busy); <-open; return 1, nil })
			})
			v, err := kagzi.WaitSignal(ctx, kit.Approved, enough)
			close(open)
			if err != nil {
				return "", err
			}
			_, err = f.Result(ctx)
			return v, err
		})
		run := kit.Begin(k, wf, struct{}{})
		await.Receive(t, busy)
		await.True(t, "the wait has begun", func() bool { return len(k.Steps(run.ID())["approved"]) == 1 })
		k.Exec(`WITH w AS (UPDATE kagzi.workflow_runs SET wakeups = wakeups + 1 RETURNING run_id, namespace_id, wakeups)
			INSERT INTO kagzi.signals (run_id, namespace_id, name, sequence, signal_id, payload)
			SELECT run_id, namespace_id, 'approved', wakeups, 'm', '"quiet"' FROM w`)
		if got := kit.ResultOf(k, run); got != "quiet" {
			t.Errorf("got %q", got)
		}
	})
	t.Run("StaysInTheNextAttempt", func(t *testing.T) {
		k := kit.New(t)
		wf := kagzi.Define[struct{}, string]("wf", kagzi.RetryPolicy{Backoff: time.Hour})
		kit.Serve(k, wf, func(ctx kagzi.Context, _ struct{}) (string, error) {
			first, err := kagzi.WaitSignal(ctx, kit.Rejected)
			if err != nil {
				return "", err
			}
			_, timeout := kagzi.WaitSignal(ctx, kit.Approved, kagzi.Timeout(time.Millisecond))
			if ctx.Attempt() == 1 {
				return "", errors.New("once more")
			}
			return fmt.Sprint(first, " ", errors.Is(timeout, kind.Timeout)), nil
		})
		run := kit.Begin(k, wf, struct{}{}, kit.Rejected.With("first"), kit.Rejected.With("second"))
		await.True(t, "the first attempt fails", func() bool { i, _ := run.Info(k.Ctx); return i.Attempts > 0 })
		k.Signal(run.ID(), kit.Approved.With("late"))
		k.Exec(`UPDATE kagzi.workflow_runs SET available_at = now()`)
		k.Wake(run.ID())
		if got := kit.ResultOf(k, run); got != "first true" {
			t.Errorf("got %q", got)
		}
	})
	t.Run("ReturnedFailsTheRunAtOnce", func(t *testing.T) {
		k := kit.New(t)
		wf := kagzi.Define[struct{}, string]("wf", kagzi.RetryPolicy{Backoff: time.Hour})
		kit.Serve(k, wf, func(ctx kagzi.Context, _ struct{}) (string, error) {
			return kagzi.WaitSignal(ctx, kit.Approved, kagzi.Timeout(time.Millisecond))
		})
		if re := kit.FailureOf(k, kit.Begin(k, wf, struct{}{}), kagzi.StatusFailed); re.Kind != kind.Timeout {
			t.Errorf("kind %s", re.Kind)
		}
	})
	t.Run("DoesNotBeginAgain", func(t *testing.T) {
		k := kit.New(t)
		wf := kagzi.Define[struct{}, string]("wf")
		_, stop := kit.ServeWith(k, kagzi.WorkerConfig{}, wf, timed(time.Hour))
		run := kit.Begin(k, wf, struct{}{})
		k.WaitStatus(run.ID(), kagzi.StatusSleeping)
		at := k.Steps(run.ID())["approved"][0].WakeAt
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		k.Signal(run.ID(), kit.Rejected.With("only wakes it"))
		kit.ServeWith(k, kagzi.WorkerConfig{}, wf, timed(2*time.Hour))
		await.True(t, "the wake-up is seen", func() bool {
			return k.Count(`SELECT count(*) FROM kagzi.workflow_runs WHERE status = 'SLEEPING'
				AND available_at > now()`) == 1
		})
		if again := k.Steps(run.ID())["approved"][0].WakeAt; !again.Equal(at) {
			t.Errorf("until %v, then until %v", at, again)
		}
	})
}
