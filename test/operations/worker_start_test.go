package operations_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
)

// started starts a worker with a gate.
func started(k *kit.Kit) (w *kagzi.Worker, g *kit.Gate) {
	k.T.Helper()
	w, g = kit.NewWorker(k.T, k.Client, kagzi.WorkerConfig{}), kit.NewGate()
	g.Handle(w)
	if err := w.Start(k.Ctx); err != nil {
		k.T.Fatal(err)
	}
	k.T.Cleanup(func() { _ = w.Stop(context.Background()) })
	return w, g
}

// Start's context ends, and the worker works on; Stop drains it, and it may start again.
func TestStartAndStop(t *testing.T) {
	k := kit.New(t)
	w, g := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{}), kit.NewGate()
	g.Handle(w)
	close(g.Open)
	if err := w.Stop(k.Ctx); err != nil || w.Done() != nil {
		t.Errorf("before Start: %v, %v", err, w.Done())
	}
	for range 2 {
		ctx, cancel := context.WithCancel(k.Ctx)
		if err := w.Start(ctx); err != nil {
			t.Fatal(err)
		}
		cancel()
		if n := k.Count(`SELECT count(*) FROM kagzi.workers WHERE status = 'ONLINE'`); n != 1 {
			t.Errorf("%d workers are online when Start returns", n)
		}
		if err := w.Start(k.Ctx); err == nil {
			t.Error("it started twice")
		} else {
			kit.MustContain(t, err, "running already")
		}
		kit.ResultOf(k, kit.Begin(k, g.Workflow, 1))
		for range 2 {
			if err := w.Stop(k.Ctx); err != nil {
				t.Error(err)
			}
		}
		await.Receive(t, w.Done())
		if n := k.Count(`SELECT count(*) FROM kagzi.workers WHERE status = 'ONLINE'`); n != 0 {
			t.Errorf("%d workers are online when Stop returns", n)
		}
	}
}

// If the context of Stop ends, the worker goes on stopping.
func TestStopIsBounded(t *testing.T) {
	k := kit.New(t)
	w, g := started(k)
	run := kit.Begin(k, g.Workflow, 1)
	await.Receive(t, g.Begun)
	late, ctx := errors.New("late"), k.Ctx
	ctx, cancel := context.WithCancelCause(ctx)
	cancel(late)
	if err := w.Stop(ctx); !errors.Is(err, late) {
		t.Errorf("got %v", err)
	}
	close(g.Open)
	if err := w.Stop(k.Ctx); err != nil {
		t.Error(err)
	}
	kit.ResultOf(k, run)
}

func TestDrainedWorkerIsDone(t *testing.T) {
	k := kit.New(t)
	w, g := started(k)
	close(g.Open)
	page, _, err := admin.New(k.Client).Workers.List(k.Ctx, admin.WorkerFilter{})
	if err != nil {
		t.Fatal(err)
	}
	if err := admin.New(k.Client).Workers.Drain(k.Ctx, page[0].ID); err != nil {
		t.Fatal(err)
	}
	await.Receive(t, w.Done())
	if err := w.Stop(k.Ctx); err != nil {
		t.Error(err)
	}
}

func TestStartReturnsTheErrorsOfRun(t *testing.T) {
	t.Parallel()
	w := kit.NewWorker(t, kit.NewClient(t, kit.Unreachable(t)), kagzi.WorkerConfig{})
	kit.MustContain(t, w.Start(t.Context()), "no handler", "kagzi.Handle")
	kit.NewGate().Handle(w)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := w.Start(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a database that does not answer: %v", err)
	}
	if err := w.Stop(t.Context()); err != nil || w.Done() != nil {
		t.Errorf("after a start that failed: %v, %v", err, w.Done())
	}
	for _, none := range []*kagzi.Worker{nil, {}} {
		kit.MustContain(t, none.Start(t.Context()), "NewWorker")
		kit.MustContain(t, none.Stop(t.Context()), "NewWorker")
		if none.Done() != nil {
			t.Error("a worker that is none is done")
		}
	}
}
