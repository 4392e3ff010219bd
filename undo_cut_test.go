package kagzi

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"
)

// TestCancelledBehindARecord cancels a run between the record of a step and the step's return: the undo knows the result.
func TestCancelledBehindARecord(t *testing.T) {
	k := newKit(t)
	wf := Define[int, int]("wf", noRetry)
	var undid atomic.Value
	w := newTestWorker(t, k.c, WorkerConfig{})
	Handle(w, wf, func(ctx Context, n int) (int, error) {
		var booked string
		Compensate(ctx, "cancel-car", func(context.Context) error {
			undid.Store(booked)
			return nil
		})
		var err error
		booked, err = Step(ctx, "car", func(context.Context) (string, error) { return "car7", nil })
		return n, err
	})
	recorded := make(chan bool)
	var runs atomic.Int64
	w.failpoint = func(point string, run uuid.UUID) {
		if point == "after record" && runs.Add(1) == 1 {
			recorded <- true
			waitFor(t, "the execution is told", k.executionOf(k.c, RunID(run.String())).ended)
		}
	}
	startWorker(t, w)
	run := begin(k, wf, 1)
	<-recorded
	if err := run.Cancel(k.ctx); err != nil {
		t.Fatal(err)
	}
	failureOf(k, run, StatusCancelled)
	if got := undid.Load(); got != "car7" {
		t.Errorf("the undo saw %q", got)
	}
}
