package operations_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/pgproxy"
	"github.com/kagzi/kagzi/kind"
)

var often = kagzi.RetryPolicy{MaxAttempts: 30, Backoff: time.Millisecond, MaxBackoff: time.Millisecond}

// The log of a run has its failed attempts: the newest 20, and the last one if the run was resumed.
func TestFailedAttemptsAreLogged(t *testing.T) {
	k := kit.New(t)
	wf := kagzi.Define[int, int]("wf")
	w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{})
	kagzi.Handle(w, wf, func(ctx kagzi.Context, fails int) (int, error) {
		if n := ctx.Attempt(); n <= fails {
			return 0, errors.Join(fmt.Errorf("attempt %d failed", n), kind.Unavailable)
		}
		return 0, nil
	})
	kit.StartWorker(t, w)
	logged := func(run *kagzi.Run[int]) (reasons []string) {
		log, err := admin.New(k.Client).Runs.Log(k.Ctx, run)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range log {
			if reasons = append(reasons, e.Event); e.Event == "ATTEMPT_FAILED" {
				reasons[len(reasons)-1] = e.Reason
			}
		}
		return reasons
	}
	reason := func(n int) string { return fmt.Sprintf("unavailable: attempt %d failed\nunavailable", n) }

	run := kit.Begin(k, wf, 25, often)
	kit.ResultOf(k, run)
	got := logged(run)
	if len(got) != 20 || got[0] != reason(6) || got[19] != reason(25) {
		t.Errorf("the log has %d entries: %q", len(got), got)
	}

	resumed := kit.Begin(k, wf, 2, kagzi.RetryPolicy{MaxAttempts: 2, Backoff: time.Millisecond})
	kit.FailureOf(k, resumed, kagzi.StatusFailed)
	if got, want := logged(resumed), []string{reason(1)}; !slices.Equal(got, want) {
		t.Errorf("the log of the failed run has %q", got)
	}
	if err := admin.New(k.Client).Runs.Resume(k.Ctx, resumed); err != nil {
		t.Fatal(err)
	}
	kit.ResultOf(k, resumed)
	if got, want := logged(resumed), []string{reason(1), reason(2), "RESUMED"}; !slices.Equal(got, want) {
		t.Errorf("the log of the resumed run has %q", got)
	}

	again := kit.Begin(k, wf, 100, kit.NoRetry)
	for range 22 {
		kit.FailureOf(k, again, kagzi.StatusFailed)
		k.Resume(again)
	}
	kit.FailureOf(k, again, kagzi.StatusFailed)
	got = slices.DeleteFunc(logged(again), func(event string) bool { return event == "RESUMED" })
	if len(got) != 20 || got[19] != reason(22) {
		t.Errorf("the log of a run that was resumed 22 times has %d attempts: %q", len(got), got)
	}
}

// A flush that is repeated, because its answer was lost, leaves the log as it is.
func TestFailedAttemptWhoseAnswerIsLost(t *testing.T) {
	kit.EachLoss(t, func(t *testing.T, l *kit.Lossy) {
		c := l.Client(t, 4)
		wf := kagzi.Define[int, int]("wf")
		w := kit.NewWorker(t, c, kagzi.WorkerConfig{})
		kagzi.Handle(w, wf, func(ctx kagzi.Context, _ int) (int, error) {
			if ctx.Attempt() == 22 {
				l.Lose(pgproxy.Contains("'ATTEMPT_FAILED'"))
			}
			if ctx.Attempt() <= 22 {
				return 0, fmt.Errorf("attempt %d", ctx.Attempt())
			}
			return 0, nil
		})
		kit.StartLocal(t, w)
		run, err := kagzi.Start(t.Context(), c, wf, 1, often)
		if err == nil {
			_, err = run.Result(t.Context())
		}
		log, reading := admin.New(c).Runs.Log(t.Context(), run)
		if err != nil || reading != nil {
			t.Fatal(err, reading)
		}
		if n := len(log); n != 20 || log[19].Reason != "unknown: attempt 22" {
			t.Errorf("the log has %d attempts: %+v", n, log)
		}
	})
}
