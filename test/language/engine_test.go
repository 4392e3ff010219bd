package language_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/kind"
)

func TestRunCompletes(t *testing.T) {
	t.Parallel()
	ctx := kit.Context(t)
	c := kit.NewClient(t, dbtest.Pool(t))
	double := kagzi.Define[int, int]("double")
	w := kit.NewWorker(t, c, kagzi.WorkerConfig{})
	kagzi.Handle(w, double, func(ctx kagzi.Context, n int) (int, error) {
		a, err := kagzi.Step(ctx, "add", func(context.Context) (int, error) { return n + n, nil })
		if err != nil {
			return 0, err
		}
		if err := kagzi.Sleep(ctx, "nap", 300*time.Millisecond); err != nil {
			return 0, err
		}
		f := kagzi.Go(ctx, "branch", func(ctx kagzi.Context) (int, error) {
			return kagzi.Step(ctx, "one", func(context.Context) (int, error) { return 1, nil })
		})
		one, err := f.Result(ctx)
		return a + one, err
	})
	kit.StartWorker(t, w)
	run, err := kagzi.Start(ctx, c, double, 21)
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
		if s.Status == kagzi.StatusCompleted {
			done = append(done, s.Step)
		}
	}
	if !slices.Equal(done, []string{"add", "nap", "branch/one"}) {
		t.Errorf("completed %q", done)
	}
}

func TestStepFailureIsAStepError(t *testing.T) {
	t.Parallel()
	ctx := kit.Context(t)
	c := kit.NewClient(t, dbtest.Pool(t))
	wf := kagzi.Define[struct{}, struct{}]("failing", kagzi.RetryPolicy{MaxAttempts: 1})
	w := kit.NewWorker(t, c, kagzi.WorkerConfig{})
	kagzi.Handle(w, wf, func(ctx kagzi.Context, _ struct{}) (struct{}, error) {
		return struct{}{}, kagzi.Do(ctx, "boom", func(context.Context) error { return errors.New("no\x00pe") },
			kagzi.RetryPolicy{MaxAttempts: 2, Backoff: time.Millisecond})
	})
	kit.StartWorker(t, w)
	run, err := kagzi.Start(ctx, c, wf, struct{}{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = run.Result(ctx)
	var re *kagzi.RunError
	if !errors.As(err, &re) || re.Status != kagzi.StatusFailed || re.Kind != kind.Unknown {
		t.Fatalf("got %v", err)
	}
	kit.MustContain(t, err, `step "boom"`, "no", "pe", "2 attempts")
}
