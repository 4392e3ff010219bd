package language_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/testhook"
	"github.com/kagzi/kagzi/kind"
)

// keepHouse runs a coordinator that ends runs exactly at their deadlines, until the test ends.
func keepHouse(k *kit.Kit) {
	k.T.Helper()
	co := kit.NewCoordinator(k.T, kit.NewClient(k.T, k.Pool), kagzi.CoordinatorConfig{Interval: 20 * time.Millisecond})
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- co.Run(testhook.With(ctx, &testhook.Hooks{NoGrace: true})) }()
	k.T.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			k.T.Error(err)
		}
	})
}

// alone is the configuration of a worker that hosts no coordinator and does not poll, so that only notifications wake
// its runs.
var alone = kagzi.WorkerConfig{NoCoordinator: true, PollInterval: time.Hour}

// brief is a Timeout that passes soon.
const brief = kagzi.Timeout(50 * time.Millisecond)

func wantDeadline(t *testing.T, err error) {
	t.Helper()
	re, ok := errors.AsType[*kagzi.RunError](err)
	if !ok || re.Status != kagzi.StatusFailed || re.Kind != kind.Deadline ||
		re.Message != "the run's Timeout or ExecutionTimeout has passed" {
		t.Errorf("error %v, want that of a deadline", err)
	}
}

// A run ends at its deadline although no worker claims it, and a wait for its result returns.
func TestDeadlinePassesWithoutAWorker(t *testing.T) {
	t.Parallel()
	wf := kagzi.Define[int, int]("wf")
	double := func(_ kagzi.Context, n int) (int, error) { return 2 * n, nil }

	t.Run("NobodyServesTheQueue", func(t *testing.T) {
		k := kit.New(t)
		keepHouse(k)
		run, later := kit.Begin(k, wf, 1, brief), kit.Begin(k, wf, 1, kagzi.Timeout(time.Hour))
		_, err := run.Result(k.Ctx)
		wantDeadline(t, err)
		if info := k.InfoOf(run.ID()); info.EndedAt.Before(info.DeadlineAt) || info.Version != 0 ||
			!info.StartedAt.IsZero() {
			t.Errorf("the run is %+v", info)
		}
		if info := k.InfoOf(later.ID()); info.Status != kagzi.StatusPending {
			t.Errorf("the run with an hour left is %s", info.Status)
		}
		k.Resume(run.ID())
		kit.Serve(k, wf, double)
		if got := kit.ResultOf(k, run); got != 2 {
			t.Errorf("resumed: %d", got)
		}
	})

	t.Run("TheWorkerHasAnotherVersion", func(t *testing.T) {
		k := kit.New(t)
		keepHouse(k)
		w := kit.NewWorker(t, k.Client, alone)
		kagzi.Handle(w, wf, double)
		kit.StartWorker(t, w)
		_, err := kit.Begin(k, wf, 1, brief, kagzi.Version(2)).Result(k.Ctx)
		wantDeadline(t, err)
	})

	t.Run("AllSlotsAreTaken", func(t *testing.T) {
		k := kit.New(t)
		keepHouse(k)
		w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{NoCoordinator: true, MaxConcurrent: 1})
		inside, leave := make(chan struct{}), make(chan struct{})
		kagzi.Handle(w, wf, func(ctx kagzi.Context, n int) (int, error) {
			return kagzi.Step(ctx, "slow", func(context.Context) (int, error) {
				close(inside)
				await.Opened(t, leave)
				return n, nil
			})
		})
		kit.StartWorker(t, w)
		slow := kit.Begin(k, wf, 1)
		await.Receive(t, inside)
		_, err := kit.Begin(k, wf, 2, brief).Result(k.Ctx)
		wantDeadline(t, err)
		close(leave)
		if got := kit.ResultOf(k, slow); got != 1 {
			t.Errorf("the run before it: %d", got)
		}
	})

	t.Run("TheParentWaits", func(t *testing.T) {
		k := kit.New(t)
		keepHouse(k)
		child := kagzi.Define[int, int]("child", kagzi.Queue("nobody's"))
		family(k, wf, func(ctx kagzi.Context, n int) (int, error) {
			return kagzi.RunChild(ctx, "child", child, n, brief)
		})
		_, err := kit.Begin(k, wf, 1, kit.NoRetry).Result(k.Ctx)
		if re, ok := errors.AsType[*kagzi.RunError](err); !ok || re.Kind != kind.Deadline ||
			!strings.Contains(re.Message, "the run's Timeout or ExecutionTimeout has passed") {
			t.Errorf("the parent: %v", err)
		}
		wantDeadline(t,
			failureIn(k.InfoOf(k.ChildOf(kagzi.RunID(dbtest.QueryOne[string](t, k.Pool, `SELECT run_id::text
				FROM kagzi.workflow_runs WHERE parent_run_id IS NULL`)), "child").ID)))
	})

	t.Run("TheWorkerDied", func(t *testing.T) {
		k := kit.New(t)
		keepHouse(k)
		stop := kit.Serve(k, wf, func(ctx kagzi.Context, _ int) (int, error) { return 0, kit.SleepLong(ctx) })
		run := kit.Begin(k, wf, 1)
		k.WaitStatus(run.ID(), kagzi.StatusSleeping)
		_ = stop()
		k.Exec(`UPDATE kagzi.workflow_runs SET status = 'RUNNING', lease = gen_random_uuid(),
			locked_by = gen_random_uuid(), deadline_at = now(), available_at = now()`)
		_, err := run.Result(k.Ctx)
		wantDeadline(t, err)
	})
}

// failureIn is the run's error as Result returns it.
func failureIn(i kagzi.RunInfo) error {
	return &kagzi.RunError{Run: i.ID, Workflow: i.Workflow, Status: i.Status, Kind: i.Kind, Message: i.Error}
}

// A run past its deadline is compensated although no worker has its code, and its parent waits for that.
func TestDeadlineWithCompensationsNeedsNoWorker(t *testing.T) {
	k := kit.New(t)
	keepHouse(k)
	parent, child := kagzi.Define[int, int]("parent", kit.NoRetry, kagzi.Queue("parents")),
		kagzi.Define[int, int]("child", kit.NoRetry)
	w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{NoCoordinator: true, Queue: "parents"})
	kagzi.Handle(w, parent, func(ctx kagzi.Context, n int) (int, error) {
		return kagzi.RunChild(ctx, "child", child, n, kagzi.Queue("default"))
	})
	kit.StartWorker(t, w)
	j := &kit.Journal{}
	w = kit.NewWorker(t, k.Client, alone)
	kagzi.Handle(w, child, kit.Trip(j, kit.SleepLong))
	stop := kit.StartWorker(t, w)
	run := kit.Begin(k, parent, 7)
	k.WaitStatus(run.ID(), kagzi.StatusSleeping)
	id := k.ChildOf(run.ID(), "child").ID
	k.WaitStatus(id, kagzi.StatusSleeping)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	k.Exec(`UPDATE kagzi.workflow_runs SET deadline_at = now(), available_at = now() WHERE run_id = $1`, string(id))
	info := k.WaitStatus(id, kagzi.StatusSleeping, "compensation car")
	if !info.DeadlineAt.IsZero() {
		t.Errorf("the deadline stays: %+v", info)
	}
	if info := k.InfoOf(run.ID()); info.Status != kagzi.StatusSleeping {
		t.Errorf("the parent is %s before the child's compensations have run", info.Status)
	}
	kit.ServeCancellations(k, j, nil)
	_, err := run.Result(k.Ctx)
	if re, ok := errors.AsType[*kagzi.RunError](err); !ok || re.Kind != kind.Deadline {
		t.Errorf("the parent: %v", err)
	}
	wantDeadline(t, failureIn(k.InfoOf(id)))
	j.Want(t, kit.Compensated)
}
