package kagzi

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// A child that did not complete is a typed error, which stays as it was first seen.
func TestChildFailure(t *testing.T) {
	t.Parallel()

	t.Run("CancelledAndTerminated", func(t *testing.T) {
		for name, end := range map[string]func(*kit, RunID) error{
			"cancelled":  func(k *kit, id RunID) error { return k.c.Cancel(k.ctx, id) },
			"terminated": func(k *kit, id RunID) error { return k.c.Terminate(k.ctx, id) },
		} {
			t.Run(name, func(t *testing.T) {
				k := newKit(t)
				family(k, parenting, func(ctx Context, n int) (int, error) { return RunChild(ctx, "child", doubling, n) }, handleSleeping)
				run := begin(k, parenting, 1)
				k.waitStatus(run.ID(), StatusSleeping)
				child := k.childOf(run.ID(), "child")
				k.waitStatus(child.ID, StatusSleeping)
				if err := end(k, child.ID); err != nil {
					t.Fatal(err)
				}
				re := failureOf(k, run, StatusFailed)
				if re.Kind != KindCancelled || !strings.HasSuffix(re.Message, string(child.ID)+` of workflow "doubling" was `+name) {
					t.Errorf("the parent failed with %+v", re)
				}
			})
		}
	})

	t.Run("StaysThoughTheChildIsResumed", func(t *testing.T) {
		k := newKit(t)
		var broken atomic.Bool
		broken.Store(true)
		family(k, parenting, func(ctx Context, n int) (int, error) {
			_, err := RunChild(ctx, "child", doubling, n)
			if errors.Is(err, errNegative) {
				n++
			}
			return n, Sleep(ctx, "nap", time.Hour)
		}, func(w *Worker) {
			Handle(w, doubling, func(_ Context, n int) (int, error) {
				if broken.Load() {
					return 0, Permanent(errNegative)
				}
				return n, nil
			})
		})
		run := begin(k, parenting, 1)
		k.waitStatus(run.ID(), StatusSleeping, "timer nap")
		broken.Store(false)
		child := k.childOf(run.ID(), "child").ID
		k.resume(child)
		k.waitStatus(child, StatusCompleted)
		k.forward(run.ID())
		if got := resultOf(k, run); got != 2 {
			t.Errorf("a replay saw another end: %d", got)
		}
	})

	t.Run("IsForgottenByTheNextAttempt", func(t *testing.T) {
		k := newKit(t)
		retried := Define[int, int]("retried", soon)
		var done, failed, slow atomic.Int64
		good, bad, sleepy := Define[int, int]("good"), Define[int, int]("bad", noRetry), Define[int, int]("sleepy")
		release := make(chan struct{})
		family(k, retried, func(ctx Context, n int) (int, error) {
			s, err := StartChild(ctx, "under way", sleepy, n)
			if err != nil {
				return 0, err
			}
			a, err := RunChild(ctx, "good", good, n)
			if err != nil {
				return 0, err
			}
			b, err := RunChild(ctx, "bad", bad, a)
			if err != nil {
				return 0, err
			}
			c, err := s.Result(ctx)
			return a + b + c, err
		}, func(w *Worker) {
			Handle(w, good, func(_ Context, n int) (int, error) { done.Add(1); return n, nil })
			Handle(w, bad, func(_ Context, n int) (int, error) {
				if failed.Add(1) < 3 {
					return 0, errors.New("not yet")
				}
				close(release)
				return n, nil
			})
			Handle(w, sleepy, func(ctx Context, n int) (int, error) {
				return Step(ctx, "wait", func(ctx context.Context) (int, error) {
					slow.Add(1)
					select {
					case <-release:
						return n, nil
					case <-ctx.Done():
						return 0, context.Cause(ctx)
					}
				})
			})
		})
		run := begin(k, retried, 1)
		if got := resultOf(k, run); got != 3 {
			t.Errorf("got %d", got)
		}
		if done.Load() != 1 || failed.Load() != 3 || slow.Load() != 1 {
			t.Errorf("completed children ran %d times, failing ones %d, those under way %d; want 1, 3, 1", done.Load(), failed.Load(), slow.Load())
		}
		steps := k.steps(run.ID())
		if len(steps["bad"]) != 3 || steps["bad"][0].Child == steps["bad"][1].Child || steps["bad"][2].Status != StatusCompleted {
			t.Errorf("the failing child's steps are %+v", steps["bad"])
		}
	})

	// B fails while its parent waits for the next attempt: that, too, is a failure of the attempt before.
	t.Run("BetweenTwoAttempts", func(t *testing.T) {
		k := newKit(t)
		retried := Define[int, int]("retried", RetryPolicy{MaxAttempts: 2, Backoff: time.Hour})
		child := Define[string, int]("child", noRetry)
		fail := make(chan struct{})
		family(k, retried, func(ctx Context, n int) (int, error) {
			b, err := StartChild(ctx, "b", child, "b")
			if err != nil {
				return 0, err
			}
			if _, err := RunChild(ctx, "a", child, "a"); err != nil {
				return 0, err
			}
			return b.Result(ctx)
		}, func(w *Worker) {
			var as, bs atomic.Int64
			Handle(w, child, func(ctx Context, name string) (int, error) {
				if name == "a" && as.Add(1) == 1 {
					return 0, errors.New("not yet")
				}
				if name == "b" && bs.Add(1) == 1 {
					return Step(ctx, "wait", func(context.Context) (int, error) { <-fail; return 0, Permanent(errNegative) })
				}
				return 7, nil
			})
		})
		run := begin(k, retried, 1)
		k.waitStatus(run.ID(), StatusPending, "retry")
		close(fail)
		k.waitStatus(k.childOf(run.ID(), "b").ID, StatusFailed)
		k.exec(`UPDATE kagzi.workflow_runs SET available_at = now() WHERE run_id = $1`, string(run.ID()))
		wakeWorkers(k.t, k.pool)
		if got := resultOf(k, run); got != 7 {
			t.Errorf("got %d", got)
		}
	})

	t.Run("ResumeOfACancelledParent", func(t *testing.T) {
		k := newKit(t)
		var lazy atomic.Bool
		lazy.Store(true)
		family(k, parenting, func(ctx Context, n int) (int, error) { return RunChild(ctx, "child", doubling, n) }, func(w *Worker) {
			Handle(w, doubling, func(ctx Context, n int) (int, error) {
				if lazy.Load() {
					return 0, Sleep(ctx, "nap", time.Hour)
				}
				return 2 * n, nil
			})
		})
		run := begin(k, parenting, 4)
		k.waitStatus(run.ID(), StatusSleeping)
		k.cancel(run.ID())
		k.waitStatus(k.childOf(run.ID(), "child").ID, StatusCancelled)
		lazy.Store(false)
		k.resume(run.ID())
		if got := resultOf(k, run); got != 8 {
			t.Errorf("got %d", got)
		}
	})

	t.Run("ResumeFindsWhatEndedMeanwhile", func(t *testing.T) {
		k := newKit(t)
		var good atomic.Bool
		family(k, parenting, func(ctx Context, n int) (int, error) {
			c, err := StartChild(ctx, "child", doubling, n, Detached())
			if err != nil || !good.Load() {
				return 0, errors.Join(err, Permanent(errors.New("broken")))
			}
			return c.Result(ctx)
		}, handleDoubling)
		run := begin(k, parenting, 4)
		failureOf(k, run, StatusFailed)
		k.waitStatus(k.childOf(run.ID(), "child").ID, StatusCompleted)
		good.Store(true)
		k.resume(run.ID())
		if got := resultOf(k, run); got != 8 {
			t.Errorf("got %d", got)
		}
	})
}

// Children end with their parent, however it ends, unless they are detached.
func TestChildrenEndWithTheirParent(t *testing.T) {
	t.Parallel()
	nested := Define[int, int]("nested")
	for name, end := range map[string]struct {
		how          func(*kit, *Run[int]) error // nil: the parent ends by itself
		fail         error
		want         Status
		way          string // in which the children end
		parent, text string // what their errors say of the parent, and its own
	}{
		"Completes": {want: StatusCompleted, way: "cancelled", parent: "ended"},
		"Fails":     {fail: Permanent(errors.New("broken")), want: StatusFailed, way: "cancelled", parent: "ended", text: "broken"},
		"Cancelled": {
			how:  func(k *kit, r *Run[int]) error { return r.Cancel(k.ctx, Reason("a typo")) },
			want: StatusCancelled, way: "cancelled", parent: "was cancelled", text: "run was cancelled: a typo",
		},
		"Terminated": {
			how:  func(k *kit, r *Run[int]) error { return k.c.Terminate(k.ctx, r.ID()) },
			want: StatusCancelled, way: "terminated", parent: "was terminated", text: "run was terminated",
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := newKit(t)
			family(k, parenting, func(ctx Context, n int) (int, error) {
				for _, o := range [][]StartOption{nil, {Detached()}} {
					if _, err := StartChild(ctx, fmt.Sprint("nested", len(o)), nested, n, o...); err != nil {
						return 0, err
					}
					if _, err := StartChild(ctx, fmt.Sprint("delayed", len(o)), doubling, n, append(o, Delay(time.Hour))...); err != nil {
						return 0, err
					}
				}
				if end.how != nil {
					return 0, Sleep(ctx, "nap", time.Hour)
				}
				return 0, errors.Join(Do(ctx, "until they sleep", func(context.Context) error {
					waitFor(t, "children sleep", func() bool {
						return k.count(`SELECT count(*) FROM kagzi.workflow_runs WHERE status = 'SLEEPING'`) == 4
					})
					return nil
				}), end.fail)
			}, handleSleeping, func(w *Worker) {
				Handle(w, nested, func(ctx Context, n int) (int, error) { return RunChild(ctx, "below", doubling, n) })
			})
			run := begin(k, parenting, 1)
			if end.how != nil {
				waitFor(t, "all sleep", func() bool { return k.count(`SELECT count(*) FROM kagzi.workflow_runs WHERE status = 'SLEEPING'`) == 5 })
				if err := end.how(k, run); err != nil {
					t.Fatal(err)
				}
			}
			if info := k.waitStatus(run.ID(), end.want); info.Error != end.text {
				t.Errorf("the run's error is %q, want %q", info.Error, end.text)
			}
			for step, want := range map[string]Status{"nested0": StatusCancelled, "delayed0": StatusCancelled, "nested1": StatusSleeping, "delayed1": StatusPending} {
				if c := k.childOf(run.ID(), step); c.Status != want {
					t.Errorf("%s is %s, want %s", step, c.Status, want)
				}
			}
			nested := k.childOf(run.ID(), "nested0")
			if why := fmt.Sprintf("run was %s: its parent %s %s", end.way, run.ID(), end.parent); nested.Error != why {
				t.Errorf("the child's error is %q, want %q", nested.Error, why)
			}
			c := k.childOf(nested.ID, "below")
			if why := fmt.Sprintf("run was %s: its parent %s was %[1]s", end.way, nested.ID); c.Status != StatusCancelled || c.Error != why {
				t.Errorf("the grandchild is %s: %q, want %q", c.Status, c.Error, why)
			}
			if c := k.childOf(k.childOf(run.ID(), "nested1").ID, "below"); c.Status != StatusSleeping {
				t.Errorf("the detached child's is %s", c.Status)
			}
		})
	}
}
