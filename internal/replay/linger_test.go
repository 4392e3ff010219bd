package replay_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/replay"
)

// TestAParentLeavesItsChildTheOnlySlot runs children one after the other on a worker with one slot, which their parent
// occupies while it is in memory.
func TestAParentLeavesItsChildTheOnlySlot(t *testing.T) {
	k := kit.New(t)
	parent, child := kagzi.Define[int, int]("parent"), kagzi.Define[int, int]("child")
	w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{MaxConcurrent: 1})
	kagzi.Handle(w, child, func(_ kagzi.Context, n int) (int, error) { return n, nil })
	kagzi.Handle(w, parent, func(ctx kagzi.Context, n int) (int, error) {
		sum := 0
		for i := range n {
			replay.LingerLong(branchOf(ctx))
			one, err := kagzi.RunChild(ctx, fmt.Sprint("c", i), child, i)
			if err != nil {
				return 0, err
			}
			sum += one
		}
		return sum, nil
	})
	kit.StartWorker(t, w)
	if got := kit.ResultOf(k, kit.Begin(k, parent, 5)); got != 10 {
		t.Errorf("got %d", got)
	}
}

// TestAParentThatLingersGoesWhenTheLastSlotIsTaken lets a parent stay in memory while a slot is free, and then another
// run occupy that slot: the parent is suspended.
func TestAParentThatLingersGoesWhenTheLastSlotIsTaken(t *testing.T) {
	k := kit.New(t)
	parent, hog, child := kagzi.Define[int, int]("parent"), kagzi.Define[int, int]("hog"),
		kagzi.Define[int, int]("child", kagzi.Queue("nobody's"))
	w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{MaxConcurrent: 2})
	roots := make(chan *replay.Branch, 10)
	kagzi.Handle(w, parent, func(ctx kagzi.Context, n int) (int, error) {
		replay.LingerLong(branchOf(ctx))
		roots <- branchOf(ctx)
		return kagzi.RunChild(ctx, "c", child, n)
	})
	done := make(chan struct{})
	defer close(done)
	kagzi.Handle(w, hog, func(ctx kagzi.Context, _ int) (int, error) {
		return 0, kagzi.Do(ctx, "hold", func(ctx context.Context) error {
			select {
			case <-done:
			case <-ctx.Done():
			}
			return nil
		})
	})
	kit.StartWorker(t, w)
	run := kit.Begin(k, parent, 1)
	root := await.Receive(t, roots)
	await.True(t, "the parent lingers", func() bool { return replay.Lingers(root) })
	kit.Begin(k, hog, 1)
	k.WaitStatus(run.ID(), kagzi.StatusSleeping)
}
