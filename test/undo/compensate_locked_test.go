package undo_test

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/testhook"
)

// soonEnough is how long an operation may take while another transaction holds a lock that it can do without.
const soonEnough = 10 * time.Second

// compensatePass lets a coordinator start the compensations that are due, once.
func compensatePass(k *kit.Kit) (pause time.Duration, err error) {
	k.T.Helper()
	k.Passes(func(p testhook.Passes) { pause, err = p.Compensate(k.Ctx) })
	return pause, err
}

// TestLockedRunHoldsUpNoCompensations locks a run whose next compensation is due, in an open transaction: a coordinator
// continues with the other runs.
func TestLockedRunHoldsUpNoCompensations(t *testing.T) {
	k := kit.New(t)
	j := &kit.Journal{}
	goOn := make(chan struct{})
	stop := kit.Serve(k, kit.Travel, kit.Trip(j, kit.Breaks))
	kit.ServeCancellations(k, j, func(string) error { await.Opened(t, goOn); return nil })
	locked, other := kit.Begin(k, kit.Travel, 1), kit.Begin(k, kit.Travel, 2)
	for _, r := range []*kagzi.Run[int]{locked, other} {
		k.WaitStatus(r.ID(), kagzi.StatusSleeping, "compensation car")
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	k.Exec(`UPDATE kagzi.workflow_runs SET available_at = now() - interval '1 min' WHERE run_id = $1`,
		string(locked.ID()))
	k.Exec(`UPDATE kagzi.workflow_runs SET available_at = now() WHERE run_id = $1`, string(other.ID()))
	tx := dbtest.BeginWith(t, k.Pool, kit.LockRun, string(locked.ID()))
	begun := time.Now()
	if _, err := compensatePass(k); err != nil {
		t.Error(err)
	}
	if took := time.Since(begun); took > soonEnough {
		t.Errorf("the pass took %v", took)
	}
	if n := k.Count(`SELECT count(*) FROM kagzi.workflow_runs WHERE run_id = $1 AND available_at = 'infinity'`,
		string(other.ID())); n != 1 {
		t.Error("the other run's step was not taken")
	}
	kit.RollbackTx(t, tx)
	close(goOn)
	kit.FailureOf(k, locked, kagzi.StatusFailed)
	kit.FailureOf(k, other, kagzi.StatusFailed)
}

// TestLockedRunHoldsUpNoDrain locks a run, in an open transaction, when its outcome is decided: the worker that is to
// start the first compensation drains all the same, and a coordinator starts it.
func TestLockedRunHoldsUpNoDrain(t *testing.T) {
	k := kit.New(t)
	j := &kit.Journal{}
	w := kit.NewWorker(t, kit.NewClient(t, k.Pool), kagzi.WorkerConfig{NoCoordinator: true})
	kagzi.Handle(w, kit.Travel, kit.Trip(j, kit.Breaks))
	tx, locked := k.CallersTx(), make(chan struct{})
	kit.Failpoint(t, w, func(point string, _ uuid.UUID) {
		select {
		case <-locked:
			return
		default:
		}
		if point == "after flush" && k.Count(`SELECT count(*) FROM kagzi.workflow_runs WHERE outcome IS NOT NULL`) > 0 {
			for _, sql := range dbtest.Instead(t, tx, kit.LockRuns) {
				if _, err := tx.Exec(k.Ctx, sql); err != nil {
					t.Error(err)
				}
			}
			close(locked)
		}
	})
	stop := kit.StartWorker(t, w)
	run := kit.Begin(k, kit.Travel, 7)
	await.Receive(t, locked)
	begun := time.Now()
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begun); took > soonEnough {
		t.Errorf("the drain took %v", took)
	}
	kit.RollbackTx(t, tx)
	kit.ServeCancellations(k, j, nil)
	if _, err := compensatePass(k); err != nil {
		t.Error(err)
	}
	kit.FailureOf(k, run, kagzi.StatusFailed)
	j.Want(t, kit.Compensated)
}
