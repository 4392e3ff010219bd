package kagzi

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
)

// TestCancelRacesRegistration cancels runs at any moment of their registrations: whichever undo is recorded runs.
func TestCancelRacesRegistration(t *testing.T) {
	k := newKit(t)
	wf := Define[int, int]("wf", noRetry)
	var undos sync.Map
	serve(k, wf, func(ctx Context, _ int) (int, error) {
		for i := range 5 {
			Compensate(ctx, fmt.Sprint("undo", i), func(ctx context.Context) error {
				undos.Store(CurrentStep(ctx).Key, true)
				return nil
			})
			if err := Do(ctx, fmt.Sprint("do", i), func(context.Context) error { return nil }); err != nil {
				return 0, err
			}
		}
		return 1, nil
	})
	var wg sync.WaitGroup
	runs := startRuns(t, k.c, wf, 60)
	for i, r := range runs {
		wg.Go(func() {
			for range i % 20 {
				_, _ = r.Info(k.ctx) // as long as a query takes
			}
			if err := r.Cancel(k.ctx); err != nil && !errors.Is(err, ErrRunFinished) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, r := range runs {
		_, _ = r.Result(k.ctx)
		info := k.infoOf(r.ID())
		for i := range 5 {
			id := fmt.Sprint("undo", i)
			_, ran := undos.Load(string(r.ID()) + "/" + id)
			registered := len(k.steps(r.ID())[id]) > 0
			if want := registered && info.Status == StatusCancelled; ran != want {
				t.Errorf("run %s is %s: %s registered: %v, ran: %v", r.ID(), info.Status, id, registered, ran)
			}
		}
	}
	t.Logf("%d of %d were cancelled, %d after a registration", k.count(`SELECT count(*) FROM kagzi.workflow_runs WHERE status = 'CANCELLED'`),
		len(runs), k.count(`SELECT count(*) FROM kagzi.step_runs WHERE step_id = '#undo'`))
}

// TestCancelInBackoffAfterAFailedParallel cancels a run in the backoff after an attempt in which a Parallel failed,
// and which registered after that.
func TestCancelInBackoffAfterAFailedParallel(t *testing.T) {
	k := newKit(t)
	wf := Define[int, int]("wf", RetryPolicy{MaxAttempts: 5, Backoff: time.Hour})
	j := &journal{}
	serve(k, wf, func(ctx Context, _ int) (int, error) {
		err := Parallel(ctx, "p", map[string]func(Context) error{
			"x": func(ctx Context) error {
				return Do(ctx, "x", func(context.Context) error { return errors.New("no") }, RetryPolicy{MaxAttempts: 1})
			},
		})
		undoLine(ctx, j, "after")
		_ = doLine(ctx, j, "after")
		return 0, err
	})
	run := begin(k, wf, 1)
	k.waitStatus(run.ID(), StatusPending, "retry")
	k.cancel(run.ID())
	endsAs(k, run, StatusCancelled)
	wantJournal(t, j, "undo-after")
}

// TestUndoKnowsAStepRecordedBeforeTheCancel cancels a run between the record of a step and the step's return: the undo knows the result.
func TestUndoKnowsAStepRecordedBeforeTheCancel(t *testing.T) {
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
	k.cancel(run.ID())
	failureOf(k, run, StatusCancelled)
	if got := undid.Load(); got != "car7" {
		t.Errorf("the undo saw %q", got)
	}
}

// TestCancelDuringTheLastUndo cancels a failed run while its last undo is under way: that it was cancelled is how it
// ends.
func TestCancelDuringTheLastUndo(t *testing.T) {
	k := newKit(t)
	wf := Define[int, int]("wf", noRetry)
	inUndo, gate := make(chan struct{}), make(chan struct{})
	serve(k, wf, func(ctx Context, _ int) (int, error) {
		Compensate(ctx, "undo", func(context.Context) error {
			close(inUndo)
			<-gate
			return nil
		})
		return 0, errors.New("no")
	})
	run := begin(k, wf, 1)
	<-inUndo
	// A cancel whose notification is lost: the store alone.
	id, _ := uuid.Parse(string(run.ID()))
	if _, err := k.c.store.Cancel(k.ctx, nil, id, ""); err != nil {
		t.Fatal(err)
	}
	close(gate)
	endsAs(k, run, StatusCancelled)
}

// TestRefusedCancelInTx shows that a refused Cancel changes nothing in the caller's transaction: neither the children
// of a run that was set aside.
func TestRefusedCancelInTx(t *testing.T) {
	k := newKit(t)
	child, parent := Define[int, int]("child"), Define[int, int]("parent", noRetry)
	var id RunID
	w := newTestWorker(t, k.c, WorkerConfig{})
	Handle(w, child, func(ctx Context, _ int) (int, error) { return 0, sleepLong(ctx) })
	Handle(w, parent, func(ctx Context, _ int) (int, error) {
		c, err := StartChild(ctx, "c", child, 1)
		if err != nil {
			return 0, err
		}
		id = c.ID()
		_ = Do(ctx, "s", func(context.Context) error { return nil })
		ctx.execution().nondeterministic("x %d", 1)
		return 0, nil
	})
	startWorker(t, w)
	run := begin(k, parent, 1)
	failureOf(k, run, StatusFailed)
	k.waitStatus(id, StatusSleeping)
	tx := k.callersTx()
	err := run.Cancel(k.ctx, InTx(tx))
	t.Logf("Cancel: %v", err)
	if err == nil || !errors.Is(err, ErrRunFinished) {
		t.Fatalf("INVALID")
	}
	commitTx(t, tx)
	info, err := k.c.Get(k.ctx, id)
	if err != nil || info.Status != StatusSleeping {
		t.Errorf("the Cancel was refused, and the child is %s, %v", info.Status, err)
	}
}

// TestResumeWhileTheChildIsUndone resumes a parent while the child that was cancelled with it is still being undone:
// it starts another.
func TestResumeWhileTheChildIsUndone(t *testing.T) {
	k := newKit(t)
	child, parent := Define[int, int]("child", noRetry), Define[int, int]("parent", noRetry)
	inUndo, gate := make(chan struct{}), make(chan struct{})
	var first sync.Once
	var tries atomic.Int64
	w := newTestWorker(t, k.c, WorkerConfig{})
	Handle(w, child, func(ctx Context, n int) (int, error) {
		Compensate(ctx, "undo", func(context.Context) error {
			first.Do(func() {
				close(inUndo)
				<-gate
			})
			return nil
		})
		if tries.Add(1) <= 2 { // and the replay
			return 0, sleepLong(ctx)
		}
		<-gate // the parent sleeps until then
		return 7, nil
	})
	Handle(w, parent, func(ctx Context, _ int) (int, error) { return RunChild(ctx, "c", child, 1) })
	startWorker(t, w)
	run := begin(k, parent, 1)
	waitFor(t, "all sleep", func() bool { return k.count(`SELECT count(*) FROM kagzi.workflow_runs WHERE status = 'SLEEPING'`) == 2 })
	k.cancel(run.ID())
	<-inUndo
	k.resume(run.ID())
	k.waitStatus(run.ID(), StatusSleeping)
	close(gate)
	endsAs(k, run, StatusCompleted)
}
