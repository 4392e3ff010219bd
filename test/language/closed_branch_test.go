package language_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
)

// TestClosedBranchSeesNoLaterEnd cancels a branch that waits for another, or for a child, which ends later. In the
// replays after that end, too, the branch has not learned of it.
func TestClosedBranchSeesNoLaterEnd(t *testing.T) {
	t.Parallel()
	one, two := kagzi.DefineSignal[int]("one"), kagzi.DefineSignal[int]("two")
	child := kagzi.Define[int, int]("child", kit.NoRetry)
	waitOne := func(ctx kagzi.Context) (int, error) { return kagzi.WaitSignal(ctx, one) }
	for name, tt := range map[string]struct {
		other func(kagzi.Context) func(kagzi.Context) (int, error) // begins what is waited for, and returns the wait
		on    string
	}{
		"Branch": {func(ctx kagzi.Context) func(kagzi.Context) (int, error) {
			return kagzi.Go(ctx, "other", waitOne).Result
		}, "signal one"},
		"Child": {func(ctx kagzi.Context) func(kagzi.Context) (int, error) {
			c, err := kagzi.StartChild(ctx, "other", child, 1)
			if err != nil {
				t.Error(err)
			}
			return c.Result
		}, "child other"},
	} {
		t.Run(name, func(t *testing.T) {
			k := kit.New(t)
			wf := kagzi.Define[int, int]("wf", kit.NoRetry)
			j := &kit.Journal{}
			w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{})
			kagzi.Handle(w, child, func(ctx kagzi.Context, _ int) (int, error) { return waitOne(ctx) })
			kagzi.Handle(w, wf, func(ctx kagzi.Context, _ int) (int, error) {
				result, saw := tt.other(ctx), false
				err := kagzi.Parallel(ctx, "p", map[string]func(kagzi.Context) error{
					"bad": func(ctx kagzi.Context) error { return kagzi.Do(ctx, "s", failing) },
					"wait": func(ctx kagzi.Context) error {
						_, err := result(ctx)
						saw = err == nil
						return err
					},
				})
				if err == nil {
					return 0, errors.New("the group succeeded")
				}
				if err := kit.DoLine(ctx, j, fmt.Sprint("saw:", saw)); err != nil {
					return 0, err
				}
				if _, err := result(ctx); err != nil {
					return 0, err
				}
				return kagzi.WaitSignal(ctx, two)
			})
			kit.StartWorker(t, w)
			run := kit.Begin(k, wf, 1)
			k.WaitStatus(run.ID(), kagzi.StatusSleeping, tt.on)
			to := run.ID()
			if name == "Child" {
				to = k.ChildOf(to, "other").ID
			}
			k.Signal(to, one.With(1))
			k.WaitStatus(run.ID(), kagzi.StatusSleeping, "signal two")
			k.Signal(run.ID(), two.With(1))
			kit.ResultOf(k, run)
			j.Want(t, "saw:false")
		})
	}
}

// TestClosedBranchDoesNotWaitForWhatGoesOn replays a branch that was cancelled while it waited for a second one, which
// waits for a third one that continues: waiters of the closed branch do not wait for the third.
func TestClosedBranchDoesNotWaitForWhatGoesOn(t *testing.T) {
	t.Parallel()
	one := kagzi.DefineSignal[int]("one")
	for name, behind := range map[string]func(kagzi.Context, func(kagzi.Context) (int, error)) (int, error){
		"Group": func(ctx kagzi.Context, long func(kagzi.Context) (int, error)) (int, error) {
			_, err := kagzi.Map(ctx, "g", []int{1}, func(ctx kagzi.Context, _ int) (int, error) { return long(ctx) })
			return 0, err
		},
		"Branch": func(ctx kagzi.Context, long func(kagzi.Context) (int, error)) (int, error) {
			return kagzi.Go(ctx, "y", long).Result(ctx)
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := kit.New(t)
			wf := kagzi.Define[int, int]("wf", kit.NoRetry)
			begun, goOn, past := make(chan bool), make(chan bool), make(chan bool, 2)
			kit.Serve(k, wf, func(ctx kagzi.Context, _ int) (int, error) {
				x := kagzi.Go(ctx, "x", func(ctx kagzi.Context) (int, error) {
					return behind(ctx, func(ctx kagzi.Context) (int, error) {
						if _, err := kagzi.WaitSignal(ctx, one); err != nil {
							return 0, err
						}
						return kagzi.Step(ctx, "long", func(context.Context) (int, error) {
							close(begun)
							await.Opened(t, goOn)
							return 1, nil
						})
					})
				})
				err := kagzi.Parallel(ctx, "p", map[string]func(kagzi.Context) error{
					"bad":  func(ctx kagzi.Context) error { return kagzi.Do(ctx, "s", failing) },
					"wait": func(ctx kagzi.Context) error { _, err := x.Result(ctx); return err },
				})
				if err == nil {
					return 0, errors.New("the group succeeded")
				}
				past <- true
				return x.Result(ctx)
			})
			run := kit.Begin(k, wf, 1)
			k.WaitStatus(run.ID(), kagzi.StatusSleeping, "signal one")
			await.Receive(t, past)
			k.Signal(run.ID(), one.With(1))
			await.Receive(t, begun)
			await.Receive(t, past)
			close(goOn)
			kit.ResultOf(k, run)
		})
	}
}

// TestFailureOfABranchStands has a branch fail with a child's failure, which is dealt with, and the run with the same
// one later: the next attempt starts the child anew, and the branch has failed as before.
func TestFailureOfABranchStands(t *testing.T) {
	k := kit.New(t)
	wf, child := kagzi.Define[int, int]("wf", kagzi.RetryPolicy{MaxAttempts: 2, Backoff: time.Millisecond}),
		kagzi.Define[int, int]("child", kit.NoRetry)
	j := &kit.Journal{}
	w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{})
	kagzi.Handle(w, child, func(kagzi.Context, int) (int, error) { return 0, failing(t.Context()) })
	kagzi.Handle(w, wf, func(ctx kagzi.Context, _ int) (int, error) {
		c, err := kagzi.StartChild(ctx, "c", child, 1)
		if err != nil {
			return 0, err
		}
		err = kagzi.Parallel(ctx, "p", map[string]func(kagzi.Context) error{
			"b": func(ctx kagzi.Context) error { _, err := c.Result(ctx); return err },
		})
		if err := kit.DoLine(ctx, j, fmt.Sprint("broken:", err != nil &&
			strings.HasSuffix(err.Error(), "failed (unknown): broken"))); err != nil {
			return 0, err
		}
		return c.Result(ctx)
	})
	kit.StartWorker(t, w)
	kit.FailureOf(k, kit.Begin(k, wf, 1), kagzi.StatusFailed)
	j.Want(t, "broken:true")
	if n := k.Count(`SELECT count(*) FROM kagzi.workflow_runs WHERE workflow_type = 'child'`); n != 2 {
		t.Errorf("%d children, want one for each attempt", n)
	}
}
