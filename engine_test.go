package kagzi

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi/internal/dbtest"
)

func TestMain(m *testing.M) {
	if spec := os.Getenv(workerEnv); spec != "" {
		os.Exit(workerProcess(spec)) // started by a test
	}
	dbtest.Main(m)
}

func newTestClient(t *testing.T, pool *pgxpool.Pool) *Client {
	t.Helper()
	c, err := NewClient(pool, ClientConfig{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// startWorker runs a worker until the test ends, or until stop is called, which returns what Run returned.
func startWorker(t *testing.T, w *Worker) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	var err error
	stopped := false
	stop = func() error {
		if !stopped {
			cancel()
			err, stopped = <-done, true
		}
		return err
	}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Errorf("Worker.Run: %v", err)
		}
	})
	return stop
}

func newTestWorker(t *testing.T, c *Client, cfg WorkerConfig) *Worker {
	t.Helper()
	w, err := NewWorker(c, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

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
	for _, s := range steps {
		t.Logf("%+v", s)
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
	t.Log(err)
}
