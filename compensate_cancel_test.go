package kagzi

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// TestCancelWaitsForTheStep cancels a run in a step that ignores its context. What the step does is recorded, with its
// compensation, before that runs.
func TestCancelWaitsForTheStep(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		step func(Context, func() string) error
		want string
	}{
		"Step": {func(ctx Context, book func() string) error {
			_, err := Step(ctx, "flight", func(context.Context) (string, error) { return book(), nil }, UndoneBy(cancelBooking))
			return err
		}, "flight cancel:LH1"},
		"StepTx": {func(ctx Context, book func() string) error {
			_, err := StepTx(ctx, "flight", func(context.Context, pgx.Tx) (string, error) { return book(), nil }, UndoneBy(cancelBooking))
			return err
		}, "flight cancel:LH1"},
		"Registered": {func(ctx Context, book func() string) error {
			Compensate(ctx, "flight", cancelBooking.With("LH?"))
			return Do(ctx, "flight", func(context.Context) error { book(); return nil })
		}, "flight cancel:LH?"},
	} {
		t.Run(name, func(t *testing.T) {
			k := newKit(t)
			wf := Define[int, int]("trip", noRetry)
			j := &journal{}
			begun, goOn := make(chan struct{}), make(chan struct{})
			serve(k, wf, func(ctx Context, _ int) (int, error) {
				err := tt.step(ctx, func() string {
					close(begun)
					<-goOn
					j.add("flight")
					return "LH1"
				})
				return 0, errors.Join(err, doLine(ctx, j, "never"))
			})
			serveCancellations(k, j, nil)
			run := begin(k, wf, 1)
			<-begun
			k.cancel(run.ID())
			waitFor(t, "the execution is told", k.executionOf(k.c, run.ID()).stopped)
			if info := k.infoOf(run.ID()); info.Status != StatusRunning {
				t.Errorf("the run is %s before its step has ended", info.Status)
			}
			close(goOn)
			failureOf(k, run, StatusCancelled)
			if got := j.String(); got != tt.want {
				t.Errorf("happened: %s; want %s", got, tt.want)
			}
		})
	}
}

// TestDeadlineWaitsForTheStep lets a step ignore its context: at the deadline it is waited for before it is compensated.
func TestDeadlineWaitsForTheStep(t *testing.T) {
	k := newKit(t)
	wf := Define[int, int]("wf", noRetry)
	j := &journal{}
	serve(k, wf, func(ctx Context, _ int) (int, error) {
		Compensate(ctx, "slow", cancelBooking.With("slow"))
		return 0, Do(ctx, "slow", func(ctx context.Context) error {
			<-ctx.Done()
			comesTrue(exitGrace+700*time.Millisecond, func() bool { return j.has("cancel:slow") }) // too early
			j.add("slow")
			return nil
		})
	})
	serveCancellations(k, j, nil)
	run := begin(k, wf, 1, Timeout(2*time.Second))
	endsAs(k, run, StatusFailed)
	if got := j.String(); got != "slow cancel:slow" {
		t.Errorf("happened: %s; steps: %+v", got, k.steps(run.ID())["slow"])
	}
}

// TestGraceOfACancel: code that does not return holds up a cancel for the time that the cancel says.
func TestGraceOfACancel(t *testing.T) {
	k := newKit(t)
	wf := Define[int, int]("trip", noRetry)
	j := &journal{}
	begun, never := make(chan struct{}), make(chan struct{})
	defer close(never)
	serve(k, wf, func(ctx Context, _ int) (int, error) {
		Compensate(ctx, "flight", cancelBooking.With("LH1"))
		return 0, Do(ctx, "flight", func(context.Context) error {
			close(begun)
			<-never
			return nil
		})
	})
	serveCancellations(k, j, nil)
	run := begin(k, wf, 1)
	<-begun
	k.cancel(run.ID(), Grace(1500*time.Millisecond))
	failureOf(k, run, StatusCancelled)
	if got := j.String(); got != "cancel:LH1" {
		t.Errorf("happened: %s", got)
	}
	err := k.c.Cancel(k.ctx, run.ID(), Grace(30))
	mustContain(t, err, "30 ns")
}

// TestAnotherCancelIsShorter: who cannot wait cancels again.
func TestAnotherCancelIsShorter(t *testing.T) {
	k := newKit(t)
	wf := Define[int, int]("trip", noRetry)
	j := &journal{}
	begun, never := make(chan struct{}), make(chan struct{})
	defer close(never)
	serve(k, wf, func(ctx Context, _ int) (int, error) {
		Compensate(ctx, "flight", cancelBooking.With("LH1"))
		return 0, Do(ctx, "flight", func(context.Context) error {
			close(begun)
			<-never
			return nil
		})
	})
	serveCancellations(k, j, nil)
	run := begin(k, wf, 1)
	<-begun
	k.cancel(run.ID(), Grace(time.Hour))
	waitFor(t, "the execution is told", k.executionOf(k.c, run.ID()).stopped)
	k.cancel(run.ID(), Grace(time.Millisecond))
	failureOf(k, run, StatusCancelled)
	if got := j.String(); got != "cancel:LH1" {
		t.Errorf("happened: %s", got)
	}
}

// TestCancelOfARunWhoseWorkerIsGone: nobody claims the run any more, and a coordinator ends it when the grace is over.
func TestCancelOfARunWhoseWorkerIsGone(t *testing.T) {
	k := newKit(t)
	wf := Define[int, int]("trip", noRetry)
	j := &journal{}
	w := newTestWorker(t, newTestClient(t, k.pool), unwatched)
	begun, never := make(chan struct{}), make(chan struct{})
	defer close(never)
	Handle(w, wf, func(ctx Context, _ int) (int, error) {
		Compensate(ctx, "flight", cancelBooking.With("LH1"))
		return 0, Do(ctx, "flight", func(context.Context) error {
			close(begun)
			<-never
			return nil
		})
	})
	startWorker(t, w)
	run := begin(k, wf, 1)
	<-begun
	k.takeAway(run.ID())
	k.cancel(run.ID(), Reason("gone"), Grace(time.Millisecond))
	k.exec(`UPDATE kagzi.workflow_runs SET task_queue = 'nobody', deadline_at = now() - interval '1 h', available_at = now() - interval '1 h' WHERE run_id = $1`, string(run.ID()))
	serveCancellations(k, j, nil)
	house, leave := context.WithCancel(k.ctx)
	ended := make(chan error, 1)
	go func() {
		ended <- newTestCoordinator(t, k.c, CoordinatorConfig{Interval: 20 * time.Millisecond}).Run(house)
	}()
	re := failureOf(k, run, StatusCancelled)
	mustContain(t, re, "cancelled: gone")
	if got := j.String(); got != "cancel:LH1" {
		t.Errorf("happened: %s", got)
	}
	leave()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestCancelDuringTheLastCompensation cancels a failed run while its last compensation is under way: that it was cancelled is how it
// ends.
func TestCancelDuringTheLastCompensation(t *testing.T) {
	k := newKit(t)
	wf := Define[int, int]("wf", noRetry)
	inUndo, gate := make(chan struct{}), make(chan struct{})
	serve(k, wf, func(ctx Context, _ int) (int, error) {
		Compensate(ctx, "it", cancelBooking.With("it"))
		return 0, errors.New("no")
	})
	serveCancellations(k, &journal{}, func(string) error {
		close(inUndo)
		<-gate
		return nil
	})
	run := begin(k, wf, 1)
	<-inUndo
	k.cancel(run.ID())
	close(gate)
	endsAs(k, run, StatusCancelled)
}

// TestReasonOfACancel: the failure of the attempt that was under way does not replace what the cancel says.
func TestReasonOfACancel(t *testing.T) {
	k := newKit(t)
	wf := Define[int, int]("wf", RetryPolicy{MaxAttempts: 3, Backoff: time.Hour})
	j := &journal{}
	w := newTestWorker(t, newTestClient(t, k.pool), unwatched)
	Handle(w, wf, trip(j, func(Context) error { return errors.New("broken") }))
	hung, release := hangAt(w, "finish")
	startWorker(t, w)
	run := begin(k, wf, 7)
	<-hung
	k.cancel(run.ID(), Reason("no holidays"))
	release()
	serveCancellations(k, j, nil)
	mustContain(t, failureOf(k, run, StatusCancelled), "cancelled: no holidays")
}

// TestCancelInTx cancels in the caller's transaction: what is compensated begins with its commit.
func TestCancelInTx(t *testing.T) {
	k := newKit(t)
	wf := Define[int, int]("trip", noRetry)
	j := &journal{}
	serve(k, wf, trip(j, sleepLong))
	serveCancellations(k, j, nil)
	run := begin(k, wf, 7)
	k.waitStatus(run.ID(), StatusSleeping)
	tx := k.callersTx()
	if err := run.Cancel(k.ctx, InTx(tx)); err != nil {
		t.Fatal(err)
	}
	var started int
	if err := tx.QueryRow(k.ctx, `SELECT count(*) FROM kagzi.workflow_runs WHERE workflow_type = 'cancel-booking'`).Scan(&started); err != nil || started != 1 {
		t.Errorf("%d compensations are started in the transaction, %v", started, err)
	}
	commitTx(t, tx)
	failureOf(k, run, StatusCancelled)
	if got := j.String(); got != undone {
		t.Errorf("happened: %s", got)
	}
}

// TestRefusedCancelInTx shows that a refused Cancel changes nothing in the caller's transaction: neither the children
// of a run that was quarantined.
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
	if err := run.Cancel(k.ctx, InTx(tx)); !errors.Is(err, ErrRunFinished) {
		t.Fatalf("INVALID: Cancel: %v", err)
	}
	commitTx(t, tx)
	if info := k.infoOf(id); info.Status != StatusSleeping {
		t.Errorf("the Cancel was refused, and the child is %s", info.Status)
	}
}
