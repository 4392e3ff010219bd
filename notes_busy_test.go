package kagzi

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
)

// What a branch read goes with the next record below it, which meets somebody's open transaction (busy) and comes again
// 100 ms later; the branch's own next step, recorded in between, must not be there without it.
func TestBusyDecisionOvertaken(t *testing.T) {
	k := newKit(t)
	wf := Define[struct{}, string]("wf", RetryPolicy{MaxAttempts: 1})
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
	w := newTestWorker(t, quietClient(t, k.pool), told)
	Handle(w, wf, fn)
	busy := make(chan bool, 100)
	w.failpoint = func(point string, _ uuid.UUID) {
		if point == "after flush" {
			select {
			case busy <- true:
			default:
			}
		}
	}
	startWorker(t, w)
	run := begin(k, wf, struct{}{}, approved.With("m1"))
	<-read
	tx, err := k.pool.Begin(k.ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(k.ctx, `SELECT FROM kagzi.workflow_runs WHERE run_id = $1 FOR UPDATE`, string(run.ID())); err != nil {
		t.Fatal(err)
	}
	for len(busy) > 0 {
		<-busy
	}
	close(locked)
	<-busy // the other branch's record was found busy
	if err := tx.Rollback(k.ctx); err != nil {
		t.Fatal(err)
	}
	close(stepDone)
	seen := false
	for end := time.Now().Add(time.Second); time.Now().Before(end); {
		handled := k.count(`SELECT count(*) FROM kagzi.step_runs WHERE step_id = 'handle' AND status = 'COMPLETED' AND NOT EXISTS (SELECT FROM kagzi.step_runs s WHERE s.step_id = 'approved')`)
		if handled > 0 {
			seen = true
			break
		}
	}
	close(hang)
	_, err = run.Result(k.ctx)
	if seen {
		t.Error("the step that follows from a message is recorded, and that the message was read is not: a crash now, and it is read again")
	}
	t.Log(err)
}
