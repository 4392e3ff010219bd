package crash_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
)

// TestRegistrationDoesNotOvertakeABusyStart has the start of a child, for which no code waits, meet a caller's open
// transaction and be tried again 100 ms later. Later writes must not be committed before it.
func TestRegistrationDoesNotOvertakeABusyStart(t *testing.T) {
	k := kit.New(t)
	child := kagzi.Define[struct{}, string]("child", kagzi.Queue("kids"))
	wf := kagzi.Define[struct{}, string]("wf", kit.NoRetry)
	registered := func() (yes bool) { // also by the worker's goroutines, which a failed test must not end
		err := k.Pool.QueryRow(context.Background(),
			`SELECT EXISTS (SELECT FROM kagzi.step_runs WHERE step_kind = 'COMPENSATION')`).Scan(&yes)
		return yes && err == nil
	}
	code := func(locked, free <-chan struct{}) func(kagzi.Context, struct{}) (string, error) {
		return func(ctx kagzi.Context, _ struct{}) (string, error) {
			await.Opened(t, locked)
			if _, err := kagzi.StartChild(ctx, "child", child, struct{}{}); err != nil {
				return "", err
			}
			await.Opened(t, free)
			kagzi.Compensate(ctx, "undo", kit.CancelBooking.With("it"))
			return "", kit.SleepLong(ctx)
		}
	}
	var frozen atomic.Bool
	locked, free, thaw, busy := make(chan struct{}), make(chan struct{}), make(chan struct{}), make(chan bool, 100)
	defer close(thaw)
	w := kit.NewWorker(t, kit.NewClient(t, k.Pool), kit.Unmonitored)
	kagzi.Handle(w, wf, code(locked, free))
	kit.Failpoint(t, w, func(point string, _ uuid.UUID) {
		switch {
		case point == "after flush" && !frozen.Load():
			busy <- true
		case (point == "before flush" || point == "after flush") && registered():
			await.Opened(t, thaw) // the process hangs from here on, to be taken for dead
		}
	})
	kit.StartWorker(t, w)
	run := kit.Begin(k, wf, struct{}{})
	k.WaitStatus(run.ID(), kagzi.StatusRunning)
	tx := dbtest.BeginWith(t, k.Pool, kit.LockRun, string(run.ID()))
	close(locked)
	await.Receive(t, busy)
	kit.RollbackTx(t, tx)
	frozen.Store(true)
	close(free)
	await.True(t, "the compensation is registered", registered)
	if n := k.Count(`SELECT count(*) FROM kagzi.step_runs s JOIN kagzi.workflow_runs c ON c.run_id = s.child_run_id
		WHERE s.step_id = 'child'`); n != 1 {
		t.Errorf("%d children are started, and what follows is recorded", n)
	}
	k.TakeAway(run.ID())
	k.Cancel(run.ID())
	kit.Rescue(k, wf, code(nil, nil))
	j := &kit.Journal{}
	kit.ServeCancellations(k, j, nil)
	kit.FailureOf(k, run, kagzi.StatusCancelled)
	j.Want(t, "cancel:it")
}

// TestStepDoesNotOvertakeABusyDecision writes the messages that a branch read with the next record below it. That
// record meets a caller's open transaction (busy) and is tried again 100 ms later. The branch's own next step, recorded
// in between, must not be committed before it.
func TestStepDoesNotOvertakeABusyDecision(t *testing.T) {
	k := kit.New(t)
	wf := kagzi.Define[struct{}, string]("wf", kagzi.RetryPolicy{MaxAttempts: 1})
	// Asked at each commit. A rollback does not reset a sequence.
	k.Exec(`CREATE SEQUENCE overtaken`)
	k.Exec(`CREATE FUNCTION witness() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
			IF NOT EXISTS (SELECT FROM kagzi.step_runs WHERE run_id = NEW.run_id AND step_id = 'approved'
				AND status = 'COMPLETED') THEN PERFORM nextval('overtaken'); END IF;
			RETURN NULL;
		END $$`)
	k.Exec(`CREATE CONSTRAINT TRIGGER witness AFTER INSERT OR UPDATE ON kagzi.step_runs DEFERRABLE INITIALLY DEFERRED
		FOR EACH ROW
		WHEN (NEW.step_id = 'handle' AND NEW.status = 'COMPLETED') EXECUTE FUNCTION witness()`)
	read, locked, stepDone, otherDone := make(chan bool), make(chan bool), make(chan bool), make(chan bool)
	hang := make(chan bool)
	fn := func(ctx kagzi.Context, _ struct{}) (string, error) {
		kagzi.Go(ctx, "other", func(ctx kagzi.Context) (int, error) {
			err := kagzi.Do(ctx, "s", func(context.Context) error { await.Opened(t, locked); return nil })
			close(otherDone)
			return 0, err
		})
		m, err := kagzi.WaitSignal(ctx, kit.Approved)
		if err != nil {
			return "", err
		}
		close(read)
		if _, err := kagzi.Step(ctx, "handle", func(context.Context) (string, error) {
			await.Opened(t, stepDone)
			return m, nil
		}); err != nil {
			return "", err
		}
		return m, kagzi.Do(ctx, "hang", func(context.Context) error { await.Opened(t, hang); return nil })
	}
	w := kit.NewWorker(t, kit.NewClient(t, k.Pool), kit.NotifiedOnly)
	kagzi.Handle(w, wf, fn)
	busy := make(chan bool, 100)
	kit.Failpoint(t, w, func(point string, _ uuid.UUID) {
		if point == "after flush" {
			select {
			case busy <- true:
			default:
			}
		}
	})
	kit.StartWorker(t, w)
	run := kit.Begin(k, wf, struct{}{}, kit.Approved.With("m1"))
	await.Receive(t, read)
	tx := dbtest.BeginWith(t, k.Pool, kit.LockRun, string(run.ID()))
	for len(busy) > 0 {
		await.Receive(t, busy)
	}
	close(locked)
	await.Receive(t, busy) // the other branch's record was found busy
	kit.RollbackTx(t, tx)
	close(stepDone)
	await.True(t, "the step is recorded", func() bool {
		return k.Count(`SELECT count(*) FROM kagzi.step_runs WHERE step_id = 'handle' AND status = 'COMPLETED'`) == 1
	})
	close(hang)
	if got := kit.ResultOf(k, run); got != "m1" {
		t.Errorf("got %q", got)
	}
	if k.Count(`SELECT count(*) FROM overtaken WHERE is_called`) > 0 {
		t.Error("the step that follows from a message was recorded before the reading of the message: after a crash " +
			"then, it is read again")
	}
}

// TestStepTxDoesNotOvertakeADecision has what a run learned be on its way to the table, with another branch's record,
// while a transactional step that follows from it commits. The worker dies in between.
func TestStepTxDoesNotOvertakeADecision(t *testing.T) {
	child := kagzi.Define[struct{}, string]("child", kagzi.Queue("kids"))
	wf := kagzi.Define[struct{}, string]("wf")
	k := kit.New(t)
	k.Exec(`CREATE TABLE refunds (n int)`)
	// A rollback does not reset a sequence.
	k.Exec(`CREATE SEQUENCE overtaken`)
	k.Exec(`CREATE FUNCTION witness() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
			IF NOT EXISTS (SELECT FROM kagzi.step_runs WHERE step_id = 'child' AND status = 'COMPLETED')
				THEN PERFORM nextval('overtaken'); END IF;
			RETURN NEW;
		END $$`)
	k.Exec(`CREATE TRIGGER witness BEFORE INSERT ON refunds FOR EACH ROW EXECUTE FUNCTION witness()`)
	j := &kit.Journal{}
	asked := make(chan bool, 1)
	var dies, repaired atomic.Bool
	var hung <-chan struct{}
	code := func(mine bool) func(ctx kagzi.Context, _ struct{}) (string, error) {
		return func(ctx kagzi.Context, _ struct{}) (string, error) {
			c, err := kagzi.StartChild(ctx, "child", child, struct{}{})
			if err != nil {
				return "", err
			}
			kagzi.Go(ctx, "other", func(ctx kagzi.Context) (int, error) {
				return 0, kagzi.Do(ctx, "s", func(context.Context) error {
					if mine {
						await.Opened(t, asked) // the parent knows how the child ended
						dies.Store(true)
					}
					return nil
				})
			})
			_, err = c.Result(ctx)
			j.Add("child:" + map[bool]string{true: "ok", false: "failed"}[err == nil])
			if mine {
				asked <- true
				await.Opened(t, hung) // with the other branch's record
			}
			if err != nil {
				return "refunded", kagzi.DoTx(ctx, "refund", func(ctx context.Context, tx pgx.Tx) error {
					_, err := tx.Exec(ctx, `INSERT INTO refunds VALUES (1)`)
					return err
				})
			}
			return "shipped", kagzi.Do(ctx, "ship", func(context.Context) error { j.Add("ship"); return nil })
		}
	}
	w := kit.NewWorker(t, kit.NewClient(t, k.Pool), kit.Unmonitored)
	kagzi.Handle(w, wf, code(true))
	hung, release := kit.HangAt(t, w, "before flush", dies.Load)
	kit.StartWorker(t, w)
	defer release()
	// the child's worker, on another queue
	cw := kit.NewWorker(t, kit.NewClient(t, k.Pool),
		kagzi.WorkerConfig{Queue: "kids", PollInterval: 50 * time.Millisecond, NoCoordinator: true})
	kagzi.Handle(cw, child, func(ctx kagzi.Context, _ struct{}) (string, error) {
		if !repaired.Load() {
			return "", kagzi.Permanent(errors.New("no"))
		}
		return "fine", nil
	})
	kit.StartWorker(t, cw)
	run := kit.Begin(k, wf, struct{}{})
	await.Receive(t, hung)
	// The first worker is taken for dead, and the child was resumed meanwhile.
	repaired.Store(true)
	kid := k.ChildOf(run.ID(), "child")
	k.Resume(kid.ID)
	k.WaitStatus(kid.ID, kagzi.StatusCompleted)
	k.TakeAway(run.ID())
	kit.Rescue(k, wf, code(false))
	if got := kit.ResultOf(k, run); got != "shipped" {
		t.Errorf("got %q", got)
	}
	j.Want(t, "child:failed child:ok ship")
	if k.Count(`SELECT count(*) FROM overtaken WHERE is_called`) > 0 || k.Count(`SELECT count(*) FROM refunds`) > 0 {
		t.Error("the run has refunded, and what the refund follows from was not recorded before")
	}
}
