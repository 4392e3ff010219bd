//go:build unix

package operations_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/kind"
)

// counted is a workflow of two steps that ends as its input says, once the gate is open.
var counted = kagzi.Define[string, string]("counted")

// handleCounted gives w a handler of counted. begun receives a value from each run, which ends when open is closed.
func handleCounted(w *kagzi.Worker, begun chan<- struct{}, open <-chan struct{}) {
	kagzi.Handle(w, counted, func(ctx kagzi.Context, how string) (string, error) {
		if _, err := kagzi.Step(ctx, "first", func(ctx context.Context) (string, error) {
			begun <- struct{}{}
			select {
			case <-open:
			case <-ctx.Done():
			}
			return "", nil
		}); err != nil {
			return "", err
		}
		if _, err := kagzi.StepTx(ctx, "second", func(context.Context, pgx.Tx) (string, error) {
			return "", nil
		}); err != nil {
			return "", err
		}
		if how == "fail" {
			return "", kind.Unavailable
		}
		return how, nil
	})
}

// After a clean stop, the worker's row counts all that the worker did: also what it did after its last heartbeat, which
// was minutes ago, and while it drained.
func TestRegistryCountsAfterStop(t *testing.T) {
	t.Parallel()
	for name, drains := range map[string]func(c *kagzi.Client, id string, stop func()) error{
		"Context": func(_ *kagzi.Client, _ string, stop func()) error { stop(); return nil },
		"Drain": func(c *kagzi.Client, id string, _ func()) error {
			return admin.New(c).Workers.Drain(t.Context(), id)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := dbtest.Database(t)
			c := kit.NewClient(t, db.Pool)
			w := kit.NewWorker(t, c, kit.RareHeartbeats)
			begun, open := make(chan struct{}, 6), make(chan struct{})
			handleCounted(w, begun, open)
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			done := make(chan error, 1)
			go func() { done <- w.Run(ctx) }()
			for _, how := range []string{"complete", "complete", "complete", "fail", "fail"} {
				if _, err := kagzi.Start(t.Context(), c, counted, how); err != nil {
					t.Fatal(err)
				}
				await.Receive(t, begun)
			}
			id := kit.Only(t, c, admin.WorkerFilter{}).ID
			if err := drains(c, id, stop); err != nil {
				t.Fatal(err)
			}
			await.True(t, "the worker drains", func() bool {
				got, err := admin.New(c).Workers.Get(t.Context(), id)
				return err == nil && got.Status == "DRAINING"
			})
			close(open)
			if err := await.Receive(t, done); err != nil {
				t.Fatal(err)
			}
			got, err := admin.New(c).Workers.Get(t.Context(), id)
			// also attempts that a busy machine has made fail
			steps := dbtest.QueryOne[int64](t, db.Pool, `SELECT count(*) FROM kagzi.step_runs
				WHERE finished_at IS NOT NULL`)
			if err != nil || got.Status != "OFFLINE" || got.Active != 0 || got.Completed != 3 || got.Failed != 2 ||
				got.Steps != steps || steps < 10 {
				t.Errorf("%+v, %v; %d attempts of steps are recorded", got, err, steps)
			}
		})
	}
}

// A worker that was declared dead registers again. Its new row counts what the old one lacks, and nothing twice.
func TestRegistryCountsOfAWorkerDeclaredDead(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	c := kit.NewClient(t, db.Pool)
	w := kit.NewWorker(t, c, kit.Quick)
	begun, open := make(chan struct{}, 10), make(chan struct{})
	close(open)
	handleCounted(w, begun, open)
	stop := kit.StartLocal(t, w)
	work := func() {
		run, err := kagzi.Start(t.Context(), c, counted, "complete")
		if err == nil {
			_, err = run.Result(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	work()
	old := kit.Only(t, c, admin.WorkerFilter{}).ID
	await.True(t, "a heartbeat counts the first run", func() bool {
		got, err := admin.New(c).Workers.Get(t.Context(), old)
		return err == nil && got.Completed == 1
	})
	if err := admin.New(c).Workers.ForceOffline(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	await.True(t, "the worker is registered anew", func() bool {
		_, total, err := admin.New(c).Workers.List(t.Context(), admin.WorkerFilter{Status: []string{"ONLINE"}})
		return err == nil && total == 1
	})
	work()
	work()
	stop()
	page, _, err := admin.New(c).Workers.List(t.Context(), admin.WorkerFilter{})
	if err != nil || len(page) != 2 || page[0].Completed != 2 || page[0].Steps != 4 || page[1].Completed != 1 ||
		page[1].Steps != 2 {
		t.Errorf("%+v, %v", page, err)
	}
}

// A step whose record has to wait, longer than steps are hidden, is counted once: its end is what the table shows next.
func TestRegistryCountsAStepOnceWhoseRecordWaits(t *testing.T) {
	k := kit.New(t)
	w := kit.NewWorker(t, k.Client, kit.RareHeartbeats)
	returned := make(chan time.Time, 1)
	var lock pgx.Tx
	kagzi.Handle(w, counted, func(ctx kagzi.Context, how string) (string, error) {
		return kagzi.Step(ctx, "held up", func(ctx context.Context) (string, error) {
			lock = k.CallersTx()
			_, err := lock.Exec(ctx, `LOCK TABLE kagzi.step_runs IN SHARE ROW EXCLUSIVE MODE`)
			returned <- time.Now()
			return how, err
		})
	})
	stop := kit.StartLocal(t, w)
	run, err := kagzi.Start(k.Ctx, k.Client, counted, "complete")
	if err != nil {
		t.Fatal(err)
	}
	since := await.Receive(t, returned)
	await.True(t, "the step would be shown", func() bool { return time.Since(since) > 1300*time.Millisecond })
	kit.RollbackTx(t, lock)
	if _, err := run.Result(k.Ctx); err != nil {
		t.Fatal(err)
	}
	stop()
	if got := kit.Only(t, k.Client, admin.WorkerFilter{}); got.Steps != 1 || got.Completed != 1 {
		t.Errorf("%+v, want one step", got)
	}
}
