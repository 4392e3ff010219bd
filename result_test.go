package kagzi

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/store"
)

// TestResultAfterResume has the end that a run came to before it was resumed found out late, when somebody waits for
// its next end already.
func TestResultAfterResume(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	c := newTestClient(t, dbtest.Pool(t))
	run, err := Start(ctx, c, Define[int, int]("nobody's"), 1)
	if err != nil {
		t.Fatal(err)
	}
	id := uuid.MustParse(string(run.ID()))
	last := c.hints.LastWaiter()
	got := make(chan error, 1)
	go func() {
		_, err := run.Result(ctx)
		got <- err
	}()
	waitFor(t, "somebody waits", func() bool { return c.hints.LastWaiter() > last })
	c.hints.Deliver(store.Ended{RunID: id, Status: store.Failed, ErrorKind: "old"}, last)
	if err := run.Cancel(ctx); err != nil {
		t.Fatal(err)
	}
	if err := <-got; !errors.Is(err, KindCancelled) {
		t.Errorf("Result returned %v, want the run's end after it was asked", err)
	}
}

// TestResumeRaces resumes failed runs as soon as their results are known.
func TestResumeRaces(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	c := newTestClient(t, dbtest.Pool(t))
	wf := Define[int, int]("second time lucky", RetryPolicy{MaxAttempts: 1})
	w := newTestWorker(t, c, WorkerConfig{})
	Handle(w, wf, func(ctx Context, n int) (int, error) {
		if ctx.Attempt() == 1 {
			return 0, Permanent(errors.New("not yet"))
		}
		return n, nil
	})
	startWorker(t, w)
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			for range 20 {
				run, err := Start(ctx, c, wf, i)
				if err == nil {
					if _, err = run.Result(ctx); err == nil {
						t.Error("the first attempt succeeded")
					}
					err = c.Resume(ctx, run.ID())
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
	ctx := testContext(t)
	db := dbtest.Database(t)
	pool := poolWith(t, db.DSN, "application_name", "closing")
	c := newTestClient(t, pool)
	wf := Define[int, int]("interrupted")
	w := newTestWorker(t, c, WorkerConfig{})
	begun, cut := make(chan struct{}), make(chan error, 1)
	Handle(w, wf, func(ctx Context, n int) (int, error) {
		return Step(ctx, "step", func(ctx context.Context) (int, error) {
			close(begun)
			<-ctx.Done()
			cut <- context.Cause(ctx)
			return 0, ctx.Err()
		})
	})
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	run, err := Start(ctx, c, wf, 1)
	if err != nil {
		t.Fatal(err)
	}
	<-begun
	if err := w.Run(ctx); err == nil || !strings.Contains(err.Error(), "running already") {
		t.Errorf("a second Run returned %v", err)
	}
	pool.Close()
	if err := <-done; err == nil || !strings.Contains(err.Error(), "pool was closed") {
		t.Errorf("Run returned %v", err)
	}
	if err := <-cut; !errors.Is(err, ErrShutdown) {
		t.Errorf("the step's context ended with %v", err)
	}
	if _, err := run.Result(ctx); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Result returned %v", err)
	}
}

// TestResultThatCannotBeRead has one run whose result cannot be read, or takes for ever: those who wait for others get theirs,
// and are told no error.
func TestResultThatCannotBeRead(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ does, told string }{
		"Damaged":   {`RAISE 'missing chunk number 0 for toast value' USING ERRCODE = 'XX001'`, "missing chunk"},
		"DiskFails": {`RAISE 'could not read block 0' USING ERRCODE = '58030'`, "could not read block"},
		"TooSlow":   {`WHILE EXISTS (SELECT FROM public.slow) LOOP PERFORM pg_sleep(0.01); END LOOP`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := dbtest.Database(t)
			ctx, stop := context.WithTimeout(testContext(t), patience)
			defer stop()
			runs := startRuns(t, newTestClient(t, db.Pool), nothing, 20)
			role, _, _ := poorClient(t, db, "")
			execSQL(t, db.Pool, `CREATE TABLE public.slow AS SELECT 1`)
			execSQL(t, db.Pool, `GRANT SELECT ON public.slow TO `+role)
			execSQL(t, db.Pool, fmt.Sprintf(`CREATE FUNCTION public.readable(run uuid) RETURNS bool LANGUAGE plpgsql AS $$
				BEGIN
					IF run = '%s' THEN %s; END IF;
					RETURN true;
				END $$`, runs[0].ID(), tt.does))
			execSQL(t, db.Pool, `CREATE POLICY bad ON kagzi.workflow_payloads USING (public.readable(run_id))`)
			execSQL(t, db.Pool, `ALTER TABLE kagzi.workflow_payloads ENABLE ROW LEVEL SECURITY`)
			end := func(runs ...*Run[string]) {
				for _, r := range runs {
					execSQL(t, db.Pool, `UPDATE kagzi.workflow_payloads SET output = '"done"' WHERE run_id = $1`, string(r.ID()))
					execSQL(t, db.Pool, `UPDATE kagzi.workflow_runs SET status = 'COMPLETED', finished_at = now(), available_at = NULL WHERE run_id = $1`, string(r.ID()))
				}
			}
			c := newTestClient(t, poolWith(t, db.DSN, "role", role))
			c.hints.QueryTimeout = 200 * time.Millisecond
			result := func(r *Run[string]) (string, error) {
				return (&Run[string]{client: c, workflow: "nothing", id: r.ID()}).Result(ctx)
			}
			var early, late sync.WaitGroup
			bad := make(chan error, 1)
			go func() {
				_, err := result(runs[0])
				bad <- err
			}()
			for i, r := range runs[1:] {
				waits := &late
				if i < 10 {
					waits = &early
				}
				waits.Go(func() {
					if got, err := result(r); got != "done" || err != nil {
						t.Errorf("run %d returned %q, %v", i+1, got, err)
					}
				})
			}
			waitFor(t, "all are waited for", func() bool { return c.hints.LastWaiter() == uint64(len(runs)) })
			end(runs[:11]...)
			early.Wait()
			if tt.told != "" {
				mustContain(t, receive(t, bad), tt.told)
			}
			end(runs[11:]...)
			late.Wait()
			execSQL(t, db.Pool, `DELETE FROM public.slow`)
			if tt.told == "" {
				if err := receive(t, bad); err != nil {
					t.Errorf("the slow result: %v", err)
				}
			}
		})
	}
}

// TestIDOfAnotherWorkflow starts two workflows with one ID and equal inputs.
func TestIDOfAnotherWorkflow(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	c := newTestClient(t, dbtest.Pool(t))
	run, err := Start(ctx, c, Define[int, int]("checkout"), 42, ID("order-42"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = Start(ctx, c, Define[int, int]("refund"), 42, ID("order-42"))
	if !errors.Is(err, ErrIDConflict) {
		t.Fatalf("got %v, want ErrIDConflict", err)
	}
	for _, part := range []string{"order-42", string(run.ID()), "checkout"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the error %q does not name %q", err, part)
		}
	}
	if _, err := Start(ctx, nil, Define[int, int]("checkout"), 42); err == nil {
		t.Error("a nil client is not refused")
	}
}
