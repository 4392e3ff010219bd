package kagzitest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/kagzitest"
	"github.com/kagzi/kagzi/kind"
)

// TestMain ends the server, which has a goroutine, and then checks that the tests left no goroutines.
func TestMain(m *testing.M) {
	code := m.Run()
	if err := kagzitest.StopServer(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	if err := goleak.Find(); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, "goroutines left over:", err)
		code = 1
	}
	os.Exit(code)
}

const day = 24 * time.Hour

// mustEqual fails the test unless got is want.
func mustEqual[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Fatalf("%s: got %v, want %v", what, got, want)
	}
}

func mustSteps(t *testing.T, env *kagzitest.Env, ref kagzi.Ref, want ...string) {
	t.Helper()
	if got := env.Steps(ref); !slices.Equal(got, want) {
		t.Fatalf("steps: got %q, want %q", got, want)
	}
}

// infoOf reads the run's row.
func infoOf(t *testing.T, env *kagzitest.Env, ref kagzi.Ref) kagzi.RunInfo {
	t.Helper()
	info, err := env.Client.Get(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

var trial = kagzi.Define[string, string]("trial")

// threeMonths sends three reminders, thirty days apart.
func threeMonths(ctx kagzi.Context, name string) (string, error) {
	begun := ctx.Now()
	for _, n := range []string{"first", "second", "third"} {
		if err := kagzi.Sleep(ctx, "wait for "+n, 30*day); err != nil {
			return "", err
		}
		if err := kagzi.Do(ctx, n, func(context.Context) error { return nil }); err != nil {
			return "", err
		}
	}
	return ctx.Now().Sub(begun).Round(day).String(), nil
}

func TestAWorkflowOfThreeMonthsTakesNoTime(t *testing.T) {
	t.Parallel()
	env := kagzitest.New(t)
	begun := time.Now()
	kagzi.Handle(env.Worker, trial, threeMonths)
	run := kagzitest.Start(env, trial, "Ada")
	env.Advance(31 * day)
	mustSteps(t, env, run.ID(), "wait for first", "first")
	env.Advance(60 * day)
	mustSteps(t, env, run.ID(), "wait for first", "first", "wait for second", "second", "wait for third", "third")
	got, err := run.Result(t.Context())
	if err != nil || got != (90*day).String() {
		t.Fatalf("got %q, %v", got, err)
	}
	t.Logf("90 days took %v", time.Since(begun))
}

func TestSkipGoesOnUntilTheRunIsOver(t *testing.T) {
	t.Parallel()
	env := kagzitest.New(t)
	kagzi.Handle(env.Worker, trial, threeMonths)
	run := kagzitest.Start(env, trial, "Ada")
	begun := time.Now()
	mustEqual(t, "skipped", env.Skip(run.ID()).Round(day), 90*day)
	got, err := run.Result(t.Context())
	if err != nil || got != (90*day).String() {
		t.Fatalf("got %q, %v", got, err)
	}
	t.Logf("90 days took %v", time.Since(begun))
}

func TestRetriesWaitForTheirTime(t *testing.T) {
	t.Parallel()
	env := kagzitest.New(t)
	kagzi.Handle(env.Worker, trial, func(ctx kagzi.Context, _ string) (string, error) {
		return kagzi.Step(ctx, "call", func(context.Context) (string, error) { return "", errors.New("the real one") },
			kagzi.RetryPolicy{MaxAttempts: 5, Backoff: 6 * time.Hour, MaxBackoff: 6 * time.Hour})
	})
	failures := 3
	kagzitest.Mock(env, "call", func(context.Context) (string, error) {
		if failures--; failures >= 0 {
			return "", kind.Network
		}
		return "answer", nil
	})
	run := kagzitest.Start(env, trial, "")
	env.Advance(0)
	mustSteps(t, env, run.ID(), "call (network)")
	got, err := kagzitest.Result(env, run)
	if err != nil || got != "answer" {
		t.Fatalf("got %q, %v", got, err)
	}
	mustSteps(t, env, run.ID(), "call (network)", "call (network)", "call (network)", "call")
}

func TestADeadlineEndsARunInItsSleep(t *testing.T) {
	t.Parallel()
	env := kagzitest.New(t)
	kagzi.Handle(env.Worker, trial, threeMonths)
	run := kagzitest.Start(env, trial, "", kagzi.Timeout(40*day))
	_, err := kagzitest.Result(env, run)
	if !errors.Is(err, kind.Deadline) {
		t.Fatalf("got %v, want a deadline", err)
	}
	info := infoOf(t, env, run.ID())
	mustEqual(t, "lasted", info.EndedAt.Sub(info.StartedAt).Round(day), 40*day)
	mustSteps(t, env, run.ID(), "wait for first", "first")
}

func TestAScheduleFiresAtEachTick(t *testing.T) {
	t.Parallel()
	env := kagzitest.New(t)
	kagzi.Handle(env.Worker, trial, func(ctx kagzi.Context, name string) (string, error) {
		return kagzi.Step(ctx, "report", func(context.Context) (string, error) { return "sent", nil })
	})
	env.StartWorker()
	if err := env.Client.Schedule(t.Context(), kagzi.Schedule{
		Name: "daily", Cron: "0 6 * * *",
		Run: trial.With("all"),
	}); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	env.Advance(30 * day)
	t.Logf("30 days took %v", time.Since(begun))
	runs, err := env.Client.List(t.Context(),
		kagzi.RunFilter{Schedule: "daily", Status: []kagzi.Status{kagzi.StatusCompleted}})
	if err != nil {
		t.Fatal(err)
	}
	mustEqual(t, "runs", len(runs), 30)
	for _, r := range runs {
		if late := r.StartedAt.Sub(r.FireTime); late < 0 || late > time.Minute {
			t.Errorf("the run of %v began %v after it", r.FireTime, late)
		}
	}
}

// The test's worker need not have a handler: other workers may have them all. Time passes for their runs, too, and the
// test's coordinator fires schedules.
func TestOnlyOtherWorkersHaveHandlers(t *testing.T) {
	t.Parallel()
	env := kagzitest.New(t)
	nap := kagzi.Define[string, string]("nap", kagzi.Queue("shop"))
	w, err := kagzi.NewWorker(env.Client, kagzi.WorkerConfig{Queue: "shop", NoCoordinator: true})
	if err != nil {
		t.Fatal(err)
	}
	kagzi.Handle(w, nap, func(ctx kagzi.Context, in string) (string, error) {
		return in + "!", kagzi.Sleep(ctx, "long", 30*day)
	})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- w.Run(ctx) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	out, err := kagzitest.Result(env, kagzitest.Start(env, nap, "hi"))
	if err != nil || out != "hi!" {
		t.Errorf("%q, %v", out, err)
	}
	if err := env.Client.Schedule(t.Context(),
		kagzi.Schedule{Name: "s", Every: day, Run: nap.With("tick")}); err != nil {
		t.Fatal(err)
	}
	env.Advance(2 * day)
	runs, err := env.Client.List(t.Context(), kagzi.RunFilter{Schedule: "s"})
	if err != nil || len(runs) != 2 {
		t.Errorf("%d runs of the schedule, %v", len(runs), err)
	}
}
