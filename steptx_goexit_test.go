package kagzi

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// A step ends its goroutine, and a transactional one follows from that. The worker dies once it has committed, and the run is
// cancelled: what it returned is known to the undo.
func TestStepTxBehindAGoexit(t *testing.T) {
	k := newKit(t)
	wf := Define[struct{}, int]("wf", noRetry)
	var refunded atomic.Int64
	var dead atomic.Bool
	hang, hung := make(chan struct{}), make(chan struct{})
	defer close(hang)
	code := func(ctx Context, _ struct{}) (int, error) {
		var paid int
		Compensate(ctx, "refund", func(context.Context) error {
			refunded.Add(int64(paid))
			return nil
		})
		f := Go(ctx, "b", func(ctx Context) (int, error) {
			return 0, Do(ctx, "exits", func(context.Context) error { runtime.Goexit(); return nil })
		})
		if _, err := f.Result(ctx); err == nil {
			return 0, nil
		}
		var err error
		paid, err = StepTx(ctx, "charge", func(context.Context, pgx.Tx) (int, error) { return 7, nil })
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
