package kagzi

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"
)

func TestResume(t *testing.T) {
	k := newKit(t)
	wf := Define[struct{}, int]("wf", noRetry)
	var good, bad atomic.Int64
	var broken atomic.Bool
	broken.Store(true)
	serve(k, wf, func(ctx Context, _ struct{}) (int, error) {
		a, err := Step(ctx, "good", once(&good, 1))
		if err != nil {
			return 0, err
		}
		b, err := Step(ctx, "bad", func(context.Context) (int, error) {
			bad.Add(1)
			if broken.Load() {
				return 0, Permanent(errors.New("down"))
			}
			return 2, nil
		})
		return a + b + 10*ctx.Attempt(), err
	})
	run := begin(k, wf, struct{}{}, ID("x"))
	failureOf(k, run, StatusFailed)
	broken.Store(false)
	k.resume(ID("x"))
	if got := resultOf(k, run); got != 23 || good.Load() != 1 || bad.Load() != 2 {
		t.Errorf("result %d after %d and %d calls; want 23 after 1 and 2", got, good.Load(), bad.Load())
	}
	if err := k.c.Resume(k.ctx, run.ID()); !errors.Is(err, ErrRunFinished) {
		t.Errorf("Resume of a completed run: %v", err)
	}
	if err := k.c.Resume(k.ctx, ID("nobody")); !errors.Is(err, ErrNotFound) {
		t.Errorf("Resume of nothing: %v", err)
	}
	waiting := begin(k, wf, struct{}{}, ID("x"), Delay(time.Hour))
	if err := k.c.Resume(k.ctx, waiting.ID()); !errors.Is(err, ErrRunActive) {
		t.Errorf("Resume of an active run: %v", err)
	}
}

func TestResumeOfATakenIDIsAConflict(t *testing.T) {
	k := newKit(t)
	wf := Define[int, int]("wf", noRetry)
	serve(k, wf, func(_ Context, n int) (int, error) { return 0, errors.New("no") })
	first := begin(k, wf, 1, ID("x"))
	failureOf(k, first, StatusFailed)
	begin(k, wf, 2, ID("x"), Delay(time.Hour))
	if err := k.c.Resume(k.ctx, first.ID()); !errors.Is(err, ErrIDConflict) {
		t.Errorf("got %v", err)
	}
	tx := k.callersTx()
	if err := k.c.Resume(k.ctx, first.ID(), InTx(tx)); !errors.Is(err, ErrIDConflict) {
		t.Errorf("got %v", err)
	}
	if _, err := tx.Exec(k.ctx, "SELECT 1"); err != nil {
		t.Errorf("the conflict broke the caller's transaction: %v", err)
	}
}
