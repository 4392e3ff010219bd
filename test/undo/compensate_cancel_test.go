package undo_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/kind"
)

// TestCancelWaitsForTheStep cancels a run in a step that ignores its context. The step's result and compensation are
// recorded before the compensation runs.
func TestCancelWaitsForTheStep(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		step func(kagzi.Context, func() string) error
		want string
	}{
		"Step": {func(ctx kagzi.Context, book func() string) error {
			_, err := kagzi.Step(ctx, "flight", func(context.Context) (string, error) { return book(), nil },
				kagzi.UndoneBy(kit.CancelBooking))
			return err
		}, "flight cancel:LH1"},
		"StepTx": {func(ctx kagzi.Context, book func() string) error {
			_, err := kagzi.StepTx(ctx, "flight", func(context.Context, pgx.Tx) (string, error) { return book(), nil },
				kagzi.UndoneBy(kit.CancelBooking))
			return err
		}, "flight cancel:LH1"},
		"Registered": {func(ctx kagzi.Context, book func() string) error {
			kagzi.Compensate(ctx, "flight", kit.CancelBooking.With("LH?"))
			return kagzi.Do(ctx, "flight", func(context.Context) error { book(); return nil })
		}, "flight cancel:LH?"},
	} {
		t.Run(name, func(t *testing.T) {
			k := kit.New(t)
			j := &kit.Journal{}
			begun, told, goOn := make(chan struct{}), make(chan struct{}), make(chan struct{})
			kit.Serve(k, kit.Travel, func(ctx kagzi.Context, _ int) (int, error) {
				done := ctx.Done()
				go func() {
					await.Opened(t, done)
					close(told)
				}()
				err := tt.step(ctx, func() string {
					close(begun)
					await.Opened(t, goOn)
					j.Add("flight")
					return "LH1"
				})
				return 0, errors.Join(err, kit.DoLine(ctx, j, "never"))
			})
			kit.ServeCancellations(k, j, nil)
			run := kit.Begin(k, kit.Travel, 1)
			await.Receive(t, begun)
			k.Cancel(run.ID())
			await.Receive(t, told)
			if info := k.InfoOf(run.ID()); info.Status != kagzi.StatusRunning {
				t.Errorf("the run is %s before its step has ended", info.Status)
			}
			close(goOn)
			kit.FailureOf(k, run, kagzi.StatusCancelled)
			j.Want(t, tt.want)
		})
	}
}

// TestDeadlineWaitsForTheStep lets a step outlast the run's deadline: it is compensated only once it has returned.
func TestDeadlineWaitsForTheStep(t *testing.T) {
	k := kit.New(t)
	wf := kagzi.Define[int, int]("wf", kit.NoRetry)
	j := &kit.Journal{}
	kit.Serve(k, wf, func(ctx kagzi.Context, _ int) (int, error) {
		kagzi.Compensate(ctx, "slow", kit.CancelBooking.With("slow"))
		return 0, kagzi.Do(ctx, "slow", func(ctx context.Context) error {
			<-ctx.Done()
			await.BecomesTrue(1700*time.Millisecond, func() bool { return j.Has("cancel:slow") }) // too early
			j.Add("slow")
			return nil
		})
	})
	kit.ServeCancellations(k, j, nil)
	run := kit.Begin(k, wf, 1, kagzi.Timeout(6*time.Second))
	kit.EndsAs(k, run, kagzi.StatusFailed)
	j.Want(t, "slow cancel:slow")
}

// TestGraceOfACancel: code that does not return delays a cancel by its grace, and no longer.
func TestGraceOfACancel(t *testing.T) {
	k := kit.New(t)
	j := &kit.Journal{}
	kit.ServeCancellations(k, j, nil)
	run, _ := kit.BeginStuck(k, kit.NewWorker(t, k.Client, kagzi.WorkerConfig{}))
	k.Cancel(run.ID(), kagzi.Grace(1500*time.Millisecond))
	kit.FailureOf(k, run, kagzi.StatusCancelled)
	j.Want(t, "cancel:LH1")
	err := k.Client.Cancel(k.Ctx, run.ID(), kagzi.Grace(30))
	kit.MustContain(t, err, "30 ns")
}

// TestAnotherCancelIsShorter: a second cancel with a shorter grace shortens the first.
func TestAnotherCancelIsShorter(t *testing.T) {
	k := kit.New(t)
	j := &kit.Journal{}
	kit.ServeCancellations(k, j, nil)
	run, told := kit.BeginStuck(k, kit.NewWorker(t, k.Client, kagzi.WorkerConfig{}))
	k.Cancel(run.ID(), kagzi.Grace(time.Hour))
	await.Receive(t, told)
	if b, err := admin.New(k.Client).Runs.CancelAll(k.Ctx, kagzi.RunFilter{Status: []kagzi.Status{kagzi.StatusRunning}},
		kagzi.Grace(time.Millisecond)); err != nil || len(b.Changed) != 1 {
		t.Fatalf("%+v, %v", b, err)
	}
	kit.FailureOf(k, run, kagzi.StatusCancelled)
	j.Want(t, "cancel:LH1")
}

// TestCancelOfARunWhoseWorkerIsGone: no worker claims the run, and a coordinator ends it once the grace is over.
func TestCancelOfARunWhoseWorkerIsGone(t *testing.T) {
	k := kit.New(t)
	j := &kit.Journal{}
	run, _ := kit.BeginStuck(k, kit.NewWorker(t, kit.NewClient(t, k.Pool), kit.Unmonitored))
	k.TakeAway(run.ID())
	k.Cancel(run.ID(), kagzi.Reason("gone"), kagzi.Grace(time.Millisecond))
	k.Exec(`UPDATE kagzi.workflow_runs SET task_queue = 'nobody', deadline_at = now() - interval '1 h',
		available_at = now() - interval '1 h' WHERE run_id = $1`, string(run.ID()))
	kit.ServeCancellations(k, j, nil)
	house, leave := context.WithCancel(k.Ctx)
	ended := make(chan error, 1)
	go func() {
		ended <- kit.NewCoordinator(t, k.Client, kagzi.CoordinatorConfig{Interval: 20 * time.Millisecond}).Run(house)
	}()
	re := kit.FailureOf(k, run, kagzi.StatusCancelled)
	kit.MustContain(t, re, "cancelled: gone")
	j.Want(t, "cancel:LH1")
	leave()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestCancelDuringTheLastCompensation cancels a failed run while its last compensation is under way: the run ends as
// cancelled.
func TestCancelDuringTheLastCompensation(t *testing.T) {
	k := kit.New(t)
	wf := kagzi.Define[int, int]("wf", kit.NoRetry)
	inUndo, gate := make(chan struct{}), make(chan struct{})
	kit.Serve(k, wf, func(ctx kagzi.Context, _ int) (int, error) {
		kagzi.Compensate(ctx, "it", kit.CancelBooking.With("it"))
		return 0, errors.New("no")
	})
	kit.ServeCancellations(k, &kit.Journal{}, func(string) error {
		close(inUndo)
		await.Opened(t, gate)
		return nil
	})
	run := kit.Begin(k, wf, 1)
	await.Receive(t, inUndo)
	k.Cancel(run.ID())
	close(gate)
	kit.EndsAs(k, run, kagzi.StatusCancelled)
}

// TestReasonOfACancel: the attempt under way fails, and its error does not replace the reason of the cancel.
func TestReasonOfACancel(t *testing.T) {
	k := kit.New(t)
	wf := kagzi.Define[int, int]("wf", kagzi.RetryPolicy{MaxAttempts: 3, Backoff: time.Hour})
	j := &kit.Journal{}
	w := kit.NewWorker(t, kit.NewClient(t, k.Pool), kit.Unmonitored)
	kagzi.Handle(w, wf, kit.Trip(j, kit.Breaks))
	hung, release := kit.HangAt(t, w, "finish")
	kit.StartWorker(t, w)
	run := kit.Begin(k, wf, 7)
	await.Receive(t, hung)
	k.Cancel(run.ID(), kagzi.Reason("no holidays"))
	release()
	kit.ServeCancellations(k, j, nil)
	kit.MustContain(t, kit.FailureOf(k, run, kagzi.StatusCancelled), "cancelled: no holidays")
}

// TestCancelInTx cancels in the caller's transaction: the compensations begin with its commit.
func TestCancelInTx(t *testing.T) {
	k := kit.New(t)
	j := &kit.Journal{}
	kit.Serve(k, kit.Travel, kit.Trip(j, kit.SleepLong))
	kit.ServeCancellations(k, j, nil)
	run := kit.Begin(k, kit.Travel, 7)
	k.WaitStatus(run.ID(), kagzi.StatusSleeping)
	tx := k.CallersTx()
	if err := run.Cancel(k.Ctx, kagzi.InTx(tx)); err != nil {
		t.Fatal(err)
	}
	var started int
	if err := tx.QueryRow(k.Ctx, `SELECT count(*) FROM kagzi.workflow_runs WHERE workflow_type = 'cancel-booking'`).
		Scan(&started); err != nil || started != 1 {
		t.Errorf("%d compensations are started in the transaction, %v", started, err)
	}
	kit.CommitTx(t, tx)
	kit.FailureOf(k, run, kagzi.StatusCancelled)
	j.Want(t, kit.Compensated)
}

// TestRefusedCancelInTx: a refused Cancel changes nothing in the caller's transaction, not even the children of a
// quarantined run.
func TestRefusedCancelInTx(t *testing.T) {
	k := kit.New(t)
	child, parent := kagzi.Define[int, int]("child"), kagzi.Define[int, int]("parent", kit.NoRetry)
	var id kagzi.RunID
	var deployed atomic.Bool
	w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{})
	kagzi.Handle(w, child, func(ctx kagzi.Context, _ int) (int, error) { return 0, kit.SleepLong(ctx) })
	kagzi.Handle(w, parent, func(ctx kagzi.Context, _ int) (int, error) {
		c, err := kagzi.StartChild(ctx, "c", child, 1)
		if err != nil {
			return 0, err
		}
		id = c.ID()
		if deployed.Load() {
			return 0, kagzi.Sleep(ctx, "s", time.Hour) // which was a step
		}
		_ = kagzi.Do(ctx, "s", func(context.Context) error { return nil })
		return 0, kit.SleepLong(ctx)
	})
	kit.StartWorker(t, w)
	run := kit.Begin(k, parent, 1)
	k.WaitStatus(run.ID(), kagzi.StatusSleeping)
	deployed.Store(true)
	k.Forward(run.ID())
	if re := kit.FailureOf(k, run, kagzi.StatusFailed); re.Kind != kind.Nondeterminism {
		t.Fatalf("INVALID: failed with %v", re)
	}
	k.WaitStatus(id, kagzi.StatusSleeping)
	tx := k.CallersTx()
	if err := run.Cancel(k.Ctx, kagzi.InTx(tx)); !errors.Is(err, kagzi.ErrRunFinished) {
		t.Fatalf("INVALID: Cancel: %v", err)
	}
	kit.CommitTx(t, tx)
	if info := k.InfoOf(id); info.Status != kagzi.StatusSleeping {
		t.Errorf("the Cancel was refused, and the child is %s", info.Status)
	}
}
