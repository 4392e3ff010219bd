package kagzi

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// A transactional step is the first thing that a branch of a Map records, and the worker dies once it has committed. The
// run is cancelled: what the step returned is known to the undo.
func TestMapBegunByStepTx(t *testing.T) {
	k := newKit(t)
	wf := Define[struct{}, int]("wf", noRetry)
	var refunded atomic.Int64
	var dead atomic.Bool
	hang, hung := make(chan struct{}), make(chan struct{})
	defer close(hang)
	code := func(ctx Context, _ struct{}) (int, error) {
		paid := make([]int, 1)
		Compensate(ctx, "refund", func(context.Context) error {
			refunded.Add(int64(paid[0]))
			return nil
		})
		_, err := Map(ctx, "pay", []int{7}, func(ctx Context, n int) (_ int, err error) {
			paid[0], err = StepTx(ctx, "charge", func(context.Context, pgx.Tx) (int, error) { return n, nil })
			return 0, err
		})
		return 0, err
	}
	cfg := WorkerConfig{PollInterval: 50 * time.Millisecond, Heartbeat: time.Hour, StaleAfter: 24 * time.Hour, VisibilityTimeout: 24 * time.Hour, NoCoordinator: true}
	w := newTestWorker(t, quietClient(t, k.pool), cfg)
	Handle(w, wf, code)
	w.failpoint = func(point string, _ uuid.UUID) {
		if point == "after record" && dead.CompareAndSwap(false, true) {
			close(hung)
			<-hang // the process is taken for dead
		}
	}
	startWorker(t, w)
	run := begin(k, wf, struct{}{})
	<-hung
	k.takeAway(run.ID(), "rescue")
	if err := run.Cancel(k.ctx); err != nil {
		t.Fatal(err)
	}
	cfg.Queue = "rescue"
	rescuer := newTestWorker(t, quietClient(t, k.pool), cfg)
	Handle(rescuer, wf, code)
	startWorker(t, rescuer)
	failureOf(k, run, StatusCancelled)
	if n := refunded.Load(); n != 7 {
		t.Errorf("refunded %d of the 7 that were charged", n)
	}
}
