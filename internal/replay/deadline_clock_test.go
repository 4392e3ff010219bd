package replay_test

import (
	"context"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/replay"
)

// TestDeadlineGoesByTheClock fires the timer of a run's deadline early, as happens if the database's clock was set back
// after the timer was set. The run does not fail.
func TestDeadlineGoesByTheClock(t *testing.T) {
	k := kit.New(t)
	wf := kagzi.Define[int, int]("wf", kit.NoRetry)
	roots, begun, open := make(chan *replay.Branch, 10), make(chan bool), make(chan bool)
	kit.Serve(k, wf, func(ctx kagzi.Context, _ int) (int, error) {
		roots <- branchOf(ctx)
		return 7, kagzi.Do(ctx, "step", func(ctx context.Context) error {
			begun <- true
			await.Opened(t, open)
			return ctx.Err()
		})
	})
	run := kit.Begin(k, wf, 1, kagzi.Timeout(time.Hour))
	await.Receive(t, begun)
	replay.DeadlineFires(<-roots)
	close(open)
	if got := kit.ResultOf(k, run); got != 7 {
		t.Errorf("got %d", got)
	}
}

// branchOf returns the branch of a workflow's Context.
func branchOf(ctx kagzi.Context) *replay.Branch {
	return ctx.(interface{ Engine() *replay.Branch }).Engine()
}
