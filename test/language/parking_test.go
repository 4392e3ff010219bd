package language_test

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
)

// A run is parked while its branches wait for a child, a message and a timer, and one makes steps. While it is paused,
// all that they wait for happens. Then it goes on, and no step is executed twice.
func TestParkedBranches(t *testing.T) {
	k := kit.New(t)
	var calls calls
	var stop, childStop atomic.Bool
	wf, inner := kagzi.Define[int, int]("wf"), kagzi.Define[int, int]("inner")
	w := kit.NewWorker(t, k.Client, uncoordinated())
	kagzi.Handle(w, inner, func(ctx kagzi.Context, n int) (int, error) {
		if err := stepsUntil(ctx, &childStop); err != nil {
			return 0, err
		}
		return n, calls.do(ctx, "child")
	})
	then := func(name string, wait func(kagzi.Context) error) func(kagzi.Context) error {
		return func(ctx kagzi.Context) error {
			if err := wait(ctx); err != nil {
				return err
			}
			return calls.do(ctx, name)
		}
	}
	parts := map[string]func(kagzi.Context) error{
		"steps": then("after steps", func(ctx kagzi.Context) error { return stepsUntil(ctx, &stop) }),
		"child": then("after child", func(ctx kagzi.Context) error {
			_, err := kagzi.RunChild(ctx, "inner", inner, 1)
			return err
		}),
		"signal": then("after signal", func(ctx kagzi.Context) error {
			_, err := kagzi.WaitSignal(ctx, kit.Approved)
			return err
		}),
		"timer": then("after timer", func(ctx kagzi.Context) error { return kagzi.Sleep(ctx, "nap", 10*time.Hour) }),
		"race": then("after race", func(ctx kagzi.Context) error {
			_, _, err := kagzi.Race(ctx, "race", map[string]func(kagzi.Context) (int, error){
				"steps": func(ctx kagzi.Context) (int, error) { return 1, stepsUntil(ctx, &stop) },
				"long":  func(ctx kagzi.Context) (int, error) { return 2, kagzi.Sleep(ctx, "long", 100*time.Hour) },
			})
			return err
		}),
		"tx": then("after tx", func(ctx kagzi.Context) error {
			if err := kagzi.DoTx(ctx, "tx", func(context.Context, pgx.Tx) error {
				calls.add("tx")
				return nil
			}); err != nil {
				return err
			}
			return stepsUntil(ctx, &stop)
		}),
	}
	kagzi.Handle(w, wf, func(ctx kagzi.Context, n int) (int, error) {
		if err := calls.do(ctx, "before"); err != nil {
			return 0, err
		}
		if err := kagzi.Parallel(ctx, "all", parts); err != nil {
			return 0, err
		}
		return n, calls.do(ctx, "after")
	})
	kit.StartWorker(t, w)

	run := kit.Begin(k, wf, 7)
	await.True(t, "all branches have begun", func() bool {
		return k.Count(`SELECT count(*) FROM kagzi.workflow_runs WHERE parent_run_id = $1`, string(run.ID())) == 1 &&
			calls.of("tx") == 1
	})
	if err := admin.New(k.Client).Runs.Pause(k.Ctx, run.ID()); err != nil {
		t.Fatal(err)
	}
	k.WaitStatus(run.ID(), kagzi.StatusPending, "pause")
	stop.Store(true)
	childStop.Store(true)
	if err := k.Client.Signal(k.Ctx, run.ID(), kit.Approved.With("ada")); err != nil {
		t.Fatal(err)
	}
	k.Forward(run.ID())
	await.True(t, "the child has ended", func() bool { return calls.of("child") == 1 })
	if calls.of("after signal")+calls.of("after timer")+calls.of("after child") > 0 {
		t.Error("the run has gone on while it is paused")
	}
	if err := admin.New(k.Client).Runs.Unpause(k.Ctx, run.ID()); err != nil {
		t.Fatal(err)
	}
	await.True(t, "the branches go on", func() bool { return calls.of("after signal") == 1 })
	if calls.of("after timer") == 0 {
		k.Forward(run.ID())
	}
	if got := kit.ResultOf(k, run); got != 7 {
		t.Errorf("result %d", got)
	}
	calls.wantOnce(t, "before", "tx", "child", "after steps", "after child", "after signal", "after timer",
		"after race", "after tx", "after")
}

// A parked run that is cancelled or terminated ends, and a cancel runs its compensations. It is not paused any more.
func TestEndOfAParkedRun(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		end  func(*kagzi.Client) func(context.Context, kagzi.Ref, ...kagzi.ChangeOption) error
		want string
		park bool
	}{
		"Cancelled": {func(c *kagzi.Client) func(context.Context, kagzi.Ref, ...kagzi.ChangeOption) error {
			return c.Cancel
		}, "flight hotel car cancel:car1 cancel:hotel1 cancel:flight1", true},
		"Terminated": {func(c *kagzi.Client) func(context.Context, kagzi.Ref, ...kagzi.ChangeOption) error {
			return admin.New(c).Runs.Terminate
		}, "flight hotel car", true},
		"CancelledUnderWay": {func(c *kagzi.Client) func(context.Context, kagzi.Ref, ...kagzi.ChangeOption) error {
			return c.Cancel
		}, "flight hotel car cancel:car1 cancel:hotel1 cancel:flight1", false},
		"TerminatedUnderWay": {func(c *kagzi.Client) func(context.Context, kagzi.Ref, ...kagzi.ChangeOption) error {
			return admin.New(c).Runs.Terminate
		}, "flight hotel car", false},
	} {
		t.Run(name, func(t *testing.T) {
			k := kit.New(t)
			var j kit.Journal
			var never atomic.Bool
			booked := make(chan struct{})
			kit.ServeCancellations(k, &j, nil)
			kit.Serve(k, kit.Travel, kit.Trip(&j, func(ctx kagzi.Context) error {
				if err := kagzi.Do(ctx, "booked", func(context.Context) error {
					close(booked)
					return nil
				}); err != nil {
					return err
				}
				return stepsUntil(ctx, &never)
			}))
			run := kit.Begin(k, kit.Travel, 1)
			await.Receive(t, booked)
			if err := admin.New(k.Client).Runs.Pause(k.Ctx, run.ID()); err != nil {
				t.Fatal(err)
			}
			if c.park {
				k.WaitStatus(run.ID(), kagzi.StatusPending, "pause")
			}
			if err := c.end(k.Client)(k.Ctx, run.ID()); err != nil {
				t.Fatal(err)
			}
			if err := admin.New(k.Client).Runs.Pause(k.Ctx, run.ID()); !errors.Is(err, kagzi.ErrRunFinished) {
				t.Errorf("paused while it is about to end: %v", err)
			}
			if info := kit.EndsAs(k, run, kagzi.StatusCancelled); !info.PausedAt.IsZero() {
				t.Errorf("paused and cancelled: %+v", info)
			}
			j.Want(t, c.want)
		})
	}
}

// The compensations of a failed run are runs: a pause of their queue stops them, and they run when it ends.
func TestPausedCompensations(t *testing.T) {
	k := kit.New(t)
	var j kit.Journal
	kit.ServeCancellations(k, &j, nil)
	kit.Serve(k, kit.Travel, kit.Trip(&j, kit.Breaks))
	target := admin.Target{Queue: "compensations"}
	if err := admin.New(k.Client).Pauses.Set(k.Ctx, target, admin.Park()); err != nil {
		t.Fatal(err)
	}
	run := kit.Begin(k, kit.Travel, 7)
	await.True(t, "the first compensation is started", func() bool {
		return k.Count(`SELECT count(*) FROM kagzi.workflow_runs WHERE parent_run_id = $1`, string(run.ID())) == 1
	})
	if err := admin.New(k.Client).Runs.Pause(k.Ctx, run.ID()); !errors.Is(err, kagzi.ErrRunFinished) {
		t.Errorf("paused while it is compensated: %v", err)
	}
	j.Want(t, "flight hotel car")
	if err := admin.New(k.Client).Pauses.End(k.Ctx, target); err != nil {
		t.Fatal(err)
	}
	kit.EndsAs(k, run, kagzi.StatusFailed)
	j.Want(t, kit.Compensated)
}
