package kagzi

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/kagzi/kagzi/internal/dbtest"
)

func TestRunCompletes(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	c := newTestClient(t, dbtest.Pool(t))
	double := Define[int, int]("double")
	w := newTestWorker(t, c, WorkerConfig{})
	Handle(w, double, func(ctx Context, n int) (int, error) {
		a, err := Step(ctx, "add", func(context.Context) (int, error) { return n + n, nil })
		if err != nil {
			return 0, err
		}
		if err := Sleep(ctx, "nap", 300*time.Millisecond); err != nil {
			return 0, err
		}
		f := Go(ctx, "branch", func(ctx Context) (int, error) {
			return Step(ctx, "one", func(context.Context) (int, error) { return 1, nil })
		})
		one, err := f.Result(ctx)
		return a + one, err
	})
	startWorker(t, w)
	run, err := Start(ctx, c, double, 21)
	if err != nil {
		t.Fatal(err)
	}
	got, err := run.Result(ctx)
	if err != nil || got != 43 {
		t.Fatalf("got %v, %v; want 43", got, err)
	}
	steps, err := c.Steps(ctx, run.ID())
	if err != nil {
		t.Fatal(err)
	}
	var done []string
	for _, s := range steps {
		if s.Status == StatusCompleted {
			done = append(done, s.Step)
		}
	}
	if !slices.Equal(done, []string{"add", "nap", "branch/one"}) {
		t.Errorf("completed %q", done)
	}
}

func TestStepFailureIsAStepError(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	c := newTestClient(t, dbtest.Pool(t))
	wf := Define[struct{}, struct{}]("failing", RetryPolicy{MaxAttempts: 1})
	w := newTestWorker(t, c, WorkerConfig{})
	Handle(w, wf, func(ctx Context, _ struct{}) (struct{}, error) {
		return struct{}{}, Do(ctx, "boom", func(context.Context) error { return errors.New("no\x00pe") }, RetryPolicy{MaxAttempts: 2, Backoff: time.Millisecond})
	})
	startWorker(t, w)
	run, err := Start(ctx, c, wf, struct{}{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = run.Result(ctx)
	var re *RunError
	if !errors.As(err, &re) || re.Status != StatusFailed || re.Kind != KindUnknown {
		t.Fatalf("got %v", err)
	}
	mustContain(t, err, `step "boom"`, "no", "pe", "2 attempts")
}
