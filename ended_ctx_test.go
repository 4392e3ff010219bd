package kagzi_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
)

// A call in a caller's transaction whose context has ended sends nothing and says so, whether or not the client was
// used before, and leaves the transaction as it was. TestEndedContext has the other calls.
func TestEndedContextInATransaction(t *testing.T) {
	t.Parallel()
	cfg, err := pgxpool.ParseConfig(dbtest.Database(t).DSN)
	if err != nil {
		t.Fatal(err)
	}
	tracer := &asked{}
	cfg.ConnConfig.Tracer = tracer
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	warm := kit.NewClient(t, pool)
	wf := kagzi.Define[int, int]("wf")
	run, err := kagzi.Start(t.Context(), warm, wf, 1, kagzi.ID("id"))
	if err != nil {
		t.Fatal(err)
	}
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.WithoutCancel(t.Context()))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()

	var inStep context.Context // what a step's function gets
	w := kit.NewWorker(t, warm, kagzi.WorkerConfig{})
	step := kagzi.Define[int, int]("step")
	kagzi.Handle(w, step, func(ctx kagzi.Context, _ int) (int, error) {
		return 0, kagzi.Do(ctx, "step", func(ctx context.Context) error {
			inStep = ctx
			return nil
		})
	})
	stop := kit.StartWorker(t, w)
	if r, err := kagzi.Start(t.Context(), warm, step, 1); err != nil {
		t.Fatal(err)
	} else if _, err := r.Result(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := stop(); err != nil { // its statements would be counted
		t.Fatal(err)
	}

	only := func(_ any, err error) error { return err }
	for name, call := range map[string]func(context.Context, *kagzi.Client) error{
		"Start": func(ctx context.Context, c *kagzi.Client) error {
			return only(kagzi.Start(ctx, c, wf, 2, kagzi.InTx(tx)))
		},
		"StartMany": func(ctx context.Context, c *kagzi.Client) error {
			return only(c.StartMany(ctx, []kagzi.Call{wf.With(2), wf.With(3)}, kagzi.InTx(tx)))
		},
		"Signal": func(ctx context.Context, c *kagzi.Client) error {
			return c.Signal(ctx, kagzi.ID("id"), kagzi.DefineSignal[string]("approved").With("a"), kagzi.InTx(tx))
		},
		"SignalInAStep": func(ctx context.Context, c *kagzi.Client) error {
			step := context.WithoutCancel(inStep)
			if at, ok := ctx.Deadline(); ok {
				step, cancel = context.WithDeadline(step, at)
			} else {
				step, cancel = context.WithCancel(step)
				cancel()
			}
			defer cancel()
			return c.Signal(step, kagzi.ID("id"), kagzi.DefineSignal[string]("approved").With("a"))
		},
		"Cancel": func(ctx context.Context, c *kagzi.Client) error { return c.Cancel(ctx, run.ID(), kagzi.InTx(tx)) },
	} {
		for which, ctx := range map[string]context.Context{"cancelled": ended, "past its deadline": late} {
			for state, c := range map[string]*kagzi.Client{"cold": kit.NewClient(t, pool), "warm": warm} {
				before := tracer.n.Load()
				err := call(ctx, c)
				if !errors.Is(err, ctx.Err()) || tracer.n.Load() != before {
					t.Errorf("%s with a context that is %s, on a %s client: %v, after %d statements", name, which,
						state, err, tracer.n.Load()-before)
				}
			}
		}
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Errorf("the caller's transaction: %v", err)
	}
}

// A start that waits for another caller's open transaction says so when its context ends.
func TestStartOfAHeldID(t *testing.T) {
	k := kit.New(t)
	wf := kagzi.Define[int, int]("wf")
	tx := k.CallersTx()
	if _, err := kagzi.Start(k.Ctx, k.Client, wf, 1, kagzi.ID("x"), kagzi.InTx(tx)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(k.Ctx, 8*time.Second) // enough to meet the lock, on any machine
	defer cancel()
	_, err := kagzi.Start(ctx, k.Client, wf, 1, kagzi.ID("x"))
	kit.MustContain(t, err, `ID "x" is held by another transaction`)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	if err := tx.Commit(k.Ctx); err != nil {
		t.Fatal(err)
	}
	if run := kit.Begin(k, wf, 1, kagzi.ID("x")); !run.Existed() {
		t.Error("the run of the ID was not found after the commit")
	}
}

// Who waits for a connection of the pool waits no longer than the context lasts.
func TestEndOfTheWaitForAConnection(t *testing.T) {
	t.Parallel()
	pool := dbtest.OpenPool(t, dbtest.Database(t).DSN, dbtest.Conns(1))
	c := kit.NewClient(t, pool)
	wf := kagzi.Define[int, int]("wf")
	run, err := kagzi.Start(t.Context(), c, wf, 1)
	if err != nil {
		t.Fatal(err)
	}
	held, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer held.Release()
	only := func(_ any, err error) error { return err }
	for name, call := range map[string]func(context.Context) error{
		"Start": func(ctx context.Context) error { return only(kagzi.Start(ctx, c, wf, 2)) },
		"Signal": func(ctx context.Context) error {
			return c.Signal(ctx, run.ID(), kagzi.DefineSignal[string]("approved").With("a"))
		},
		"Get":    func(ctx context.Context) error { return only(c.Get(ctx, run)) },
		"List":   func(ctx context.Context) error { return only(c.List(ctx, kagzi.RunFilter{})) },
		"Cancel": func(ctx context.Context) error { return c.Cancel(ctx, run) },
	} {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(20*time.Millisecond, cancel)
		if err := call(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
