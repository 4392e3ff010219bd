package undo_test

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/pgproxy"
	"github.com/kagzi/kagzi/kind"
)

// A run that is rolled back completes with its result, after its compensations.
func TestRollback(t *testing.T) {
	k := kit.New(t)
	j := &kit.Journal{}
	kit.Serve(k, kit.Travel, kit.Trip(j, kagzi.Rollback))
	run := kit.Begin(k, kit.Travel, 7)
	info := k.WaitStatus(run, kagzi.StatusSleeping, "compensation car")
	if info.Kind != "" || info.Error != "" || info.Output != nil || info.Compensated {
		t.Errorf("while its compensations run, it is %+v", info)
	}
	kit.ServeCancellations(k, j, nil)
	if got := kit.ResultOf(k, run); got != 7 {
		t.Errorf("got %d, want 7", got)
	}
	j.Want(t, kit.Compensated)
	info = k.InfoOf(run)
	if info.Status != kagzi.StatusCompleted || !info.Compensated || string(info.Output) != "7" || info.Error != "" {
		t.Errorf("it is %+v", info)
	}
	runs := admin.New(k.Client).Runs
	if err := runs.Resume(k.Ctx, run); !errors.Is(err, kagzi.ErrRunFinished) {
		t.Errorf("Resume: %v", err)
	}
	if _, err := runs.Fork(k.Ctx, run, "hotel"); !errors.Is(err, admin.ErrCompensated) {
		t.Errorf("Fork: %v", err)
	}
	again, err := runs.Restart(k.Ctx, run)
	if err != nil {
		t.Fatal(err)
	}
	kit.ResultOf(k, kit.Find(t, k.Client, kit.Travel, again))
}

// Nothing is registered: the run completes at once.
func TestRollbackOfNothing(t *testing.T) {
	k := kit.New(t)
	kit.Serve(k, kit.Travel, func(ctx kagzi.Context, n int) (int, error) { return n, kagzi.Rollback(ctx) })
	run := kit.Begin(k, kit.Travel, 7)
	if got, info := kit.ResultOf(k, run), k.InfoOf(run); got != 7 || info.Compensated {
		t.Errorf("got %d; it is %+v", got, info)
	}
}

// A child that is rolled back gives its parent the result, once nothing of it is left.
func TestRollbackOfAChild(t *testing.T) {
	k := kit.New(t)
	j := &kit.Journal{}
	parent := kagzi.Define[int, int]("parent", kit.NoRetry)
	kit.Serve(k, kit.Travel, kit.Trip(j, kagzi.Rollback))
	kit.Serve(k, parent, func(ctx kagzi.Context, n int) (int, error) {
		got, err := kagzi.RunChild(ctx, "trip", kit.Travel, n)
		if err != nil {
			return 0, err
		}
		return got + 1, kit.DoLine(ctx, j, "after")
	})
	kit.ServeCancellations(k, j, nil)
	if got := kit.ResultOf(k, kit.Begin(k, parent, 7)); got != 8 {
		t.Errorf("got %d, want 8", got)
	}
	j.Want(t, kit.Compensated+" after")
}

// A compensation fails for good, or an operator intervenes. The result is not lost: a Resume runs the rest, and the run
// completes with it.
func TestRollbackThatStops(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		stop func(k *kit.Kit, run *kagzi.Run[int])
		want kagzi.Status // after a Resume; empty: there is nothing to resume
	}{
		"Fails": {func(k *kit.Kit, run *kagzi.Run[int]) {
			if re := kit.FailureOf(k, run, kagzi.StatusFailed); re.Kind != kind.Compensation {
				k.T.Errorf("it has failed with %v", re)
			} else {
				kit.MustContain(k.T, re, "hotel#compensation", "the hotel is closed", "the run was rolled back")
			}
		}, kagzi.StatusCompleted},
		"Terminated": {func(k *kit.Kit, run *kagzi.Run[int]) {
			k.WaitStatus(run, kagzi.StatusSleeping, "compensation hotel")
			if err := admin.New(k.Client).Runs.Terminate(k.Ctx, run); err != nil {
				k.T.Fatal(err)
			}
			kit.FailureOf(k, run, kagzi.StatusCancelled)
		}, kagzi.StatusCompleted},
		"Cancelled": {func(k *kit.Kit, run *kagzi.Run[int]) {
			k.WaitStatus(run, kagzi.StatusSleeping, "compensation hotel")
			k.Cancel(run)
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			k := kit.New(t)
			j := &kit.Journal{}
			var open atomic.Bool
			gate := make(chan struct{})
			kit.Serve(k, kit.Travel, kit.Trip(j, kagzi.Rollback))
			kit.ServeCancellations(k, j, func(what string) error {
				if what != "hotel7" || open.Load() {
					return nil
				}
				if name != "Fails" {
					<-gate
					return nil
				}
				return errors.New("the hotel is closed")
			})
			run := kit.Begin(k, kit.Travel, 7)
			tt.stop(k, run)
			open.Store(true)
			close(gate)
			if tt.want == "" {
				kit.FailureOf(k, run, kagzi.StatusCancelled)
				j.Want(t, kit.Compensated)
				return
			}
			if info := k.InfoOf(run); info.Output != nil || info.Compensated {
				t.Errorf("it has stopped as %+v", info)
			}
			k.Resume(run)
			if got := kit.ResultOf(k, run); got != 7 {
				t.Errorf("after a Resume it is %d, want 7", got)
			}
			if info := k.InfoOf(run); !info.Compensated {
				t.Errorf("it is %+v", info)
			}
		})
	}
}

// Each statement about a rollback, or its answer, is lost.
func TestLostRollback(t *testing.T) {
	t.Parallel()
	for name, m := range map[string]func() pgproxy.Match{
		"Finish": func() pgproxy.Match { return pgproxy.Contains("u.rolls_back") },
		"End": func() pgproxy.Match {
			return pgproxy.After(pgproxy.Contains("decode(q.outcome"), pgproxy.Exactly("commit"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			kit.EachLoss(t, func(t *testing.T, l *kit.Lossy) {
				direct := &kit.Kit{T: t, Ctx: kit.Context(t), Pool: l.Db.Pool, Client: kit.NewClient(t, l.Db.Pool)}
				lossy := dbtest.OpenPool(t, l.Proxy.DSN(), dbtest.Conns(8))
				k := &kit.Kit{T: t, Ctx: direct.Ctx, Pool: lossy, Client: kit.NewClient(t, lossy)}
				j := &kit.Journal{}
				drop := l.Lose(m())
				kit.Serve(k, kit.Travel, kit.Trip(j, kagzi.Rollback))
				kit.ServeCancellations(k, j, nil) // ends the run
				run := kit.Begin(direct, kit.Travel, 7)
				<-drop.Done()
				if got := kit.ResultOf(direct, run); got != 7 {
					t.Errorf("got %d, want 7", got)
				}
				j.Want(t, kit.Compensated)
			})
		})
	}
}

func TestWrongRollback(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		fn   func(kagzi.Context) (int, error)
		kind kind.Kind
		says string
	}{
		"InABranch": {func(ctx kagzi.Context) (int, error) {
			return 0, kit.Second(kagzi.Go(ctx, "b", func(ctx kagzi.Context) (int, error) {
				return 1, kagzi.Rollback(ctx)
			}).Result(ctx))
		}, kind.BadRequest, "a branch cannot end the run"},
		"OfTheRunInABranch": {func(ctx kagzi.Context) (int, error) {
			err := kagzi.Rollback(ctx)
			return 0, kit.Second(kagzi.Go(ctx, "b", func(kagzi.Context) (int, error) { return 1, err }).Result(ctx))
		}, kind.BadRequest, "a branch has returned the error of Continue or Rollback"},
		"Dropped": {func(ctx kagzi.Context) (int, error) {
			_ = kagzi.Rollback(ctx)
			return 1, nil
		}, kind.Validation, "has called Rollback, and returned no error"},
		"Wrapped": {func(ctx kagzi.Context) (int, error) {
			return 1, fmt.Errorf("declined: %w", kagzi.Rollback(ctx))
		}, kind.Validation, "return this error, as it is"},
	} {
		t.Run(name, func(t *testing.T) {
			k := kit.New(t)
			kit.Serve(k, kit.Travel, func(ctx kagzi.Context, _ int) (int, error) { return tt.fn(ctx) })
			re := kit.FailureOf(k, kit.Begin(k, kit.Travel, 1), kagzi.StatusFailed)
			if re.Kind != tt.kind {
				t.Errorf("its kind is %s, want %s", re.Kind, tt.kind)
			}
			kit.MustContain(t, re, tt.says)
		})
	}
}

// A replay compares the result although the compensations have not all run, and sees whether the code rolls back.
func TestReplayOfARollback(t *testing.T) {
	completes := func(kagzi.Context) error { return nil }
	for name, tt := range map[string]struct {
		was, is func(kagzi.Context) error
		fails   bool // a compensation
		says    string
	}{
		"Same":          {kagzi.Rollback, kagzi.Rollback, false, ""},
		"Failed":        {kagzi.Rollback, kagzi.Rollback, true, ""},
		"NoMore":        {kagzi.Rollback, completes, false, "the run rolled back, and completed with 7"},
		"NoMore/Failed": {kagzi.Rollback, completes, true, "the run rolled back"},
		"Now":           {completes, kagzi.Rollback, false, "it rolled back, and completed with 7"},
	} {
		t.Run(name, func(t *testing.T) {
			k := kit.New(t)
			kit.Serve(k, kit.Travel, kit.Trip(&kit.Journal{}, tt.was))
			kit.ServeCancellations(k, &kit.Journal{}, func(string) error {
				if tt.fails {
					return errors.New("closed")
				}
				return nil
			})
			run := kit.Begin(k, kit.Travel, 7)
			_, _ = run.Result(k.Ctx)
			w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{})
			kagzi.Handle(w, kit.Travel, kit.Trip(&kit.Journal{}, tt.is))
			switch err := w.Replay(k.Ctx, run); {
			case tt.says == "" && err != nil:
				t.Error(err)
			case tt.says != "":
				kit.MustContain(t, err, tt.says)
			}
		})
	}
}
