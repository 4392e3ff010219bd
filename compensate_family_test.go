package kagzi

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"
)

// TestCompensationsOfAFamily: the compensations of a child have ended before its parent's begin.
func TestCompensationsOfAFamily(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(k *kit, run *Run[int]){
		"Cancelled": cancelAsleep,
		"Fails":     func(k *kit, run *Run[int]) { k.signal(run.ID(), DefineSignal[int]("fail").With(1)) },
		"OverItsTimeout": func(k *kit, run *Run[int]) {
			k.exec(`UPDATE kagzi.workflow_runs SET deadline_at = now() - interval '1 h' WHERE run_id = $1`, string(run.ID()))
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := newKit(t)
			child, parent := Define[string, int]("child", noRetry), Define[int, int]("parent", noRetry)
			j := &journal{}
			w := newTestWorker(t, k.c, WorkerConfig{Coordinator: CoordinatorConfig{Interval: 50 * time.Millisecond}})
			Handle(w, child, func(ctx Context, name string) (int, error) {
				Compensate(ctx, "inner", cancelBooking.With(name+" inner"))
				return 0, sleepLong(ctx)
			})
			Handle(w, parent, func(ctx Context, _ int) (int, error) {
				Compensate(ctx, "outer", cancelBooking.With("outer"))
				for _, name := range []string{"a", "b"} {
					if _, err := StartChild(ctx, name, child, name); err != nil {
						return 0, err
					}
				}
				_, err := WaitSignal(ctx, DefineSignal[int]("fail"))
				return 0, errors.Join(err, errors.New("broken"))
			})
			startWorker(t, w)
			run := begin(k, parent, 1)
			k.waitStatus(run.ID(), StatusSleeping)
			waitFor(t, "the children sleep", func() bool {
				return k.count(`SELECT count(*) FROM kagzi.workflow_runs WHERE workflow_type = 'child' AND status = 'SLEEPING'`) == 2
			})
			end(k, run)
			k.waitStatus(run.ID(), StatusSleeping, "children")
			serveCancellations(k, j, nil)
			if _, err := run.Result(k.ctx); err == nil {
				t.Error("the run completed")
			}
			if got := j.String(); got != "cancel:a inner cancel:b inner cancel:outer" && got != "cancel:b inner cancel:a inner cancel:outer" {
				t.Errorf("happened: %s", got)
			}
		})
	}
}

// TestResumeWhileTheChildCompensates resumes a parent while the child that was cancelled with it runs its compensations:
// the parent starts another child.
func TestResumeWhileTheChildCompensates(t *testing.T) {
	k := newKit(t)
	child, parent := Define[int, int]("child", noRetry), Define[int, int]("parent", noRetry)
	inUndo, gate := make(chan struct{}), make(chan struct{})
	var tries atomic.Int64
	w := newTestWorker(t, k.c, WorkerConfig{})
	Handle(w, child, func(ctx Context, n int) (int, error) {
		Compensate(ctx, "it", cancelBooking.With("it"))
		if tries.Add(1) == 1 {
			return 0, sleepLong(ctx)
		}
		<-gate // the parent sleeps until then
		return 7, nil
	})
	Handle(w, parent, func(ctx Context, _ int) (int, error) { return RunChild(ctx, "c", child, 1) })
	startWorker(t, w)
	serveCancellations(k, &journal{}, func(string) error {
		close(inUndo)
		<-gate
		return nil
	})
	run := begin(k, parent, 1)
	waitFor(t, "all sleep", func() bool { return k.count(`SELECT count(*) FROM kagzi.workflow_runs WHERE status = 'SLEEPING'`) == 2 })
	k.cancel(run.ID())
	<-inUndo
	k.resume(run.ID())
	k.waitStatus(run.ID(), StatusSleeping)
	close(gate)
	endsAs(k, run, StatusCompleted)
}

// TestCompensationsOfACompensation: the compensations of a compensation that fails run before the next one begins.
func TestCompensationsOfACompensation(t *testing.T) {
	k := newKit(t)
	nested := Define[string, int]("nested", noRetry)
	j := &journal{}
	w := newTestWorker(t, k.c, WorkerConfig{})
	Handle(w, travel, func(ctx Context, _ int) (int, error) {
		Compensate(ctx, "first", cancelBooking.With("first"))
		Compensate(ctx, "last", nested.With("last"))
		return 0, errors.New("broken")
	})
	Handle(w, nested, func(ctx Context, what string) (int, error) {
		Compensate(ctx, "inner", cancelBooking.With(what+" inner"))
		return 0, errors.New("nested, too")
	})
	startWorker(t, w)
	serveCancellations(k, j, nil)
	if re := failureOf(k, begin(k, travel, 1), StatusFailed); re.Kind != KindCompensation {
		t.Errorf("the run ended with %v", re)
	}
	j.want(t, "cancel:last inner cancel:first")
}
