package kagzi

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/kagzi/kagzi/internal/testhook"
)

// soonEnough is how long an operation may take while another transaction holds a lock that it can do without.
const soonEnough = 10 * time.Second

// compensatePass lets a coordinator start the compensations that are due, once.
func compensatePass(k *kit) (pause time.Duration, err error) {
	k.t.Helper()
	k.passes(func(p testhook.Passes) { pause, err = p.Compensate(k.ctx) })
	return pause, err
}

// TestLockedRunHoldsUpNoCompensations locks a run whose next compensation is due, in an open transaction: a coordinator
// goes on with the other runs.
func TestLockedRunHoldsUpNoCompensations(t *testing.T) {
	k := newKit(t)
	j := &journal{}
	goOn := make(chan struct{})
	stop := serve(k, travel, trip(j, breaks))
	serveCancellations(k, j, func(string) error { <-goOn; return nil })
	locked, other := begin(k, travel, 1), begin(k, travel, 2)
	for _, r := range []*Run[int]{locked, other} {
		k.waitStatus(r.ID(), StatusSleeping, "compensation car")
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	k.exec(`UPDATE kagzi.workflow_runs SET available_at = now() - interval '1 min' WHERE run_id = $1`, string(locked.ID()))
	k.exec(`UPDATE kagzi.workflow_runs SET available_at = now() WHERE run_id = $1`, string(other.ID()))
	tx := locking(t, k.pool, lockRun, string(locked.ID()))
	begun := time.Now()
	if _, err := compensatePass(k); err != nil {
		t.Error(err)
	}
	if took := time.Since(begun); took > soonEnough {
		t.Errorf("the pass took %v", took)
	}
	if n := k.count(`SELECT count(*) FROM kagzi.workflow_runs WHERE run_id = $1 AND available_at = 'infinity'`, string(other.ID())); n != 1 {
		t.Error("the other run's step was not taken")
	}
	rollbackTx(t, tx)
	close(goOn)
	failureOf(k, locked, StatusFailed)
	failureOf(k, other, StatusFailed)
}

// TestLockedRunHoldsUpNoDrain locks a run, in an open transaction, when its outcome is decided: the worker that is to
// start the first compensation drains all the same, and a coordinator starts it.
func TestLockedRunHoldsUpNoDrain(t *testing.T) {
	k := newKit(t)
	j := &journal{}
	w := newTestWorker(t, newTestClient(t, k.pool), WorkerConfig{NoCoordinator: true})
	Handle(w, travel, trip(j, breaks))
	tx, locked := k.callersTx(), make(chan struct{})
	failpoint(t, w, func(point string, _ uuid.UUID) {
		select {
		case <-locked:
			return
		default:
		}
		if point == "after flush" && k.count(`SELECT count(*) FROM kagzi.workflow_runs WHERE outcome IS NOT NULL`) > 0 {
			if _, err := tx.Exec(k.ctx, lockRuns); err != nil {
				t.Error(err)
			}
			close(locked)
		}
	})
	stop := startWorker(t, w)
	run := begin(k, travel, 7)
	<-locked
	begun := time.Now()
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begun); took > soonEnough {
		t.Errorf("the drain took %v", took)
	}
	rollbackTx(t, tx)
	serveCancellations(k, j, nil)
	if _, err := compensatePass(k); err != nil {
		t.Error(err)
	}
	failureOf(k, run, StatusFailed)
	j.want(t, undone)
}
