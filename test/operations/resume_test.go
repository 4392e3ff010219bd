package operations_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/kit"
)

func TestResume(t *testing.T) {
	k := kit.New(t)
	wf := kagzi.Define[struct{}, int]("wf", kit.NoRetry)
	var good, bad atomic.Int64
	var broken atomic.Bool
	broken.Store(true)
	kit.Serve(k, wf, func(ctx kagzi.Context, _ struct{}) (int, error) {
		a, err := kagzi.Step(ctx, "good", kit.Once(&good, 1))
		if err != nil {
			return 0, err
		}
		b, err := kagzi.Step(ctx, "bad", func(context.Context) (int, error) {
			bad.Add(1)
			if broken.Load() {
				return 0, kagzi.Permanent(errors.New("down"))
			}
			return 2, nil
		})
		return a + b + 10*ctx.Attempt(), err
	})
	run := kit.Begin(k, wf, struct{}{}, kagzi.ID("x"))
	kit.FailureOf(k, run, kagzi.StatusFailed)
	broken.Store(false)
	k.Resume(kagzi.ID("x"))
	if got := kit.ResultOf(k, run); got != 23 || good.Load() != 1 || bad.Load() != 2 {
		t.Errorf("result %d after %d and %d calls; want 23 after 1 and 2", got, good.Load(), bad.Load())
	}
	if err := admin.New(k.Client).Runs.Resume(k.Ctx, run.ID()); !errors.Is(err, kagzi.ErrRunFinished) {
		t.Errorf("Resume of a completed run: %v", err)
	}
	if err := admin.New(k.Client).Runs.Resume(k.Ctx, kagzi.ID("nobody")); !errors.Is(err, kagzi.ErrNotFound) {
		t.Errorf("Resume of nothing: %v", err)
	}
	waiting := kit.Begin(k, wf, struct{}{}, kagzi.ID("x"), kagzi.Delay(time.Hour))
	if err := admin.New(k.Client).Runs.Resume(k.Ctx, waiting.ID()); !errors.Is(err, kagzi.ErrRunActive) {
		t.Errorf("Resume of an active run: %v", err)
	}
}

func TestResumeOfATakenIDIsAConflict(t *testing.T) {
	k := kit.New(t)
	wf := kagzi.Define[int, int]("wf", kit.NoRetry)
	kit.Serve(k, wf, func(_ kagzi.Context, n int) (int, error) { return 0, errors.New("no") })
	first := kit.Begin(k, wf, 1, kagzi.ID("x"))
	kit.FailureOf(k, first, kagzi.StatusFailed)
	kit.Begin(k, wf, 2, kagzi.ID("x"), kagzi.Delay(time.Hour))
	if err := admin.New(k.Client).Runs.Resume(k.Ctx, first.ID()); !errors.Is(err, kagzi.ErrIDConflict) {
		t.Errorf("got %v", err)
	}
	tx := k.CallersTx()
	if err := admin.New(k.Client).Runs.Resume(k.Ctx, first.ID(), kagzi.InTx(tx)); !errors.Is(err, kagzi.ErrIDConflict) {
		t.Errorf("got %v", err)
	}
	if _, err := tx.Exec(k.Ctx, "SELECT 1"); err != nil {
		t.Errorf("the conflict broke the caller's transaction: %v", err)
	}
}
