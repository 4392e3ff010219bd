package undo_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/kind"
)

// TestCompensationsOfAFamily: the compensations of a child have ended before its parent's begin.
func TestCompensationsOfAFamily(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(k *kit.Kit, run *kagzi.Run[int]){
		"Cancelled": kit.CancelAsleep,
		"Fails": func(k *kit.Kit, run *kagzi.Run[int]) {
			k.Signal(run.ID(), kagzi.DefineSignal[int]("fail").With(1))
		},
		"OverItsTimeout": func(k *kit.Kit, run *kagzi.Run[int]) {
			k.Exec(`UPDATE kagzi.workflow_runs SET deadline_at = now() - interval '1 h' WHERE run_id = $1`,
				string(run.ID()))
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := kit.New(t)
			child, parent := kagzi.Define[string, int]("child", kit.NoRetry),
				kagzi.Define[int, int]("parent", kit.NoRetry)
			j := &kit.Journal{}
			w := kit.NewWorker(t, k.Client,
				kagzi.WorkerConfig{Coordinator: kagzi.CoordinatorConfig{Interval: 50 * time.Millisecond}})
			kagzi.Handle(w, child, func(ctx kagzi.Context, name string) (int, error) {
				kagzi.Compensate(ctx, "inner", kit.CancelBooking.With(name+" inner"))
				return 0, kit.SleepLong(ctx)
			})
			kagzi.Handle(w, parent, func(ctx kagzi.Context, _ int) (int, error) {
				kagzi.Compensate(ctx, "outer", kit.CancelBooking.With("outer"))
				for _, name := range []string{"a", "b"} {
					if _, err := kagzi.StartChild(ctx, name, child, name); err != nil {
						return 0, err
					}
				}
				_, err := kagzi.WaitSignal(ctx, kagzi.DefineSignal[int]("fail"))
				return 0, errors.Join(err, errors.New("broken"))
			})
			kit.StartWorker(t, w)
			run := kit.Begin(k, parent, 1)
			k.WaitStatus(run.ID(), kagzi.StatusSleeping)
			await.True(t, "the children sleep", func() bool {
				return k.Count(`SELECT count(*) FROM kagzi.workflow_runs WHERE workflow_type = 'child'
					AND status = 'SLEEPING'`) == 2
			})
			end(k, run)
			k.WaitStatus(run.ID(), kagzi.StatusSleeping, "children")
			kit.ServeCancellations(k, j, nil)
			if _, err := run.Result(k.Ctx); err == nil {
				t.Error("the run completed")
			}
			if got := j.String(); got != "cancel:a inner cancel:b inner cancel:outer" &&
				got != "cancel:b inner cancel:a inner cancel:outer" {
				t.Errorf("happened: %s", got)
			}
		})
	}
}

// TestResumeWhileTheChildCompensates resumes a parent while the child that was cancelled with it runs its
// compensations: the parent starts another child.
func TestResumeWhileTheChildCompensates(t *testing.T) {
	k := kit.New(t)
	child, parent := kagzi.Define[int, int]("child", kit.NoRetry), kagzi.Define[int, int]("parent", kit.NoRetry)
	inUndo, gate := make(chan struct{}), make(chan struct{})
	var tries atomic.Int64
	w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{})
	kagzi.Handle(w, child, func(ctx kagzi.Context, n int) (int, error) {
		kagzi.Compensate(ctx, "it", kit.CancelBooking.With("it"))
		if tries.Add(1) == 1 {
			return 0, kit.SleepLong(ctx)
		}
		await.Opened(t, gate) // the parent sleeps until then
		return 7, nil
	})
	kagzi.Handle(w, parent, func(ctx kagzi.Context, _ int) (int, error) { return kagzi.RunChild(ctx, "c", child, 1) })
	kit.StartWorker(t, w)
	kit.ServeCancellations(k, &kit.Journal{}, func(string) error {
		close(inUndo)
		await.Opened(t, gate)
		return nil
	})
	run := kit.Begin(k, parent, 1)
	await.True(t, "all sleep", func() bool {
		return k.Count(`SELECT count(*) FROM kagzi.workflow_runs WHERE status = 'SLEEPING'`) == 2
	})
	k.Cancel(run.ID())
	await.Receive(t, inUndo)
	k.Resume(run.ID())
	k.WaitStatus(run.ID(), kagzi.StatusSleeping)
	close(gate)
	kit.EndsAs(k, run, kagzi.StatusCompleted)
}

// TestCompensationsOfACompensation: the compensations of a compensation that fails run before the next one begins.
func TestCompensationsOfACompensation(t *testing.T) {
	k := kit.New(t)
	nested := kagzi.Define[string, int]("nested", kit.NoRetry)
	j := &kit.Journal{}
	w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{})
	kagzi.Handle(w, kit.Travel, func(ctx kagzi.Context, _ int) (int, error) {
		kagzi.Compensate(ctx, "first", kit.CancelBooking.With("first"))
		kagzi.Compensate(ctx, "last", nested.With("last"))
		return 0, errors.New("broken")
	})
	kagzi.Handle(w, nested, func(ctx kagzi.Context, what string) (int, error) {
		kagzi.Compensate(ctx, "inner", kit.CancelBooking.With(what+" inner"))
		return 0, errors.New("nested, too")
	})
	kit.StartWorker(t, w)
	kit.ServeCancellations(k, j, nil)
	if re := kit.FailureOf(k, kit.Begin(k, kit.Travel, 1), kagzi.StatusFailed); re.Kind != kind.Compensation {
		t.Errorf("the run ended with %v", re)
	}
	j.Want(t, "cancel:last inner cancel:first")
}
