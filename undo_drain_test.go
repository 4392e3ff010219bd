package kagzi

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"
)

// TestUndoGoesOnElsewhere stops the worker in the middle of the undos.
func TestUndoGoesOnElsewhere(t *testing.T) {
	k := newKit(t)
	wf := Define[int, int]("trip", noRetry)
	var j journal
	reached := make(chan struct{})
	var stops atomic.Bool
	code := func(ctx Context, n int) (int, error) {
		Compensate(ctx, "first", func(context.Context) error {
			j.add("first")
			return nil
		})
		Compensate(ctx, "second", func(ctx context.Context) error {
			if stops.CompareAndSwap(false, true) {
				close(reached)
				<-ctx.Done()
				return ctx.Err()
			}
			j.add("second")
			return nil
		})
		Compensate(ctx, "third", func(context.Context) error {
			j.add("third")
			return nil
		})
		return 0, errors.New("no")
	}
	w := newTestWorker(t, k.c, WorkerConfig{DrainTimeout: time.Millisecond})
	Handle(w, wf, code)
	stop := startWorker(t, w)
	run := begin(k, wf, 1)
	<-reached
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	serve(k, wf, code)
	if re := failureOf(k, run, StatusFailed); re.Message != "no" {
		t.Errorf("ended with %v", re)
	}
	if got := j.String(); got != "third second first" {
		t.Errorf("called: %s", got)
	}
}

// TestDrainBeforeTheUndo has the drain's timeout come between the end of the function and its undos.
func TestDrainBeforeTheUndo(t *testing.T) {
	k := newKit(t)
	wf := Define[int, int]("wf", noRetry)
	ended := make(chan error, 2)
	var begun atomic.Bool
	w := newTestWorker(t, k.c, WorkerConfig{DrainTimeout: time.Millisecond})
	Handle(w, wf, func(ctx Context, _ int) (int, error) {
		Compensate(ctx, "undo", func(ctx context.Context) error {
			begun.Store(true)
			select {
			case <-ctx.Done():
				ended <- context.Cause(ctx)
			case <-time.After(6 * time.Second):
				ended <- errors.New("never told")
			}
			return ctx.Err()
		})
		return 0, errors.New("no")
	})
	hung, release := hangAt(w, "finish")
	stop := startWorker(t, w)
	defer release()
	run := begin(k, wf, 1)
	receive(t, hung)
	time.AfterFunc(500*time.Millisecond, release)
	from := time.Now()
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	t.Logf("drained in %v", time.Since(from))
	if info, _ := run.Info(k.ctx); info.Status != StatusPending {
		t.Errorf("the run is %s", info.Status)
	}
	if !begun.Load() {
		return
	}
	select {
	case err := <-ended:
		t.Logf("the undo was told: %v", err)
	default:
		t.Errorf("Run has returned, and the undo is still being executed")
		t.Logf("later: %v", <-ended)
	}
	info, _ := run.Info(k.ctx)
	t.Logf("run is %s", info.Status)
}
