package kagzi

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestWaitSignalTimeout(t *testing.T) {
	t.Parallel()
	timed := func(d time.Duration) func(Context, struct{}) (string, error) {
		return func(ctx Context, _ struct{}) (string, error) {
			began := ctx.Now()
			v, err := WaitSignal(ctx, approved, Timeout(d))
			if err == nil {
				return "message " + v, nil
			}
			var se *StepError
			if !errors.Is(err, KindTimeout) || !errors.As(err, &se) || se.Step != "approved" {
				return "", fmt.Errorf("the error is %T: %w", err, err)
			}
			after := ctx.Now().Sub(began)
			text, err := Step(ctx, "text", func(context.Context) (string, error) { return err.Error(), nil })
			if err != nil {
				return "", err
			}
			late, err := WaitSignal(ctx, approved)
			return fmt.Sprintf("%s, after %v at least: %t, then %s", text, d, after >= d, late), err
		}
	}
	t.Run("IsAnOutcome", func(t *testing.T) {
		for name, d := range map[string]time.Duration{"InMemory": 50 * time.Millisecond, "Suspended": 300 * time.Millisecond} {
			t.Run(name, func(t *testing.T) {
				k := newKit(t)
				wf := Define[struct{}, string]("wf")
				serve(k, wf, timed(d))
				run := begin(k, wf, struct{}{})
				waitFor(t, "the wait is over", func() bool { return len(k.steps(run.ID())["text"]) == 1 })
				k.waitStatus(run.ID(), StatusSleeping)
				k.signal(run.ID(), approved.With("late"))
				want := fmt.Sprintf(`kagzi: step "approved": no message came in time (timeout), after %v at least: true, then late`, d)
				if got := resultOf(k, run); got != want {
					t.Errorf("got %q", got)
				}
			})
		}
	})
	t.Run("AMessageInTime", func(t *testing.T) {
		k := newKit(t)
		wf := Define[struct{}, string]("wf")
		serveWith(k, told, wf, timed(time.Hour))
		run := begin(k, wf, struct{}{})
		if info := k.waitStatus(run.ID(), StatusSleeping); time.Until(info.AvailableAt) < 50*time.Minute || info.WaitingOn != "signal approved" {
			t.Errorf("waits on %q until %v", info.WaitingOn, info.AvailableAt)
		}
		k.signal(run.ID(), approved.With("a"))
		if got := resultOf(k, run); got != "message a" {
			t.Errorf("got %q", got)
		}
	})
	t.Run("IsNotTriedAgain", func(t *testing.T) {
		k := newKit(t)
		wf := Define[struct{}, string]("wf", soon)
		serve(k, wf, func(ctx Context, _ struct{}) (string, error) {
			return WaitSignal(ctx, approved, Timeout(50*time.Millisecond))
		})
		run := begin(k, wf, struct{}{})
		if re := failureOf(k, run, StatusFailed); re.Kind != KindTimeout || k.infoOf(run).Attempts != 1 {
			t.Errorf("%v, after %d attempts", re, k.infoOf(run).Attempts)
		}
	})
	// Nobody was there when the time was over: what counts is when the message was stored.
	t.Run("CountsTheTimeOfTheMessage", func(t *testing.T) {
		for late, want := range map[bool]string{false: "message a", true: "then a"} {
			t.Run(fmt.Sprintf("Late=%t", late), func(t *testing.T) {
				k := newKit(t)
				wf := Define[struct{}, string]("wf")
				_, stop := serveWith(k, WorkerConfig{}, wf, timed(time.Hour))
				run := begin(k, wf, struct{}{})
				k.waitStatus(run.ID(), StatusSleeping)
				if err := stop(); err != nil {
					t.Fatal(err)
				}
				if late {
					k.forward(run.ID())
				}
				k.signal(run.ID(), approved.With("a"))
				if !late {
					k.forward(run.ID())
				}
				serveWith(k, WorkerConfig{}, wf, timed(time.Hour))
				if got := resultOf(k, run); !strings.HasSuffix(got, want) {
					t.Errorf("got %q, want %q", got, want)
				}
			})
		}
	})
	// The time is not begun again by a restart, and a message that came in time, but of which nobody told, is found.
	t.Run("LooksBeforeItGivesUp", func(t *testing.T) {
		k := newKit(t)
		wf := Define[struct{}, string]("wf")
		busy, open := make(chan struct{}), make(chan struct{})
		serveWith(k, told, wf, func(ctx Context, _ struct{}) (string, error) {
			f := Go(ctx, "busy", func(ctx Context) (int, error) {
				return Step(ctx, "s", func(context.Context) (int, error) { close(busy); <-open; return 1, nil })
			})
			v, err := WaitSignal(ctx, approved, Timeout(time.Second))
			close(open)
			if err != nil {
				return "", err
			}
			_, err = f.Result(ctx)
			return v, err
		})
		run := begin(k, wf, struct{}{})
		receive(t, busy)
		waitFor(t, "the wait has begun", func() bool { return len(k.steps(run.ID())["approved"]) == 1 })
		k.exec(`WITH w AS (UPDATE kagzi.workflow_runs SET wakeups = wakeups + 1 RETURNING run_id, namespace_id, wakeups)
			INSERT INTO kagzi.signals (run_id, namespace_id, name, sequence, signal_id, payload)
			SELECT run_id, namespace_id, 'approved', wakeups, 'm', '"quiet"' FROM w`)
		if got := resultOf(k, run); got != "quiet" {
			t.Errorf("got %q", got)
		}
	})
	t.Run("StaysInTheNextAttempt", func(t *testing.T) {
		k := newKit(t)
		wf := Define[struct{}, string]("wf", RetryPolicy{Backoff: time.Hour})
		serve(k, wf, func(ctx Context, _ struct{}) (string, error) {
			first, err := WaitSignal(ctx, rejected)
			if err != nil {
				return "", err
			}
			_, timeout := WaitSignal(ctx, approved, Timeout(time.Millisecond))
			if ctx.Attempt() == 1 {
				return "", errors.New("once more")
			}
			return fmt.Sprint(first, " ", errors.Is(timeout, KindTimeout)), nil
		})
		run := begin(k, wf, struct{}{}, rejected.With("first"), rejected.With("second"))
		waitFor(t, "the first attempt fails", func() bool { i, _ := run.Info(k.ctx); return i.Attempts > 0 })
		k.signal(run.ID(), approved.With("late"))
		k.exec(`UPDATE kagzi.workflow_runs SET available_at = now()`)
		k.wake(run.ID())
		if got := resultOf(k, run); got != "first true" {
			t.Errorf("got %q", got)
		}
	})
	t.Run("ReturnedFailsTheRunAtOnce", func(t *testing.T) {
		k := newKit(t)
		wf := Define[struct{}, string]("wf", RetryPolicy{Backoff: time.Hour})
		serve(k, wf, func(ctx Context, _ struct{}) (string, error) {
			return WaitSignal(ctx, approved, Timeout(time.Millisecond))
		})
		if re := failureOf(k, begin(k, wf, struct{}{}), StatusFailed); re.Kind != KindTimeout {
			t.Errorf("kind %s", re.Kind)
		}
	})
	t.Run("DoesNotBeginAgain", func(t *testing.T) {
		k := newKit(t)
		wf := Define[struct{}, string]("wf")
		_, stop := serveWith(k, WorkerConfig{}, wf, timed(time.Hour))
		run := begin(k, wf, struct{}{})
		k.waitStatus(run.ID(), StatusSleeping)
		at := k.steps(run.ID())["approved"][0].WakeAt
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		k.signal(run.ID(), rejected.With("only wakes it"))
		serveWith(k, WorkerConfig{}, wf, timed(2*time.Hour))
		waitFor(t, "the wake-up is seen", func() bool {
			return k.count(`SELECT count(*) FROM kagzi.workflow_runs WHERE status = 'SLEEPING' AND available_at > now()`) == 1
		})
		if again := k.steps(run.ID())["approved"][0].WakeAt; !again.Equal(at) {
			t.Errorf("until %v, then until %v", at, again)
		}
	})
}

func TestMessageThatDoesNotDecode(t *testing.T) {
	k := newKit(t)
	wf := Define[struct{}, int]("wf")
	number := DefineSignal[int]("approved")
	stop := serve(k, wf, func(ctx Context, _ struct{}) (int, error) { return WaitSignal(ctx, number) })
	run := begin(k, wf, struct{}{}, approved.With("12"))
	if re := failureOf(k, run, StatusFailed); re.Kind != KindNondeterminism || !strings.Contains(re.Message, `"approved"`) {
		t.Errorf("got %v", re)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	serve(k, wf, func(ctx Context, _ struct{}) (int, error) {
		s, err := WaitSignal(ctx, approved)
		return len(s), err
	})
	k.resume(run.ID())
	if got := resultOf(k, run); got != 2 {
		t.Errorf("got %d", got)
	}
}
