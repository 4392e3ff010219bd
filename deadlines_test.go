package kagzi

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/kagzi/kagzi/internal/testhook"
)

// keepHouse runs a coordinator that gives workers no time at a deadline, until the test ends.
func (k *kit) keepHouse() {
	k.t.Helper()
	co := newTestCoordinator(k.t, newTestClient(k.t, k.pool), CoordinatorConfig{Interval: 20 * time.Millisecond})
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- co.Run(testhook.With(ctx, &testhook.Hooks{NoGrace: true})) }()
	k.t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			k.t.Error(err)
		}
	})
}

// alone is a worker's configuration without a coordinator. Nobody polls: what goes on was woken.
var alone = WorkerConfig{NoCoordinator: true, PollInterval: time.Hour}

// brief is a Timeout that passes soon.
const brief = Timeout(50 * time.Millisecond)

func wantDeadline(t *testing.T, err error) {
	t.Helper()
	re, ok := errors.AsType[*RunError](err)
	if !ok || re.Status != StatusFailed || re.Kind != KindDeadline || re.Message != "the run's Timeout has passed" {
		t.Errorf("error %v, want that of a deadline", err)
	}
}

// A run whose Timeout has passed ends although no worker takes it, and whoever waits for it learns of that.
func TestDeadlinePassesWithoutAWorker(t *testing.T) {
	t.Parallel()
	wf := Define[int, int]("wf")
	double := func(_ Context, n int) (int, error) { return 2 * n, nil }

	t.Run("NobodyServesTheQueue", func(t *testing.T) {
		k := newKit(t)
		k.keepHouse()
		run, later := begin(k, wf, 1, brief), begin(k, wf, 1, Timeout(time.Hour))
		_, err := run.Result(k.ctx)
		wantDeadline(t, err)
		if info := k.infoOf(run.ID()); info.EndedAt.Before(info.DeadlineAt) || info.Version != 0 || !info.StartedAt.IsZero() {
			t.Errorf("the run is %+v", info)
		}
		if info := k.infoOf(later.ID()); info.Status != StatusPending {
			t.Errorf("the run with an hour left is %s", info.Status)
		}
		k.resume(run.ID())
		serve(k, wf, double)
		if got := resultOf(k, run); got != 2 {
			t.Errorf("resumed: %d", got)
		}
	})

	t.Run("TheWorkerHasAnotherVersion", func(t *testing.T) {
		k := newKit(t)
		k.keepHouse()
		w := newTestWorker(t, k.c, alone)
		Handle(w, wf, double)
		startWorker(t, w)
		_, err := begin(k, wf, 1, brief, Version(2)).Result(k.ctx)
		wantDeadline(t, err)
	})

	t.Run("AllSlotsAreTaken", func(t *testing.T) {
		k := newKit(t)
		k.keepHouse()
		w := newTestWorker(t, k.c, WorkerConfig{NoCoordinator: true, MaxConcurrent: 1})
		inside, leave := make(chan struct{}), make(chan struct{})
		Handle(w, wf, func(ctx Context, n int) (int, error) {
			return Step(ctx, "slow", func(context.Context) (int, error) {
				close(inside)
				<-leave
				return n, nil
			})
		})
		startWorker(t, w)
		slow := begin(k, wf, 1)
		<-inside
		_, err := begin(k, wf, 2, brief).Result(k.ctx)
		wantDeadline(t, err)
		close(leave)
		if got := resultOf(k, slow); got != 1 {
			t.Errorf("the run before it: %d", got)
		}
	})

	t.Run("TheParentWaits", func(t *testing.T) {
		k := newKit(t)
		k.keepHouse()
		child := Define[int, int]("child", Queue("nobody's"))
		family(k, wf, func(ctx Context, n int) (int, error) { return RunChild(ctx, "child", child, n, brief) })
		_, err := begin(k, wf, 1, noRetry).Result(k.ctx)
		if re, ok := errors.AsType[*RunError](err); !ok || re.Kind != KindDeadline || !strings.Contains(re.Message, "the run's Timeout has passed") {
			t.Errorf("the parent: %v", err)
		}
		wantDeadline(t, failureIn(k.infoOf(k.childOf(RunID(queryOne[string](t, k.pool, `SELECT run_id::text FROM kagzi.workflow_runs WHERE parent_run_id IS NULL`)), "child").ID)))
	})

	t.Run("TheWorkerDied", func(t *testing.T) {
		k := newKit(t)
		k.keepHouse()
		stop := serve(k, wf, func(ctx Context, _ int) (int, error) { return 0, sleepLong(ctx) })
		run := begin(k, wf, 1)
		k.waitStatus(run.ID(), StatusSleeping)
		_ = stop()
		k.exec(`UPDATE kagzi.workflow_runs SET status = 'RUNNING', lease = gen_random_uuid(), locked_by = gen_random_uuid(), deadline_at = now(), available_at = now()`)
		_, err := run.Result(k.ctx)
		wantDeadline(t, err)
	})
}

// failureIn is the run's error as Result returns it.
func failureIn(i RunInfo) error {
	return &RunError{Run: i.ID, Workflow: i.Workflow, Status: i.Status, Kind: i.Kind, Message: i.Error}
}

// A run that is over its Timeout is compensated although no worker has its code, and its parent waits for that.
func TestDeadlineWithCompensationsNeedsNoWorker(t *testing.T) {
	k := newKit(t)
	k.keepHouse()
	parent, child := Define[int, int]("parent", noRetry, Queue("parents")), Define[int, int]("child", noRetry)
	w := newTestWorker(t, k.c, WorkerConfig{NoCoordinator: true, Queue: "parents"})
	Handle(w, parent, func(ctx Context, n int) (int, error) { return RunChild(ctx, "child", child, n, Queue("default")) })
	startWorker(t, w)
	j := &journal{}
	w = newTestWorker(t, k.c, alone)
	Handle(w, child, trip(j, sleepLong))
	stop := startWorker(t, w)
	run := begin(k, parent, 7)
	k.waitStatus(run.ID(), StatusSleeping)
	id := k.childOf(run.ID(), "child").ID
	k.waitStatus(id, StatusSleeping)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	k.exec(`UPDATE kagzi.workflow_runs SET deadline_at = now(), available_at = now() WHERE run_id = $1`, string(id))
	info := k.waitStatus(id, StatusSleeping, "compensation car")
	if !info.DeadlineAt.IsZero() {
		t.Errorf("the deadline stays: %+v", info)
	}
	if info := k.infoOf(run.ID()); info.Status != StatusSleeping {
		t.Errorf("the parent is %s before the child's compensations have run", info.Status)
	}
	serveCancellations(k, j, nil)
	_, err := run.Result(k.ctx)
	if re, ok := errors.AsType[*RunError](err); !ok || re.Kind != KindDeadline {
		t.Errorf("the parent: %v", err)
	}
	wantDeadline(t, failureIn(k.infoOf(id)))
	j.want(t, undone)
}
