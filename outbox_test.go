package kagzi

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// TestRegistrationDoesNotOvertakeABusyStart has the start of a child, for which nobody waits, meet somebody's open transaction
// and come again 100 ms later. What follows it must not be there without it.
func TestRegistrationDoesNotOvertakeABusyStart(t *testing.T) {
	k := newKit(t)
	child := Define[struct{}, string]("child", Queue("kids"))
	wf := Define[struct{}, string]("wf", noRetry)
	registered := func() (yes bool) { // also by the worker's goroutines, which a failed test must not end
		err := k.pool.QueryRow(context.Background(), `SELECT EXISTS (SELECT FROM kagzi.step_runs WHERE step_kind = 'COMPENSATION')`).Scan(&yes)
		return yes && err == nil
	}
	code := func(locked, free <-chan struct{}) func(Context, struct{}) (string, error) {
		return func(ctx Context, _ struct{}) (string, error) {
			<-locked
			if _, err := StartChild(ctx, "child", child, struct{}{}); err != nil {
				return "", err
			}
			<-free
			Compensate(ctx, "undo", cancelBooking.With("it"))
			return "", sleepLong(ctx)
		}
	}
	var frozen atomic.Bool
	locked, free, thaw, busy := make(chan struct{}), make(chan struct{}), make(chan struct{}), make(chan bool, 100)
	defer close(thaw)
	w := newTestWorker(t, newTestClient(t, k.pool), unwatched)
	Handle(w, wf, code(locked, free))
	failpoint(t, w, func(point string, _ uuid.UUID) {
		switch {
		case point == "after flush" && !frozen.Load():
			busy <- true
		case (point == "before flush" || point == "after flush") && registered():
			<-thaw // the process hangs from here on, to be taken for dead
		}
	})
	startWorker(t, w)
	run := begin(k, wf, struct{}{})
	k.waitStatus(run.ID(), StatusRunning)
	tx := locking(t, k.pool, lockRun, string(run.ID()))
	close(locked)
	<-busy
	rollbackTx(t, tx)
	frozen.Store(true)
	close(free)
	waitFor(t, "the compensation is registered", registered)
	if n := k.count(`SELECT count(*) FROM kagzi.step_runs s JOIN kagzi.workflow_runs c ON c.run_id = s.child_run_id WHERE s.step_id = 'child'`); n != 1 {
		t.Errorf("%d children are started, and what follows is recorded", n)
	}
	k.takeAway(run.ID())
	k.cancel(run.ID())
	rescue(k, wf, code(nil, nil))
	j := &journal{}
	serveCancellations(k, j, nil)
	failureOf(k, run, StatusCancelled)
	j.want(t, "cancel:it")
}

// TestStepDoesNotOvertakeABusyDecision has what a branch read go with the next record below it, which meets somebody's open
// transaction (busy) and comes again 100 ms later; the branch's own next step, recorded in between, must not be there without it.
func TestStepDoesNotOvertakeABusyDecision(t *testing.T) {
	k := newKit(t)
	wf := Define[struct{}, string]("wf", RetryPolicy{MaxAttempts: 1})
	// Asked at each commit. What a sequence has counted stays when a transaction is rolled back.
	k.exec(`CREATE SEQUENCE overtaken`)
	k.exec(`CREATE FUNCTION witness() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
			IF NOT EXISTS (SELECT FROM kagzi.step_runs WHERE run_id = NEW.run_id AND step_id = 'approved' AND status = 'COMPLETED') THEN PERFORM nextval('overtaken'); END IF;
			RETURN NULL;
		END $$`)
	k.exec(`CREATE CONSTRAINT TRIGGER witness AFTER INSERT OR UPDATE ON kagzi.step_runs DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
		WHEN (NEW.step_id = 'handle' AND NEW.status = 'COMPLETED') EXECUTE FUNCTION witness()`)
	read, locked, stepDone, otherDone := make(chan bool), make(chan bool), make(chan bool), make(chan bool)
	hang := make(chan bool)
	fn := func(ctx Context, _ struct{}) (string, error) {
		Go(ctx, "other", func(ctx Context) (int, error) {
			err := Do(ctx, "s", func(context.Context) error { <-locked; return nil })
			close(otherDone)
			return 0, err
		})
		m, err := WaitSignal(ctx, approved)
		if err != nil {
			return "", err
		}
		close(read)
		if _, err := Step(ctx, "handle", func(context.Context) (string, error) { <-stepDone; return m, nil }); err != nil {
			return "", err
		}
		return m, Do(ctx, "hang", func(context.Context) error { <-hang; return nil })
	}
	w := newTestWorker(t, newTestClient(t, k.pool), told)
	Handle(w, wf, fn)
	busy := make(chan bool, 100)
	failpoint(t, w, func(point string, _ uuid.UUID) {
		if point == "after flush" {
			select {
			case busy <- true:
			default:
			}
		}
	})
	startWorker(t, w)
	run := begin(k, wf, struct{}{}, approved.With("m1"))
	<-read
	tx := locking(t, k.pool, lockRun, string(run.ID()))
	for len(busy) > 0 {
		<-busy
	}
	close(locked)
	<-busy // the other branch's record was found busy
	rollbackTx(t, tx)
	close(stepDone)
	waitFor(t, "the step is recorded", func() bool {
		return k.count(`SELECT count(*) FROM kagzi.step_runs WHERE step_id = 'handle' AND status = 'COMPLETED'`) == 1
	})
	close(hang)
	if got := resultOf(k, run); got != "m1" {
		t.Errorf("got %q", got)
	}
	if k.count(`SELECT count(*) FROM overtaken WHERE is_called`) > 0 {
		t.Error("the step that follows from a message was recorded before the reading of the message: after a crash then, it is read again")
	}
}

// TestStepTxDoesNotOvertakeADecision has what a run learned be on its way to the table, with another branch's record, while a
// transactional step that follows from it commits. The worker dies in between.
func TestStepTxDoesNotOvertakeADecision(t *testing.T) {
	child := Define[struct{}, string]("child", Queue("kids"))
	wf := Define[struct{}, string]("wf")
	k := newKit(t)
	k.exec(`CREATE TABLE refunds (n int)`)
	// What a sequence has counted stays when a transaction is rolled back.
	k.exec(`CREATE SEQUENCE overtaken`)
	k.exec(`CREATE FUNCTION witness() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
			IF NOT EXISTS (SELECT FROM kagzi.step_runs WHERE step_id = 'child' AND status = 'COMPLETED') THEN PERFORM nextval('overtaken'); END IF;
			RETURN NEW;
		END $$`)
	k.exec(`CREATE TRIGGER witness BEFORE INSERT ON refunds FOR EACH ROW EXECUTE FUNCTION witness()`)
	j := &journal{}
	asked := make(chan bool, 1)
	var dies, repaired atomic.Bool
	var hung <-chan struct{}
	code := func(mine bool) func(ctx Context, _ struct{}) (string, error) {
		return func(ctx Context, _ struct{}) (string, error) {
			c, err := StartChild(ctx, "child", child, struct{}{})
			if err != nil {
				return "", err
			}
			Go(ctx, "other", func(ctx Context) (int, error) {
				return 0, Do(ctx, "s", func(context.Context) error {
					if mine {
						<-asked // the parent knows how the child ended
						dies.Store(true)
					}
					return nil
				})
			})
			_, err = c.Result(ctx)
			j.add("child:" + map[bool]string{true: "ok", false: "failed"}[err == nil])
			if mine {
				asked <- true
				<-hung // with the other branch's record
			}
			if err != nil {
				return "refunded", DoTx(ctx, "refund", func(ctx context.Context, tx pgx.Tx) error {
					_, err := tx.Exec(ctx, `INSERT INTO refunds VALUES (1)`)
					return err
				})
			}
			return "shipped", Do(ctx, "ship", func(context.Context) error { j.add("ship"); return nil })
		}
	}
	w := newTestWorker(t, newTestClient(t, k.pool), unwatched)
	Handle(w, wf, code(true))
	hung, release := hangAt(t, w, "before flush", dies.Load)
	startWorker(t, w)
	defer release()
	// the child's worker, on another queue
	cw := newTestWorker(t, newTestClient(t, k.pool), WorkerConfig{Queue: "kids", PollInterval: 50 * time.Millisecond, NoCoordinator: true})
	Handle(cw, child, func(ctx Context, _ struct{}) (string, error) {
		if !repaired.Load() {
			return "", Permanent(errors.New("no"))
		}
		return "fine", nil
	})
	startWorker(t, cw)
	run := begin(k, wf, struct{}{})
	receive(t, hung)
	// The first worker is taken for dead, and the child was resumed meanwhile.
	repaired.Store(true)
	kid := k.childOf(run.ID(), "child")
	k.resume(kid.ID)
	k.waitStatus(kid.ID, StatusCompleted)
	k.takeAway(run.ID())
	rescue(k, wf, code(false))
	if got := resultOf(k, run); got != "shipped" {
		t.Errorf("got %q", got)
	}
	j.want(t, "child:failed child:ok ship")
	if k.count(`SELECT count(*) FROM overtaken WHERE is_called`) > 0 || k.count(`SELECT count(*) FROM refunds`) > 0 {
		t.Error("the run has refunded, and what the refund follows from was not recorded before")
	}
}
