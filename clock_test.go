package kagzi

import (
	"context"
	"testing"
	"time"
)

func TestClockSaysWhenItWasSetForward(t *testing.T) {
	t.Parallel()
	var c clock
	begun := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	if c.set(begun) {
		t.Error("the first answer is a jump")
	}
	jump := c.jump()
	if c.set(begun.Add(clockJump / 2)) {
		t.Error("an answer that is a little ahead is a jump")
	}
	if c.set(begun.Add(-time.Hour)) {
		t.Error("a clock that was set back has jumped")
	}
	select {
	case <-jump:
		t.Fatal("who watches was told of no jump")
	default:
	}
	if !c.set(begun.Add(time.Hour)) {
		t.Error("an hour ahead is no jump")
	}
	<-jump
	select {
	case <-c.jump():
		t.Error("who watches from now on was told of the last jump")
	default:
	}
}

// A timer that fires early, because the database's clock was set back since, does not fail the run.
func TestDeadlineGoesByTheClock(t *testing.T) {
	k := newKit(t)
	wf := Define[int, int]("wf", noRetry)
	begun, open := make(chan bool), make(chan bool)
	serve(k, wf, func(ctx Context, _ int) (int, error) {
		return 7, Do(ctx, "step", func(ctx context.Context) error {
			begun <- true
			<-open
			return ctx.Err()
		})
	})
	run := begin(k, wf, 1, Timeout(time.Hour))
	<-begun
	k.executionOf(k.c, run.ID()).timeOver()
	close(open)
	if got := resultOf(k, run); got != 7 {
		t.Errorf("got %d", got)
	}
}
