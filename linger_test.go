package kagzi

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/kagzi/kagzi/internal/dbtest"
)

// lingerLong has the run stay in memory for an hour when it waits for its children, if it may.
func lingerLong(ctx Context) {
	e := ctx.scope().b.e
	e.mu.Lock()
	e.lastEnd = time.Now().Add(time.Hour)
	e.mu.Unlock()
}

// TestAParentLeavesItsChildTheOnlySlot has children run one after the other on a worker with one slot, which their parent
// holds while it is in memory.
func TestAParentLeavesItsChildTheOnlySlot(t *testing.T) {
	t.Parallel()
	k := &kit{t: t, ctx: testContext(t), pool: dbtest.Pool(t)}
	k.c = clientWith(t, k.pool, ClientConfig{})
	parent, child := Define[int, int]("parent"), Define[int, int]("child")
	w := newTestWorker(t, k.c, WorkerConfig{MaxConcurrent: 1})
	Handle(w, child, func(_ Context, n int) (int, error) { return n, nil })
	Handle(w, parent, func(ctx Context, n int) (int, error) {
		sum := 0
		for i := range n {
			lingerLong(ctx)
			one, err := RunChild(ctx, fmt.Sprint("c", i), child, i)
			if err != nil {
				return 0, err
			}
			sum += one
		}
		return sum, nil
	})
	startWorker(t, w)
	if got := resultOf(k, begin(k, parent, 5)); got != 10 {
		t.Errorf("got %d", got)
	}
}

// TestAParentThatLingersGoesWhenTheLastSlotIsTaken has a parent stay in memory while a slot is free, and another run take it.
func TestAParentThatLingersGoesWhenTheLastSlotIsTaken(t *testing.T) {
	k := newKit(t)
	parent, hog, child := Define[int, int]("parent"), Define[int, int]("hog"), Define[int, int]("child", Queue("nobody's"))
	w := newTestWorker(t, k.c, WorkerConfig{MaxConcurrent: 2})
	Handle(w, parent, func(ctx Context, n int) (int, error) {
		lingerLong(ctx)
		return RunChild(ctx, "c", child, n)
	})
	done := make(chan struct{})
	defer close(done)
	Handle(w, hog, func(ctx Context, _ int) (int, error) {
		return 0, Do(ctx, "hold", func(ctx context.Context) error {
			select {
			case <-done:
			case <-ctx.Done():
			}
			return nil
		})
	})
	startWorker(t, w)
	run := begin(k, parent, 1)
	e := k.executionOf(k.c, run.ID())
	waitFor(t, "the parent lingers", func() bool {
		e.s.mu.Lock()
		defer e.s.mu.Unlock()
		return e.s.lingering[e]
	})
	begin(k, hog, 1)
	k.waitStatus(run.ID(), StatusSleeping)
}
