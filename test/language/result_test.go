package language_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
)

// Failed runs are resumed as soon as their results are known.
func TestResumeRaces(t *testing.T) {
	t.Parallel()
	ctx := kit.Context(t)
	c := kit.NewClient(t, dbtest.Pool(t))
	wf := kagzi.Define[int, int]("second time lucky", kagzi.RetryPolicy{MaxAttempts: 1})
	w := kit.NewWorker(t, c, kagzi.WorkerConfig{})
	kagzi.Handle(w, wf, func(ctx kagzi.Context, n int) (int, error) {
		if ctx.Attempt() == 1 {
			return 0, kagzi.Permanent(errors.New("not yet"))
		}
		return n, nil
	})
	kit.StartWorker(t, w)
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			for range 20 {
				run, err := kagzi.Start(ctx, c, wf, i)
				if err == nil {
					if _, err = run.Result(ctx); err == nil {
						t.Error("the first attempt succeeded")
					}
					err = admin.New(c).Runs.Resume(ctx, run.ID())
				}
				if err != nil {
					t.Error(err)
					return
				}
				if n, err := run.Result(ctx); n != i || err != nil {
					t.Errorf("the resumed run returned %d, %v", n, err)
				}
			}
		})
	}
	all.Wait()
}

func TestClosedPoolEndsTheWorker(t *testing.T) {
	t.Parallel()
	ctx := kit.Context(t)
	db := dbtest.Database(t)
	pool := dbtest.OpenPool(t, db.DSN, dbtest.Setting("application_name", "closing"))
	c := kit.NewClient(t, pool)
	wf := kagzi.Define[int, int]("interrupted")
	w := kit.NewWorker(t, c, kagzi.WorkerConfig{})
	begun, cut := make(chan struct{}), make(chan error, 1)
	kagzi.Handle(w, wf, func(ctx kagzi.Context, n int) (int, error) {
		return kagzi.Step(ctx, "step", func(ctx context.Context) (int, error) {
			close(begun)
			<-ctx.Done()
			cut <- context.Cause(ctx)
			return 0, ctx.Err()
		})
	})
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	run, err := kagzi.Start(ctx, c, wf, 1)
	if err != nil {
		t.Fatal(err)
	}
	await.Receive(t, begun)
	if err := w.Run(ctx); err == nil || !strings.Contains(err.Error(), "running already") {
		t.Errorf("a second Run returned %v", err)
	}
	pool.Close()
	if err := <-done; err == nil || !strings.Contains(err.Error(), "pool was closed") {
		t.Errorf("Run returned %v", err)
	}
	if err := <-cut; !errors.Is(err, kagzi.ErrShutdown) {
		t.Errorf("the step's context ended with %v", err)
	}
	if _, err := run.Result(ctx); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Result returned %v", err)
	}
}

// TestIDOfAnotherWorkflow starts two workflows with one ID and equal inputs.
func TestIDOfAnotherWorkflow(t *testing.T) {
	t.Parallel()
	ctx := kit.Context(t)
	c := kit.NewClient(t, dbtest.Pool(t))
	run, err := kagzi.Start(ctx, c, kagzi.Define[int, int]("checkout"), 42, kagzi.ID("order-42"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = kagzi.Start(ctx, c, kagzi.Define[int, int]("refund"), 42, kagzi.ID("order-42"))
	if !errors.Is(err, kagzi.ErrIDConflict) {
		t.Fatalf("got %v, want ErrIDConflict", err)
	}
	for _, part := range []string{"order-42", string(run.ID()), "checkout"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the error %q does not name %q", err, part)
		}
	}
	if _, err := kagzi.Start(ctx, nil, kagzi.Define[int, int]("checkout"), 42); err == nil {
		t.Error("a nil client is not refused")
	}
}
