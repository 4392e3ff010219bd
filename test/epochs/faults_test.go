package epochs_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/pgproxy"
	"github.com/kagzi/kagzi/request"
)

// turn is an epoch that does one step, and continues until the last one.
func turn(last int) func(kagzi.Context, int) (string, error) {
	return func(ctx kagzi.Context, n int) (string, error) {
		steps, err := kagzi.Step(ctx, "step", func(context.Context) (int, error) { return n, nil })
		if err == nil && steps != n {
			err = fmt.Errorf("epoch %d found the step of epoch %d", n, steps)
		}
		if err == nil && n < last {
			err = kagzi.Continue(ctx, n+1)
		}
		return fmt.Sprint("epoch ", n), err
	}
}

// The answer to the transaction in which a run continues is lost, or its statements are.
func TestLostContinuation(t *testing.T) {
	kit.EachLoss(t, func(t *testing.T, l *kit.Lossy) {
		k := &kit.Kit{T: t, Ctx: kit.Context(t), Pool: l.Db.Pool, Client: kit.NewClient(t, l.Db.Pool)}
		c, logged := kit.LoggedClient(t, dbtest.OpenPool(t, l.Proxy.DSN(), dbtest.Conns(5)))
		w := kit.NewWorker(t, c, kagzi.WorkerConfig{})
		kagzi.Handle(w, wf, turn(3))
		drop := l.Lose(pgproxy.Nth(2, pgproxy.Contains("SET epoch =")))
		run := kit.Begin(k, wf, 0)
		kit.StartLocal(t, w)
		await.Receive(t, drop.Done())
		if got := kit.ResultOf(k, run); got != "epoch 3" {
			t.Errorf("got %q", got)
		}
		if e := k.InfoOf(run).Epoch; e != 3 {
			t.Errorf("epoch %d", e)
		}
		if text := logged.String(); strings.Contains(text, "has lost records") {
			t.Errorf("a lost answer passes for a failover:\n%s", text)
		}
	})
}

// A worker freezes before it writes that a run continues. Another worker continues it with another input, and the
// frozen one's write is refused.
func TestStaleWorkerContinuesNothing(t *testing.T) {
	k := kit.New(t)
	code := func(next int) func(kagzi.Context, int) (string, error) {
		return func(ctx kagzi.Context, n int) (string, error) {
			if n == 0 {
				return "", kagzi.Continue(ctx, next)
			}
			if _, err := kagzi.WaitSignal(ctx, goOn); err != nil {
				return "", err
			}
			return fmt.Sprint("continued with ", n), nil
		}
	}
	refused := make(chan string, 10)
	cfg := k.Pool.Config()
	cfg.ConnConfig.Tracer = kit.Refusals(func(write string) { refused <- write })
	pool, err := pgxpool.NewWithConfig(k.Ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	stale := kit.NewWorker(t, kit.NewClient(t, pool), kagzi.WorkerConfig{})
	kagzi.Handle(stale, wf, code(1))
	hung, release := kit.HangAt(t, stale, "before flush")
	defer release()
	kit.StartWorker(t, stale)
	run := kit.Begin(k, wf, 0)
	await.Opened(t, hung)
	k.Exec(`UPDATE kagzi.workflow_runs SET task_queue = 'other'`) // so that the frozen worker does not take it again
	kit.LoseRun(t, k.Pool, run.ID(), 1)
	fresh := kit.NewWorker(t, kit.NewClient(t, k.Pool), kagzi.WorkerConfig{Queue: "other"})
	kagzi.Handle(fresh, wf, code(2))
	kit.StartWorker(t, fresh)
	k.WaitStatus(run, kagzi.StatusSleeping)
	release()
	if write := await.Receive(t, refused); write != "suspend" {
		t.Errorf("the frozen worker's %s was refused", write)
	}
	k.Signal(run, goOn.With(""))
	if got := kit.ResultOf(k, run); got != "continued with 2" {
		t.Errorf("got %q", got)
	}
}

// A worker loses the run between an epoch's last record and the next epoch. The other worker replays the epoch that has
// not ended, and only that.
func TestEpochThatWasNotWrittenIsReplayed(t *testing.T) {
	k := kit.New(t)
	first := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{})
	kagzi.Handle(first, wf, turn(2))
	hung, release := kit.HangAt(t, first, "finish")
	defer release()
	kit.StartWorker(t, first)
	run := kit.Begin(k, wf, 0)
	await.Opened(t, hung)
	k.Exec(`UPDATE kagzi.workflow_runs SET task_queue = 'other'`) // so that the first worker takes no other epoch
	kit.LoseRun(t, k.Pool, run.ID(), 1)
	second := kit.NewWorker(t, kit.NewClient(t, k.Pool), kagzi.WorkerConfig{Queue: "other"})
	kagzi.Handle(second, wf, turn(2))
	kit.StartWorker(t, second)
	if got := kit.ResultOf(k, run); got != "epoch 2" {
		t.Errorf("got %q", got)
	}
}

// What people do to a run that has continued concerns its own epoch.
func TestVerbsOnAContinuedRun(t *testing.T) {
	k := kit.New(t)
	broken := true
	serve(k, func(ctx kagzi.Context, n int) (string, error) {
		m, err := kagzi.WaitSignal(ctx, goOn)
		if err != nil {
			return "", err
		}
		got, err := kagzi.Step(ctx, "step", func(context.Context) (string, error) {
			if n == 1 && broken {
				return "", kagzi.Permanent(errors.New("broken"))
			}
			return fmt.Sprint(m, " in epoch ", n), nil
		})
		if err == nil && n == 0 {
			err = kagzi.Continue(ctx, 1)
		}
		return got, err
	})
	run := kit.Begin(k, wf, 0, kagzi.ID("x"))
	k.Signal(run, goOn.With("a"))
	k.Signal(run, goOn.With("b"))
	kit.FailureOf(k, run, kagzi.StatusFailed)
	if err := k.Client.Signal(k.Ctx, run, goOn.With("c")); !errors.Is(err, kagzi.ErrRunFinished) {
		t.Errorf("a signal to the failed run: %v", err)
	}
	broken = false
	k.Resume(run)
	if got := kit.ResultOf(k, run); got != "b in epoch 1" {
		t.Errorf("resumed: %q", got)
	}
	a := admin.New(k.Client)
	forked, err := a.Runs.Fork(k.Ctx, run, "step")
	if err != nil {
		t.Fatal(err)
	}
	if got := kit.ResultOf(k, kit.Find(t, k.Client, wf, forked)); got != "b in epoch 1" {
		t.Errorf("forked: %q", got)
	}
	whole, err := a.Runs.Fork(k.Ctx, run, "go on")
	if err != nil {
		t.Fatal(err)
	}
	if got := kit.ResultOf(k, kit.Find(t, k.Client, wf, whole)); got != "b in epoch 1" {
		t.Errorf("forked before the message: %q", got) // "a" belongs to the epoch before
	}
	again, err := a.Runs.Restart(k.Ctx, run)
	if err != nil {
		t.Fatal(err)
	}
	k.Signal(again, goOn.With("d"))
	if got := kit.ResultOf(k, kit.Find(t, k.Client, wf, again)); got != "d in epoch 1" {
		t.Errorf("restarted: %q", got)
	}
	if id := kit.Begin(k, wf, 0, kagzi.ID("y")).ID(); id == run.ID() {
		t.Error("another ID gave the same run")
	}
}

// A run that is paused while it continues rests in its next epoch, and a run of a batch continues with an input.
func TestPausedWhileItContinues(t *testing.T) {
	k := kit.New(t)
	batch := kagzi.Define[[]int, string]("batch")
	w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{})
	begun, goes := make(chan struct{}), make(chan struct{})
	kagzi.Handle(w, batch, func(ctx kagzi.Context, items []int) (string, error) {
		if len(items) < 4 {
			return "", kagzi.Continue(ctx, append(items, 7))
		}
		return fmt.Sprint(items), nil
	})
	kagzi.Handle(w, wf, func(ctx kagzi.Context, n int) (string, error) {
		if n == 0 {
			close(begun)
			<-goes
			return "", kagzi.Continue(ctx, 1)
		}
		return "continued", nil
	})
	kit.StartWorker(t, w)
	run := kit.Begin(k, wf, 0)
	await.Opened(t, begun)
	a := admin.New(k.Client)
	if err := a.Runs.Pause(k.Ctx, run); err != nil {
		t.Fatal(err)
	}
	close(goes)
	await.True(t, "the run has continued", func() bool { return k.InfoOf(run).Epoch == 1 })
	if info := k.InfoOf(run); info.Status != kagzi.StatusPending || info.PausedAt.IsZero() {
		t.Errorf("got %+v", info)
	}
	if err := a.Runs.Unpause(k.Ctx, run); err != nil {
		t.Fatal(err)
	}
	if got := kit.ResultOf(k, run); got != "continued" {
		t.Errorf("got %q", got)
	}
	var of *kagzi.Run[string]
	for i := range 2 {
		var err error
		of, err = kagzi.StartItem(k.Ctx, k.Client, batch, i, kagzi.Batch{Most: 2, Within: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
	}
	if got := kit.ResultOf(k, of); got != "[0 1 7 7]" {
		t.Errorf("got %q", got)
	}
}

// An open transaction has stored a signal while its run continues. The next epoch reads it.
func TestSignalOfAnOpenTransaction(t *testing.T) {
	k := kit.New(t)
	begun, goes := make(chan struct{}), make(chan struct{})
	serve(k, func(ctx kagzi.Context, n int) (string, error) {
		if n == 0 {
			close(begun)
			<-goes
			return "", kagzi.Continue(ctx, 1)
		}
		return kagzi.WaitSignal(ctx, goOn)
	})
	run := kit.Begin(k, wf, 0)
	await.Opened(t, begun)
	tx := k.CallersTx()
	k.Signal(run, goOn.With("late"), kagzi.InTx(tx))
	close(goes)
	await.True(t, "the worker waits for the transaction", func() bool {
		return dbtest.LockWaiters(t, k.Pool) > 0
	})
	kit.CommitTx(t, tx)
	if got := kit.ResultOf(k, run); got != "late" {
		t.Errorf("got %q", got)
	}
}

// A step of each epoch asks another run: the answers of an earlier epoch are not taken for those of a later one.
func TestAsksOfEpochs(t *testing.T) {
	k := kit.New(t)
	counter := kagzi.Define[int, string]("counter")
	w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{})
	kagzi.Handle(w, counter, func(ctx kagzi.Context, n int) (string, error) {
		for i := 0; ; i++ {
			r, err := request.Wait(ctx, add)
			if err != nil || r.In < 0 {
				return "", errors.Join(err, r.Reply(ctx, 0))
			}
			if err := r.Reply(ctx, 10*r.In); err != nil {
				return "", err
			}
		}
	})
	kagzi.Handle(w, wf, func(ctx kagzi.Context, n int) (string, error) {
		got, err := request.AskStep(ctx, "ask", kagzi.ID("counter"), add.With(n))
		if err == nil && got != 10*n {
			err = fmt.Errorf("epoch %d got %d", n, got)
		}
		if err == nil && n < 3 {
			err = kagzi.Continue(ctx, n+1)
		}
		return fmt.Sprint(got), err
	})
	kit.StartWorker(t, w)
	other := kit.Begin(k, counter, 0, kagzi.ID("counter"))
	if got := kit.ResultOf(k, kit.Begin(k, wf, 0)); got != "30" {
		t.Errorf("got %q", got)
	}
	if _, err := request.Ask(k.Ctx, k.Client, other, add.With(-1)); err != nil {
		t.Error(err)
	}
	kit.ResultOf(k, other)
	if got := names(k, other, kagzi.StepFilter{Steps: []string{"add"}}); !slices.Equal(got, []string{"add"}) {
		t.Errorf("got %q", got)
	}
}
