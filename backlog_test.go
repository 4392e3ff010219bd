package kagzi

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
)

// The start of a child, for which nobody waits, meets somebody's open transaction and comes again 100 ms later. What
// follows it must not be there without it: a run that is cancelled after a crash would not come past the start to what is
// registered behind it.
func TestBusyStartOvertaken(t *testing.T) {
	k := newKit(t)
	child := Define[struct{}, string]("child", Queue("kids"))
	wf := Define[struct{}, string]("wf", noRetry)
	registered := func() (yes bool) { // also by the worker's goroutines, which a failed test must not end
		err := k.pool.QueryRow(context.Background(), `SELECT EXISTS (SELECT FROM kagzi.step_runs WHERE step_kind = 'COMPENSATION')`).Scan(&yes)
		return yes && err == nil
	}
	var undone atomic.Int64
	code := func(locked, free <-chan struct{}) func(Context, struct{}) (string, error) {
		return func(ctx Context, _ struct{}) (string, error) {
			<-locked
			if _, err := StartChild(ctx, "child", child, struct{}{}); err != nil {
				return "", err
			}
			<-free
			Compensate(ctx, "undo", func(context.Context) error {
				undone.Add(1)
				return nil
			})
			return "", sleepLong(ctx)
		}
	}
	past := make(chan struct{})
	close(past)

	var frozen atomic.Bool
	locked, free, thaw, busy := make(chan struct{}), make(chan struct{}), make(chan struct{}), make(chan bool, 100)
	defer close(thaw)
	cfg := WorkerConfig{PollInterval: 50 * time.Millisecond, Heartbeat: time.Hour, StaleAfter: 24 * time.Hour, VisibilityTimeout: 24 * time.Hour, NoCoordinator: true}
	w := newTestWorker(t, quietClient(t, k.pool), cfg)
	Handle(w, wf, code(locked, free))
	w.failpoint = func(point string, _ uuid.UUID) {
		switch {
		case point == "after flush" && !frozen.Load():
			busy <- true
		case (point == "before flush" || point == "after flush") && registered():
			<-thaw // the process hangs from here on, to be taken for dead
		}
	}
	startWorker(t, w)
	run := begin(k, wf, struct{}{})
	k.waitStatus(run.ID(), StatusRunning)
	tx, err := k.pool.Begin(k.ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(k.ctx, `SELECT FROM kagzi.workflow_runs WHERE run_id = $1 FOR UPDATE`, string(run.ID())); err != nil {
		t.Fatal(err)
	}
	close(locked)
	<-busy
	if err := tx.Rollback(k.ctx); err != nil {
		t.Fatal(err)
	}
	frozen.Store(true)
	close(free)
	waitFor(t, "the undo is registered", registered)
	k.takeAway(run.ID(), "rescue")
	if err := run.Cancel(k.ctx); err != nil {
		t.Fatal(err)
	}
	cfg.Queue = "rescue"
	rescuer := newTestWorker(t, quietClient(t, k.pool), cfg)
	Handle(rescuer, wf, code(past, past))
	startWorker(t, rescuer)
	failureOf(k, run, StatusCancelled)
	if n := undone.Load(); n != 1 {
		t.Errorf("the undo ran %d times", n)
	}
}

// takeAway makes the run due on another queue. Its worker does not hold it any more, and cannot extend its lease.
func (k *kit) takeAway(id RunID, queue string) {
	k.t.Helper()
	k.exec(`UPDATE kagzi.workflow_runs SET lease = gen_random_uuid(), available_at = now(), task_queue = $2 WHERE run_id = $1`, string(id), queue)
}
