package kagzi

import (
	"context"
	"errors"
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

// endsAs waits until the run is over, and fails the test unless it ended so.
func endsAs[Out any](k *kit, run *Run[Out], status Status) RunInfo {
	k.t.Helper()
	_, err := run.Result(k.ctx)
	info := k.infoOf(run.ID())
	k.t.Logf("ended %s: %v", info.Status, err)
	if info.Status != status {
		k.t.Errorf("ended %s with %v, want %s", info.Status, info.Error, status)
	}
	return info
}

// undoInTwo registers an undo whose first attempt fails, and whose second is due in an hour: another execution makes it.
func undoInTwo(ctx Context, j *journal, name string, tries *atomic.Int64) {
	Compensate(ctx, "undo-"+name, func(context.Context) error {
		if tries.Add(1) == 1 {
			return errors.New("not yet")
		}
		j.add("undo-" + name)
		return nil
	}, RetryPolicy{Backoff: time.Hour, NoJitter: true})
}

// secondTry lets the second attempt of an undo come now, and expects that the run fails with the error of its code.
func secondTry[Out any](k *kit, run *Run[Out], tries *atomic.Int64) {
	k.t.Helper()
	waitFor(k.t, "the undo failed", func() bool { return tries.Load() == 1 })
	k.waitStatus(run.ID(), StatusSleeping)
	k.forward(run.ID())
	if info := endsAs(k, run, StatusFailed); info.Kind != KindUnknown {
		k.t.Errorf("ended %s with %v", info.Status, info.Error)
	}
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
				undoInTwo(ctx, j, "hotel", &tries)
				return Do(ctx, "hotel", func(context.Context) error {
					<-flown
					return Permanent(errors.New("no room"))
				})
			},
		})
	})
	secondTry(k, begin(k, wf, 1), &tries)
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
				k.cancel(run.ID())
			} else {
				k.forward(run.ID())
			}
			if info := endsAs(k, run, want); info.Kind == KindNondeterminism {
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
		undoInTwo(ctx, j, "root", &tries)
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
	secondTry(k, begin(k, wf, 1), &tries)
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
	k.cancel(run.ID())
	waitFor(t, "the execution is told", k.executionOf(k.c, run.ID()).ended)
	close(gate)
	endsAs(k, run, StatusCancelled)
	wantJournal(t, j, "undo-a", "undo-b")
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
	k.cancel(run.ID())
	endsAs(k, run, StatusCancelled)
	wantJournal(t, j, "undo-first", "undo-fallback")
}

// TestUndoKnowsAStepTxAfterASleep loses the worker right after a StepTx that follows a Sleep: the undo finds what the StepTx
// returned.
func TestUndoKnowsAStepTxAfterASleep(t *testing.T) {
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
	hung, release := hangAt(w, "after record")
	startWorker(t, w)
	defer release()
	run := begin(k, wf, 1)
	receive(t, hung)
	k.cancel(run.ID())
	serve(k, wf, code)
	endsAs(k, run, StatusCancelled)
	if got := j.String(); got != "refund:ch_1" {
		t.Errorf("happened: %s", got)
	}
}

// TestUndoKnowsAStepTxThatWasCommittedAlone has a transactional step commit after a sleep, and the worker die in the step
// after it, before it writes anything else. The run is cancelled: who undoes it must come past the transactional step.
func TestUndoKnowsAStepTxThatWasCommittedAlone(t *testing.T) {
	k := newKit(t)
	j := &journal{}
	wf := Define[struct{}, string]("wf", RetryPolicy{MaxAttempts: 1})
	hangs, release := make(chan bool, 1), make(chan bool)
	defer close(release)
	fn := func(ctx Context, _ struct{}) (string, error) {
		var payment string
		Compensate(ctx, "refund", func(ctx context.Context) error { j.add("refund:" + payment); return nil })
		if err := Sleep(ctx, "cooling-off", 400*time.Millisecond); err != nil {
			return "", err
		}
		var err error
		payment, err = StepTx(ctx, "capture", func(context.Context, pgx.Tx) (string, error) { return "payment7", nil })
		if err != nil {
			return "", err
		}
		return "", Do(ctx, "mail", func(context.Context) error {
			hangs <- true
			<-release
			return nil
		})
	}
	serveWith(k, told, wf, fn)
	run := begin(k, wf, struct{}{})
	<-hangs
	// The first worker is dead from here on.
	if _, err := k.c.store.Cancel(k.ctx, nil, uuid.MustParse(string(run.ID())), ""); err != nil {
		t.Fatal(err)
	}
	k.takeAway(run.ID())
	rescue(k, wf, fn)
	_, err := run.Result(k.ctx)
	t.Log(err)
	if got := j.String(); got != "refund:payment7" {
		t.Errorf("undone: %q", got)
	}
	for id, a := range k.steps(run.ID()) {
		for _, s := range a {
			t.Log(id, s.Attempt, s.Status, string(s.Output))
		}
	}
}

// TestUndoKnowsAStepTxThatBeganAMap has a transactional step be the first thing that a branch of a Map records, and the
// worker die once it has committed. The run is cancelled: what the step returned is known to the undo.
func TestUndoKnowsAStepTxThatBeganAMap(t *testing.T) {
	k := newKit(t)
	wf := Define[struct{}, int]("wf", noRetry)
	var refunded atomic.Int64
	code := func(ctx Context, _ struct{}) (int, error) {
		paid := make([]int, 1)
		Compensate(ctx, "refund", func(context.Context) error {
			refunded.Add(int64(paid[0]))
			return nil
		})
		_, err := Map(ctx, "pay", []int{7}, func(ctx Context, n int) (_ int, err error) {
			paid[0], err = StepTx(ctx, "charge", func(context.Context, pgx.Tx) (int, error) { return n, nil })
			return 0, err
		})
		return 0, err
	}
	w := newTestWorker(t, newTestClient(t, k.pool), unwatched)
	Handle(w, wf, code)
	hung, release := hangAt(w, "after record")
	startWorker(t, w)
	defer release()
	run := begin(k, wf, struct{}{})
	receive(t, hung)
	k.takeAway(run.ID())
	k.cancel(run.ID())
	rescue(k, wf, code)
	failureOf(k, run, StatusCancelled)
	if n := refunded.Load(); n != 7 {
		t.Errorf("refunded %d of the 7 that were charged", n)
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
	k.cancel(run.ID())
	endsAs(k, run, StatusCancelled)
	wantJournal(t, j, "undo-a", "undo-b1", "undo-b2", "undo-b3")
}
