package kagzi

import (
	"context"
	"errors"
	"testing"
	"time"
)

var (
	doubling  = Define[int, int]("doubling")
	parenting = Define[int, int]("parenting")
)

// family serves fn as the parent's code, and a worker of its own for what has children's code.
func family[In, Out any](k *kit, parent Workflow[In, Out], fn func(Context, In) (Out, error), children func(*Worker)) {
	k.t.Helper()
	w := newTestWorker(k.t, k.c, WorkerConfig{PollInterval: time.Hour})
	Handle(w, parent, fn)
	children(w)
	startWorker(k.t, w)
}

func handleDoubling(w *Worker) {
	Handle(w, doubling, func(ctx Context, n int) (int, error) {
		if n < 0 {
			return 0, Permanent(errors.New("negative"))
		}
		return Step(ctx, "double", func(context.Context) (int, error) { return 2 * n, nil })
	})
}

func TestChild(t *testing.T) {
	t.Parallel()
	t.Run("Result", func(t *testing.T) {
		k := newKit(t)
		family(k, parenting, func(ctx Context, n int) (int, error) {
			return RunChild(ctx, "child", doubling, n)
		}, handleDoubling)
		if got := resultOf(k, begin(k, parenting, 21)); got != 42 {
			t.Errorf("got %d", got)
		}
	})
	t.Run("Thousand", func(t *testing.T) {
		k := newKit(t)
		family(k, parenting, func(ctx Context, n int) (int, error) {
			children := make([]*Child[int], n)
			for i := range children {
				var err error
				if children[i], err = StartChild(ctx, "child", doubling, i); err != nil {
					return 0, err
				}
			}
			out, err := Results(ctx, children)
			sum := 0
			for _, n := range out {
				sum += n
			}
			return sum, err
		}, handleDoubling)
		begun := time.Now()
		if got := resultOf(k, begin(k, parenting, 1000)); got != 999000 {
			t.Errorf("got %d", got)
		}
		t.Log(time.Since(begun))
	})
}
