package kagzi

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// TestCancelWaitsForTheStep cancels a run in a step that ignores its context. The step's result and compensation are
// recorded before the compensation runs.
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
			j := &journal{}
			begun, told, goOn := make(chan struct{}), make(chan struct{}), make(chan struct{})
			serve(k, travel, func(ctx Context, _ int) (int, error) {
				done := ctx.Done()
				go func() {
					<-done
					close(told)
				}()
				err := tt.step(ctx, func() string {
					close(begun)
					<-goOn
					j.add("flight")
					return "LH1"
				})
				return 0, errors.Join(err, doLine(ctx, j, "never"))
			})
			serveCancellations(k, j, nil)
			run := begin(k, travel, 1)
			<-begun
			k.cancel(run.ID())
			<-told
			if info := k.infoOf(run.ID()); info.Status != StatusRunning {
				t.Errorf("the run is %s before its step has ended", info.Status)
			}
			close(goOn)
			failureOf(k, run, StatusCancelled)
			j.want(t, tt.want)
		})
	}
}

// TestDeadlineWaitsForTheStep lets a step outlast the run's deadline: it is compensated only once it has returned.
func TestDeadlineWaitsForTheStep(t *testing.T) {
	k := newKit(t)
	wf := Define[int, int]("wf", noRetry)
	j := &journal{}
	serve(k, wf, func(ctx Context, _ int) (int, error) {
		Compensate(ctx, "slow", cancelBooking.With("slow"))
		return 0, Do(ctx, "slow", func(ctx context.Context) error {
			<-ctx.Done()
			comesTrue(1700*time.Millisecond, func() bool { return j.has("cancel:slow") }) // too early
			j.add("slow")
			return nil
		})
	})
	serveCancellations(k, j, nil)
	run := begin(k, wf, 1, Timeout(2*time.Second))
	endsAs(k, run, StatusFailed)
	j.want(t, "slow cancel:slow")
}

// TestGraceOfACancel: code that does not return delays a cancel by its grace, and no longer.
func TestGraceOfACancel(t *testing.T) {
	k := newKit(t)
	j := &journal{}
	serveCancellations(k, j, nil)
	run, _ := beginStuck(k, newTestWorker(t, k.c, WorkerConfig{}))
	k.cancel(run.ID(), Grace(1500*time.Millisecond))
	failureOf(k, run, StatusCancelled)
	j.want(t, "cancel:LH1")
	err := k.c.Cancel(k.ctx, run.ID(), Grace(30))
	mustContain(t, err, "30 ns")
}

// TestAnotherCancelIsShorter: a second cancel with a shorter grace shortens the first.
func TestAnotherCancelIsShorter(t *testing.T) {
	k := newKit(t)
	j := &journal{}
	serveCancellations(k, j, nil)
	run, told := beginStuck(k, newTestWorker(t, k.c, WorkerConfig{}))
	k.cancel(run.ID(), Grace(time.Hour))
	<-told
	if b, err := k.c.CancelAll(k.ctx, RunFilter{Status: []Status{StatusRunning}}, Grace(time.Millisecond)); err != nil || len(b.Changed) != 1 {
		t.Fatalf("%+v, %v", b, err)
	}
	failureOf(k, run, StatusCancelled)
	j.want(t, "cancel:LH1")
}

// TestCancelOfARunWhoseWorkerIsGone: no worker claims the run, and a coordinator ends it once the grace is over.
func TestCancelOfARunWhoseWorkerIsGone(t *testing.T) {
	k := newKit(t)
	j := &journal{}
	run, _ := beginStuck(k, newTestWorker(t, newTestClient(t, k.pool), unwatched))
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
	j.want(t, "cancel:LH1")
	leave()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestCancelDuringTheLastCompensation cancels a failed run while its last compensation is under way: the run ends as
// cancelled.
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

// TestReasonOfACancel: the attempt under way fails, and its error does not replace the reason of the cancel.
func TestReasonOfACancel(t *testing.T) {
	k := newKit(t)
	wf := Define[int, int]("wf", RetryPolicy{MaxAttempts: 3, Backoff: time.Hour})
	j := &journal{}
	w := newTestWorker(t, newTestClient(t, k.pool), unwatched)
	Handle(w, wf, trip(j, breaks))
	hung, release := hangAt(t, w, "finish")
	startWorker(t, w)
	run := begin(k, wf, 7)
	<-hung
	k.cancel(run.ID(), Reason("no holidays"))
	release()
	serveCancellations(k, j, nil)
	mustContain(t, failureOf(k, run, StatusCancelled), "cancelled: no holidays")
}

// TestCancelInTx cancels in the caller's transaction: the compensations begin with its commit.
func TestCancelInTx(t *testing.T) {
	k := newKit(t)
	j := &journal{}
	serve(k, travel, trip(j, sleepLong))
	serveCancellations(k, j, nil)
	run := begin(k, travel, 7)
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
	j.want(t, undone)
}

// TestRefusedCancelInTx: a refused Cancel changes nothing in the caller's transaction, not even the children of a
// quarantined run.
func TestRefusedCancelInTx(t *testing.T) {
	k := newKit(t)
	child, parent := Define[int, int]("child"), Define[int, int]("parent", noRetry)
	var id RunID
	var deployed atomic.Bool
	w := newTestWorker(t, k.c, WorkerConfig{})
	Handle(w, child, func(ctx Context, _ int) (int, error) { return 0, sleepLong(ctx) })
	Handle(w, parent, func(ctx Context, _ int) (int, error) {
		c, err := StartChild(ctx, "c", child, 1)
		if err != nil {
			return 0, err
		}
		id = c.ID()
		if deployed.Load() {
			return 0, Sleep(ctx, "s", time.Hour) // which was a step
		}
		_ = Do(ctx, "s", func(context.Context) error { return nil })
		return 0, sleepLong(ctx)
	})
	startWorker(t, w)
	run := begin(k, parent, 1)
	k.waitStatus(run.ID(), StatusSleeping)
	deployed.Store(true)
	k.forward(run.ID())
	if re := failureOf(k, run, StatusFailed); re.Kind != KindNondeterminism {
		t.Fatalf("INVALID: failed with %v", re)
	}
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
