package kagzi

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestClosedBranchSeesNoLaterEnd cancels a branch that waits for another, or for a child, which ends later. In the replays
// after that end, too, the branch has not learned of it.
func TestClosedBranchSeesNoLaterEnd(t *testing.T) {
	t.Parallel()
	one, two := DefineSignal[int]("one"), DefineSignal[int]("two")
	child := Define[int, int]("child", noRetry)
	waitOne := func(ctx Context) (int, error) { return WaitSignal(ctx, one) }
	for name, tt := range map[string]struct {
		other func(Context) func(Context) (int, error) // begins what is waited for, and returns the wait
		on    string
	}{
		"Branch": {func(ctx Context) func(Context) (int, error) { return Go(ctx, "other", waitOne).Result }, "signal one"},
		"Child": {func(ctx Context) func(Context) (int, error) {
			c, err := StartChild(ctx, "other", child, 1)
			if err != nil {
				t.Error(err)
			}
			return c.Result
		}, "child other"},
	} {
		t.Run(name, func(t *testing.T) {
			k := newKit(t)
			wf := Define[int, int]("wf", noRetry)
			j := &journal{}
			w := newTestWorker(t, k.c, WorkerConfig{})
			Handle(w, child, func(ctx Context, _ int) (int, error) { return waitOne(ctx) })
			Handle(w, wf, func(ctx Context, _ int) (int, error) {
				result, saw := tt.other(ctx), false
				err := Parallel(ctx, "p", map[string]func(Context) error{
					"bad": func(ctx Context) error { return Do(ctx, "s", failing) },
					"wait": func(ctx Context) error {
						_, err := result(ctx)
						saw = err == nil
						return err
					},
				})
				if err == nil {
					return 0, errors.New("the group succeeded")
				}
				if err := doLine(ctx, j, fmt.Sprint("saw:", saw)); err != nil {
					return 0, err
				}
				if _, err := result(ctx); err != nil {
					return 0, err
				}
				return WaitSignal(ctx, two)
			})
			startWorker(t, w)
			run := begin(k, wf, 1)
			k.waitStatus(run.ID(), StatusSleeping, tt.on)
			to := run.ID()
			if name == "Child" {
				to = k.childOf(to, "other").ID
			}
			k.signal(to, one.With(1))
			k.waitStatus(run.ID(), StatusSleeping, "signal two")
			k.signal(run.ID(), two.With(1))
			resultOf(k, run)
			j.want(t, "saw:false")
		})
	}
}

// TestClosedBranchDoesNotWaitForWhatGoesOn replays a branch that was cancelled while it waited for one that waits for another,
// which goes on: those who wait for the closed branch do not wait for that.
func TestClosedBranchDoesNotWaitForWhatGoesOn(t *testing.T) {
	t.Parallel()
	one := DefineSignal[int]("one")
	for name, behind := range map[string]func(Context, func(Context) (int, error)) (int, error){
		"Group": func(ctx Context, long func(Context) (int, error)) (int, error) {
			_, err := Map(ctx, "g", []int{1}, func(ctx Context, _ int) (int, error) { return long(ctx) })
			return 0, err
		},
		"Branch": func(ctx Context, long func(Context) (int, error)) (int, error) { return Go(ctx, "y", long).Result(ctx) },
	} {
		t.Run(name, func(t *testing.T) {
			k := newKit(t)
			wf := Define[int, int]("wf", noRetry)
			begun, goOn, past := make(chan bool), make(chan bool), make(chan bool, 2)
			serve(k, wf, func(ctx Context, _ int) (int, error) {
				x := Go(ctx, "x", func(ctx Context) (int, error) {
					return behind(ctx, func(ctx Context) (int, error) {
						if _, err := WaitSignal(ctx, one); err != nil {
							return 0, err
						}
						return Step(ctx, "long", func(context.Context) (int, error) {
							close(begun)
							<-goOn
							return 1, nil
						})
					})
				})
				err := Parallel(ctx, "p", map[string]func(Context) error{
					"bad":  func(ctx Context) error { return Do(ctx, "s", failing) },
					"wait": func(ctx Context) error { _, err := x.Result(ctx); return err },
				})
				if err == nil {
					return 0, errors.New("the group succeeded")
				}
				past <- true
				return x.Result(ctx)
			})
			run := begin(k, wf, 1)
			k.waitStatus(run.ID(), StatusSleeping, "signal one")
			receive(t, past)
			k.signal(run.ID(), one.With(1))
			<-begun
			receive(t, past)
			close(goOn)
			resultOf(k, run)
		})
	}
}

// TestFailureOfABranchStands has a branch fail with a child's failure, which is dealt with, and the run with the same one
// later: the next attempt starts the child anew, and the branch has failed as before.
func TestFailureOfABranchStands(t *testing.T) {
	k := newKit(t)
	wf, child := Define[int, int]("wf", RetryPolicy{MaxAttempts: 2, Backoff: time.Millisecond}), Define[int, int]("child", noRetry)
	j := &journal{}
	w := newTestWorker(t, k.c, WorkerConfig{})
	Handle(w, child, func(Context, int) (int, error) { return 0, failing(t.Context()) })
	Handle(w, wf, func(ctx Context, _ int) (int, error) {
		c, err := StartChild(ctx, "c", child, 1)
		if err != nil {
			return 0, err
		}
		err = Parallel(ctx, "p", map[string]func(Context) error{
			"b": func(ctx Context) error { _, err := c.Result(ctx); return err },
		})
		if err := doLine(ctx, j, fmt.Sprint("broken:", err != nil && strings.HasSuffix(err.Error(), "failed (unknown): broken"))); err != nil {
			return 0, err
		}
		return c.Result(ctx)
	})
	startWorker(t, w)
	failureOf(k, begin(k, wf, 1), StatusFailed)
	j.want(t, "broken:true")
	if n := k.count(`SELECT count(*) FROM kagzi.workflow_runs WHERE workflow_type = 'child'`); n != 2 {
		t.Errorf("%d children, want one for each attempt", n)
	}
}
