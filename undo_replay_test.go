package kagzi

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

func undoLine(ctx Context, j *journal, name string, opts ...StepOption) {
	Compensate(ctx, "undo-"+name, func(context.Context) error {
		j.add("undo-" + name)
		return nil
	}, opts...)
}

func doLine(ctx Context, j *journal, name string) error {
	return Do(ctx, name, func(context.Context) error {
		j.add(name)
		return nil
	})
}

func wantJournal(t *testing.T, j *journal, lines ...string) {
	t.Helper()
	for _, l := range lines {
		if !j.has(l) {
			t.Errorf("%q did not happen; happened: %s", l, j)
		}
	}
}

// overAs waits until the run is over.
func overAs[Out any](k *kit, run *Run[Out]) RunInfo {
	k.t.Helper()
	_, err := run.Result(k.ctx)
	info, e := run.Info(k.ctx)
	if e != nil {
		k.t.Fatal(e)
	}
	k.t.Logf("ended %s: %v", info.Status, err)
	return info
}

// TestParallelUndoneElsewhere fails a Parallel by one of its branches, and lets an undo be tried again by another
// execution: what all branches registered is undone.
func TestParallelUndoneElsewhere(t *testing.T) {
	k := newKit(t)
	wf := Define[int, int]("wf", noRetry)
	j := &journal{}
	var tries atomic.Int64
	serve(k, wf, func(ctx Context, _ int) (int, error) {
		flown := make(chan struct{})
		return 0, Parallel(ctx, "p", map[string]func(Context) error{
			"flight": func(ctx Context) error {
				undoLine(ctx, j, "flight")
				err := doLine(ctx, j, "flight")
				close(flown)
				return err
			},
			"hotel": func(ctx Context) error {
				Compensate(ctx, "undo-hotel", func(context.Context) error {
					if tries.Add(1) == 1 {
						return errors.New("not yet")
					}
					j.add("undo-hotel")
					return nil
				}, RetryPolicy{Backoff: time.Hour, NoJitter: true})
				return Do(ctx, "hotel", func(context.Context) error {
					<-flown
					return Permanent(errors.New("no room"))
				})
			},
		})
	})
	run := begin(k, wf, 1)
	waitFor(t, "the undo failed", func() bool { return tries.Load() == 1 })
	k.waitStatus(run.ID(), StatusSleeping)
	k.forward(run.ID())
	if info := overAs(k, run); info.Kind != KindUnknown {
		t.Errorf("ended %s with %v", info.Status, info.Error)
	}
	wantJournal(t, j, "undo-flight", "undo-hotel")
}

// TestRaceLoserRegistered lets the loser of a Race register, and cancels or fails the run after a sleep: what the
// loser registered is undone, too.
func TestRaceLoserRegistered(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"Cancel", "Fail"} {
		t.Run(how, func(t *testing.T) {
			k := newKit(t)
			wf := Define[int, int]("wf", noRetry)
			j := &journal{}
			serve(k, wf, func(ctx Context, _ int) (int, error) {
				lost := make(chan struct{})
				_, _, err := Race(ctx, "r", map[string]func(Context) (int, error){
					"slow": func(ctx Context) (int, error) {
						undoLine(ctx, j, "slow")
						close(lost)
						return 0, sleepLong(ctx)
					},
					"fast": func(ctx Context) (int, error) {
						undoLine(ctx, j, "fast")
						select {
						case <-lost:
						case <-time.After(3 * time.Second):
						}
						return 1, doLine(ctx, j, "fast")
					},
				})
				if err != nil {
					return 0, err
				}
				if err := Sleep(ctx, "after", time.Hour); err != nil {
					return 0, err
				}
				return 0, errors.New("out of stock")
			})
			run := begin(k, wf, 1)
			k.waitStatus(run.ID(), StatusSleeping)
			want := StatusFailed
			if how == "Cancel" {
				want = StatusCancelled
				if err := run.Cancel(k.ctx); err != nil {
					t.Fatal(err)
				}
			} else {
				k.forward(run.ID())
			}
			if info := overAs(k, run); info.Status != want || info.Kind == KindNondeterminism {
				t.Errorf("ended %s with %v", info.Status, info.Error)
			}
			wantJournal(t, j, "undo-slow", "undo-fast")
		})
	}
}

// TestGoBranchCancelledInReplay fails the function while a branch of Go has registered: a replay does not cancel the
// branch before it registers again.
func TestGoBranchCancelledInReplay(t *testing.T) {
	k := newKit(t)
	wf := Define[int, int]("wf", noRetry)
	j := &journal{}
	var tries atomic.Int64
	registered := make(chan struct{})
	var once sync.Once
	serve(k, wf, func(ctx Context, _ int) (int, error) {
		Compensate(ctx, "undo-root", func(context.Context) error {
			if tries.Add(1) == 1 {
				return errors.New("not yet")
			}
			j.add("undo-root")
			return nil
		}, RetryPolicy{Backoff: time.Hour, NoJitter: true})
		f := Go(ctx, "b", func(ctx Context) (int, error) {
			_ = doLine(ctx, j, "first")
			_ = doLine(ctx, j, "second")
			undoLine(ctx, j, "b")
			once.Do(func() { close(registered) })
			return 0, sleepLong(ctx)
		})
		_ = f
		err := Do(ctx, "main", func(context.Context) error {
			<-registered
			return Permanent(errors.New("no"))
		})
		return 0, err
	})
	run := begin(k, wf, 1)
	waitFor(t, "the undo failed", func() bool { return tries.Load() == 1 })
	k.waitStatus(run.ID(), StatusSleeping)
	k.forward(run.ID())
	if info := overAs(k, run); info.Kind != KindUnknown {
		t.Errorf("ended %s with %v", info.Status, info.Error)
	}
	wantJournal(t, j, "undo-root", "undo-b")
}

// TestCancelInMidReplay cancels a run that has just been claimed, and is on its way through its history.
func TestCancelInMidReplay(t *testing.T) {
	k := newKit(t)
	wf := Define[int, int]("wf", noRetry)
	j := &journal{}
	var execs atomic.Int64
	again, gate := make(chan struct{}), make(chan struct{})
	serve(k, wf, func(ctx Context, _ int) (int, error) {
		if execs.Add(1) == 2 {
			close(again)
			<-gate
		}
		undoLine(ctx, j, "a")
		if err := doLine(ctx, j, "a"); err != nil {
			return 0, err
		}
		undoLine(ctx, j, "b")
		return 0, sleepLong(ctx)
	})
	run := begin(k, wf, 1)
	k.waitStatus(run.ID(), StatusSleeping)
	k.forward(run.ID())
	<-again
	if err := run.Cancel(k.ctx); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the execution is told", k.executionOf(k.c, run.ID()).ended)
	close(gate)
	if info := overAs(k, run); info.Status != StatusCancelled {
		t.Errorf("ended %s with %v", info.Status, info.Error)
	}
	wantJournal(t, j, "undo-a", "undo-b")
}

// TestDeadlineUndoesBeforeTheStepEnds lets a step ignore its context: at the deadline it is waited for before it is
// undone.
func TestDeadlineUndoesBeforeTheStepEnds(t *testing.T) {
	k := newKit(t)
	wf := Define[int, int]("wf", noRetry)
	j := &journal{}
	undone := make(chan struct{})
	serve(k, wf, func(ctx Context, _ int) (int, error) {
		Compensate(ctx, "undo-slow", func(context.Context) error {
			j.add("undo-slow")
			close(undone)
			return nil
		})
		return 0, Do(ctx, "slow", func(ctx context.Context) error {
			<-ctx.Done()
			select {
			case <-undone: // too early
			case <-time.After(exitGrace + 700*time.Millisecond):
			}
			j.add("slow")
			return nil
		})
	})
	run := begin(k, wf, 1, Timeout(2*time.Second))
	overAs(k, run)
	waitFor(t, "the step ends", func() bool { return j.has("slow") })
	if got := j.String(); got != "slow undo-slow" {
		t.Errorf("happened: %s; steps: %+v", got, k.steps(run.ID())["slow"])
	}
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
	waitFor(t, "the attempt failed", func() bool {
		info, err := run.Info(k.ctx)
		return err == nil && info.WaitingOn == "retry"
	})
	if err := run.Cancel(k.ctx); err != nil {
		t.Fatal(err)
	}
	if info := overAs(k, run); info.Status != StatusCancelled {
		t.Errorf("ended %s with %v", info.Status, info.Error)
	}
	wantJournal(t, j, "undo-after")
}

// TestRegistrationOfAForgottenFailure registers on the way round a failure in the first attempt of the run, which the
// second attempt forgets.
func TestRegistrationOfAForgottenFailure(t *testing.T) {
	k := newKit(t)
	wf := Define[int, int]("wf", RetryPolicy{MaxAttempts: 2, Backoff: time.Millisecond})
	j := &journal{}
	var tries atomic.Int64
	serve(k, wf, func(ctx Context, _ int) (int, error) {
		undoLine(ctx, j, "first")
		err := Do(ctx, "primary", func(context.Context) error {
			if tries.Add(1) == 1 {
				return errors.New("no")
			}
			return nil
		}, RetryPolicy{MaxAttempts: 1})
		if err != nil {
			undoLine(ctx, j, "fallback")
			_ = doLine(ctx, j, "fallback")
			return 0, errors.New("the fallback is not enough")
		}
		return 0, sleepLong(ctx)
	})
	run := begin(k, wf, 1)
	k.waitStatus(run.ID(), StatusSleeping)
	if err := run.Cancel(k.ctx); err != nil {
		t.Fatal(err)
	}
	if info := overAs(k, run); info.Status != StatusCancelled {
		t.Errorf("ended %s with %v", info.Status, info.Error)
	}
	wantJournal(t, j, "undo-first", "undo-fallback")
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
	if info := overAs(k, run); info.Status != StatusCancelled {
		t.Errorf("ended %s with %v", info.Status, info.Error)
	}
}

// TestStepTxAfterSleep loses the worker right after a StepTx that follows a Sleep: the undo finds what the StepTx
// returned.
func TestStepTxAfterSleep(t *testing.T) {
	k := newKit(t)
	wf := Define[int, int]("wf", noRetry)
	j := &journal{}
	code := func(ctx Context, _ int) (int, error) {
		var charge string
		Compensate(ctx, "refund", func(context.Context) error {
			j.add("refund:" + charge)
			return nil
		})
		if err := Sleep(ctx, "cooling-off", 300*time.Millisecond); err != nil {
			return 0, err
		}
		var err error
		charge, err = StepTx(ctx, "capture", func(context.Context, pgx.Tx) (string, error) { return "ch_1", nil })
		if err != nil {
			return 0, err
		}
		return 0, sleepLong(ctx)
	}
	w := newTestWorker(t, k.c, WorkerConfig{VisibilityTimeout: time.Second, FixedLease: true, DrainTimeout: time.Millisecond})
	Handle(w, wf, code)
	stuck, gate := make(chan struct{}), make(chan struct{})
	var once sync.Once
	w.failpoint = func(point string, id uuid.UUID) {
		if point == "after record" && id != uuid.Nil {
			once.Do(func() {
				close(stuck)
				<-gate
			})
		}
	}
	startWorker(t, w)
	run := begin(k, wf, 1)
	<-stuck
	defer close(gate)
	if err := run.Cancel(k.ctx); err != nil {
		t.Fatal(err)
	}
	serve(k, wf, code)
	if info := overAs(k, run); info.Status != StatusCancelled {
		t.Errorf("ended %s with %v", info.Status, info.Error)
	}
	if got := j.String(); got != "refund:ch_1" {
		t.Errorf("happened: %s", got)
	}
}

// TestDrainBeforeTheUndo has the drain's timeout come between the end of the function and its undos.
func TestDrainBeforeTheUndo(t *testing.T) {
	k := newKit(t)
	wf := Define[int, int]("wf", noRetry)
	ended := make(chan error, 2)
	var begun atomic.Bool
	w := newTestWorker(t, k.c, WorkerConfig{DrainTimeout: time.Millisecond})
	Handle(w, wf, func(ctx Context, _ int) (int, error) {
		Compensate(ctx, "undo", func(ctx context.Context) error {
			begun.Store(true)
			select {
			case <-ctx.Done():
				ended <- context.Cause(ctx)
			case <-time.After(6 * time.Second):
				ended <- errors.New("never told")
			}
			return ctx.Err()
		})
		return 0, errors.New("no")
	})
	reached, gate := make(chan struct{}), make(chan struct{})
	var once sync.Once
	w.failpoint = func(point string, _ uuid.UUID) {
		if point == "finish" {
			once.Do(func() {
				close(reached)
				<-gate
			})
		}
	}
	stop := startWorker(t, w)
	run := begin(k, wf, 1)
	<-reached
	time.AfterFunc(500*time.Millisecond, func() { close(gate) })
	from := time.Now()
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	t.Logf("drained in %v", time.Since(from))
	if info, _ := run.Info(k.ctx); info.Status != StatusPending {
		t.Errorf("the run is %s", info.Status)
	}
	if !begun.Load() {
		return
	}
	select {
	case err := <-ended:
		t.Logf("the undo was told: %v", err)
	default:
		t.Errorf("Run has returned, and the undo is still being executed")
		t.Logf("later: %v", <-ended)
	}
	info, _ := run.Info(k.ctx)
	t.Logf("run is %s", info.Status)
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
	tx, err := k.pool.Begin(k.ctx)
	if err != nil {
		t.Fatal(err)
	}
	err = run.Cancel(k.ctx, InTx(tx))
	t.Logf("Cancel: %v", err)
	if err == nil || !errors.Is(err, ErrRunFinished) {
		t.Fatalf("INVALID")
	}
	if err := tx.Commit(k.ctx); err != nil {
		t.Fatal(err)
	}
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
		return 7, nil
	})
	Handle(w, parent, func(ctx Context, _ int) (int, error) { return RunChild(ctx, "c", child, 1) })
	startWorker(t, w)
	run := begin(k, parent, 1)
	waitFor(t, "all sleep", func() bool { return k.count(`SELECT count(*) FROM kagzi.workflow_runs WHERE status = 'SLEEPING'`) == 2 })
	if err := run.Cancel(k.ctx); err != nil {
		t.Fatal(err)
	}
	<-inUndo
	if err := k.c.Resume(k.ctx, run.ID()); err != nil {
		t.Fatal(err)
	}
	k.waitStatus(run.ID(), StatusSleeping)
	close(gate)
	if info := overAs(k, run); info.Status != StatusCompleted {
		t.Errorf("ended %s with %v", info.Status, info.Error)
	}
}

// TestUndecidedRace loses the worker just before a Race is recorded as decided: what its branches registered is undone.
func TestUndecidedRace(t *testing.T) {
	k := newKit(t)
	wf := Define[int, int]("wf", noRetry)
	j := &journal{}
	all := make(chan struct{})
	var one sync.Once
	code := func(ctx Context, _ int) (int, error) {
		_, n, err := Race(ctx, "r", map[string]func(Context) (int, error){
			"a": func(ctx Context) (int, error) {
				undoLine(ctx, j, "a")
				return 1, Do(ctx, "a", func(context.Context) error {
					<-all
					return nil
				})
			},
			"b": func(ctx Context) (int, error) {
				select { // code that takes its time, in a replay too
				case <-ctx.Done():
				case <-time.After(50 * time.Millisecond):
				}
				for _, n := range []string{"b1", "b2", "b3"} {
					undoLine(ctx, j, n)
				}
				one.Do(func() { close(all) })
				return 1, sleepLong(ctx)
			},
		})
		if err != nil {
			return n, err
		}
		return n, sleepLong(ctx)
	}
	serve(k, wf, code)
	run := begin(k, wf, 1)
	k.waitStatus(run.ID(), StatusSleeping)
	if k.count(`SELECT count(*) FROM kagzi.step_runs WHERE step_kind = 'COMPENSATION'`) != 4 {
		t.Fatal("INVALID")
	}
	k.exec(`DELETE FROM kagzi.step_runs WHERE step_id IN ('r', 'long')`) // as if the worker had died just before the decision
	if err := run.Cancel(k.ctx); err != nil {
		t.Fatal(err)
	}
	if info := overAs(k, run); info.Status != StatusCancelled {
		t.Errorf("ended %s with %v", info.Status, info.Error)
	}
	wantJournal(t, j, "undo-a", "undo-b1", "undo-b2", "undo-b3")
}

// TestGoexitInAnUndo shows that an undo which ends its goroutine does not keep the others from running.
func TestGoexitInAnUndo(t *testing.T) {
	k := newKit(t)
	wf := Define[int, int]("wf", noRetry)
	j := &journal{}
	serve(k, wf, func(ctx Context, _ int) (int, error) {
		undoLine(ctx, j, "a")
		Compensate(ctx, "bad", func(context.Context) error {
			runtime.Goexit()
			return nil
		}, RetryPolicy{MaxAttempts: 1})
		return 0, errors.New("no")
	})
	overAs(k, begin(k, wf, 1))
	wantJournal(t, j, "undo-a")
}
