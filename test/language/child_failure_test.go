package language_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/kind"
)

// A child that did not complete is a typed error, which stays as it was first seen.
func TestChildFailure(t *testing.T) {
	t.Parallel()

	t.Run("CancelledAndTerminated", func(t *testing.T) {
		for name, end := range map[string]func(*kit.Kit, kagzi.RunID) error{
			"cancelled": func(k *kit.Kit, id kagzi.RunID) error { return k.Client.Cancel(k.Ctx, id) },
			"terminated": func(k *kit.Kit, id kagzi.RunID) error {
				return admin.New(k.Client).Runs.Terminate(k.Ctx, id)
			},
		} {
			t.Run(name, func(t *testing.T) {
				k := kit.New(t)
				family(k, parenting, func(ctx kagzi.Context, n int) (int, error) {
					return kagzi.RunChild(ctx, "child", doubling, n)
				}, handleSleeping)
				run := kit.Begin(k, parenting, 1)
				k.WaitStatus(run.ID(), kagzi.StatusSleeping)
				child := k.ChildOf(run.ID(), "child")
				k.WaitStatus(child.ID, kagzi.StatusSleeping)
				if err := end(k, child.ID); err != nil {
					t.Fatal(err)
				}
				re := kit.FailureOf(k, run, kagzi.StatusFailed)
				if re.Kind != kind.Cancelled ||
					!strings.HasSuffix(re.Message, string(child.ID)+` of workflow "doubling" was `+name) {
					t.Errorf("the parent failed with %+v", re)
				}
			})
		}
	})

	t.Run("StaysThoughTheChildIsResumed", func(t *testing.T) {
		k := kit.New(t)
		var broken atomic.Bool
		broken.Store(true)
		family(k, parenting, func(ctx kagzi.Context, n int) (int, error) {
			_, err := kagzi.RunChild(ctx, "child", doubling, n)
			if errors.Is(err, errNegative) {
				n++
			}
			return n, kagzi.Sleep(ctx, "nap", time.Hour)
		}, func(w *kagzi.Worker) {
			kagzi.Handle(w, doubling, func(_ kagzi.Context, n int) (int, error) {
				if broken.Load() {
					return 0, kagzi.Permanent(errNegative)
				}
				return n, nil
			})
		})
		run := kit.Begin(k, parenting, 1)
		k.WaitStatus(run.ID(), kagzi.StatusSleeping, "timer nap")
		broken.Store(false)
		child := k.ChildOf(run.ID(), "child").ID
		k.Resume(child)
		k.WaitStatus(child, kagzi.StatusCompleted)
		k.Forward(run.ID())
		if got := kit.ResultOf(k, run); got != 2 {
			t.Errorf("a replay saw another end: %d", got)
		}
	})

	t.Run("IsForgottenByTheNextAttempt", func(t *testing.T) {
		k := kit.New(t)
		retried := kagzi.Define[int, int]("retried", kit.Soon)
		var done, failed, slow atomic.Int64
		good, bad, sleepy := kagzi.Define[int, int]("good"), kagzi.Define[int, int]("bad", kit.NoRetry),
			kagzi.Define[int, int]("sleepy")
		release := make(chan struct{})
		family(k, retried, func(ctx kagzi.Context, n int) (int, error) {
			s, err := kagzi.StartChild(ctx, "under way", sleepy, n)
			if err != nil {
				return 0, err
			}
			a, err := kagzi.RunChild(ctx, "good", good, n)
			if err != nil {
				return 0, err
			}
			b, err := kagzi.RunChild(ctx, "bad", bad, a)
			if err != nil {
				return 0, err
			}
			c, err := s.Result(ctx)
			return a + b + c, err
		}, func(w *kagzi.Worker) {
			kagzi.Handle(w, good, func(_ kagzi.Context, n int) (int, error) { done.Add(1); return n, nil })
			kagzi.Handle(w, bad, func(_ kagzi.Context, n int) (int, error) {
				if failed.Add(1) < 3 {
					return 0, errors.New("not yet")
				}
				close(release)
				return n, nil
			})
			kagzi.Handle(w, sleepy, func(ctx kagzi.Context, n int) (int, error) {
				return kagzi.Step(ctx, "wait", func(ctx context.Context) (int, error) {
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
		run := kit.Begin(k, retried, 1)
		if got := kit.ResultOf(k, run); got != 3 {
			t.Errorf("got %d", got)
		}
		if done.Load() != 1 || failed.Load() != 3 || slow.Load() != 1 {
			t.Errorf("completed children ran %d times, failing ones %d, those under way %d; want 1, 3, 1", done.Load(),
				failed.Load(), slow.Load())
		}
		steps := k.Steps(run.ID())
		if len(steps["bad"]) != 3 || steps["bad"][0].Child == steps["bad"][1].Child ||
			steps["bad"][2].Status != kagzi.StatusCompleted {
			t.Errorf("the failing child's steps are %+v", steps["bad"])
		}
	})

	// B fails while its parent waits for the next attempt: that, too, is a failure of the attempt before.
	t.Run("BetweenTwoAttempts", func(t *testing.T) {
		k := kit.New(t)
		retried := kagzi.Define[int, int]("retried", kagzi.RetryPolicy{MaxAttempts: 2, Backoff: time.Hour})
		child := kagzi.Define[string, int]("child", kit.NoRetry)
		fail := make(chan struct{})
		family(k, retried, func(ctx kagzi.Context, n int) (int, error) {
			b, err := kagzi.StartChild(ctx, "b", child, "b")
			if err != nil {
				return 0, err
			}
			if _, err := kagzi.RunChild(ctx, "a", child, "a"); err != nil {
				return 0, err
			}
			return b.Result(ctx)
		}, func(w *kagzi.Worker) {
			var as, bs atomic.Int64
			kagzi.Handle(w, child, func(ctx kagzi.Context, name string) (int, error) {
				if name == "a" && as.Add(1) == 1 {
					return 0, errors.New("not yet")
				}
				if name == "b" && bs.Add(1) == 1 {
					return kagzi.Step(ctx, "wait", func(context.Context) (int, error) {
						<-fail
						return 0, kagzi.Permanent(errNegative)
					})
				}
				return 7, nil
			})
		})
		run := kit.Begin(k, retried, 1)
		k.WaitStatus(run.ID(), kagzi.StatusPending, "retry")
		close(fail)
		k.WaitStatus(k.ChildOf(run.ID(), "b").ID, kagzi.StatusFailed)
		k.Exec(`UPDATE kagzi.workflow_runs SET available_at = now() WHERE run_id = $1`, string(run.ID()))
		kit.WakeWorkers(k.T, k.Pool)
		if got := kit.ResultOf(k, run); got != 7 {
			t.Errorf("got %d", got)
		}
	})

	t.Run("ResumeOfACancelledParent", func(t *testing.T) {
		k := kit.New(t)
		var lazy atomic.Bool
		lazy.Store(true)
		family(k, parenting, func(ctx kagzi.Context, n int) (int, error) {
			return kagzi.RunChild(ctx, "child", doubling, n)
		}, func(w *kagzi.Worker) {
			kagzi.Handle(w, doubling, func(ctx kagzi.Context, n int) (int, error) {
				if lazy.Load() {
					return 0, kagzi.Sleep(ctx, "nap", time.Hour)
				}
				return 2 * n, nil
			})
		})
		run := kit.Begin(k, parenting, 4)
		k.WaitStatus(run.ID(), kagzi.StatusSleeping)
		k.Cancel(run.ID())
		k.WaitStatus(k.ChildOf(run.ID(), "child").ID, kagzi.StatusCancelled)
		lazy.Store(false)
		k.Resume(run.ID())
		if got := kit.ResultOf(k, run); got != 8 {
			t.Errorf("got %d", got)
		}
	})

	t.Run("ResumeFindsWhatEndedMeanwhile", func(t *testing.T) {
		k := kit.New(t)
		var good atomic.Bool
		family(k, parenting, func(ctx kagzi.Context, n int) (int, error) {
			c, err := kagzi.StartChild(ctx, "child", doubling, n, kagzi.Detached())
			if err != nil || !good.Load() {
				return 0, errors.Join(err, kagzi.Permanent(errors.New("broken")))
			}
			return c.Result(ctx)
		}, handleDoubling)
		run := kit.Begin(k, parenting, 4)
		kit.FailureOf(k, run, kagzi.StatusFailed)
		k.WaitStatus(k.ChildOf(run.ID(), "child").ID, kagzi.StatusCompleted)
		good.Store(true)
		k.Resume(run.ID())
		if got := kit.ResultOf(k, run); got != 8 {
			t.Errorf("got %d", got)
		}
	})
}

// Children end with their parent, however it ends, unless they are detached.
func TestChildrenEndWithTheirParent(t *testing.T) {
	t.Parallel()
	nested := kagzi.Define[int, int]("nested")
	for name, end := range map[string]struct {
		how          func(*kit.Kit, *kagzi.Run[int]) error // nil: the parent ends by itself
		fail         error
		want         kagzi.Status
		way          string // in which the children end
		parent, text string // what their errors say of the parent, and its own
	}{
		"Completes": {want: kagzi.StatusCompleted, way: "cancelled", parent: "ended"},
		"Fails": {
			fail: kagzi.Permanent(errors.New("broken")), want: kagzi.StatusFailed, way: "cancelled",
			parent: "ended", text: "broken",
		},
		"Cancelled": {
			how:  func(k *kit.Kit, r *kagzi.Run[int]) error { return r.Cancel(k.Ctx, kagzi.Reason("a typo")) },
			want: kagzi.StatusCancelled, way: "cancelled", parent: "was cancelled", text: "run was cancelled: a typo",
		},
		"Terminated": {
			how: func(k *kit.Kit, r *kagzi.Run[int]) error {
				return admin.New(k.Client).Runs.Terminate(k.Ctx, r.ID())
			},
			want: kagzi.StatusCancelled, way: "terminated", parent: "was terminated", text: "run was terminated",
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := kit.New(t)
			family(k, parenting, func(ctx kagzi.Context, n int) (int, error) {
				for _, o := range [][]kagzi.StartOption{nil, {kagzi.Detached()}} {
					if _, err := kagzi.StartChild(ctx, fmt.Sprint("nested", len(o)), nested, n, o...); err != nil {
						return 0, err
					}
					if _, err := kagzi.StartChild(ctx, fmt.Sprint("delayed", len(o)), doubling, n,
						append(o, kagzi.Delay(time.Hour))...); err != nil {
						return 0, err
					}
				}
				if end.how != nil {
					return 0, kagzi.Sleep(ctx, "nap", time.Hour)
				}
				return 0, errors.Join(kagzi.Do(ctx, "until they sleep", func(context.Context) error {
					await.True(t, "children sleep", func() bool {
						return k.Count(`SELECT count(*) FROM kagzi.workflow_runs WHERE status = 'SLEEPING'`) == 4
					})
					return nil
				}), end.fail)
			}, handleSleeping, func(w *kagzi.Worker) {
				kagzi.Handle(w, nested, func(ctx kagzi.Context, n int) (int, error) {
					return kagzi.RunChild(ctx, "below", doubling, n)
				})
			})
			run := kit.Begin(k, parenting, 1)
			if end.how != nil {
				await.True(t, "all sleep", func() bool {
					return k.Count(`SELECT count(*) FROM kagzi.workflow_runs
					WHERE status = 'SLEEPING'`) == 5
				})
				if err := end.how(k, run); err != nil {
					t.Fatal(err)
				}
			}
			if info := k.WaitStatus(run.ID(), end.want); info.Error != end.text {
				t.Errorf("the run's error is %q, want %q", info.Error, end.text)
			}
			for step, want := range map[string]kagzi.Status{
				"nested0":  kagzi.StatusCancelled,
				"delayed0": kagzi.StatusCancelled, "nested1": kagzi.StatusSleeping, "delayed1": kagzi.StatusPending,
			} {
				if c := k.ChildOf(run.ID(), step); c.Status != want {
					t.Errorf("%s is %s, want %s", step, c.Status, want)
				}
			}
			nested := k.ChildOf(run.ID(), "nested0")
			if why := fmt.Sprintf("run was %s: its parent %s %s", end.way, run.ID(), end.parent); nested.Error != why {
				t.Errorf("the child's error is %q, want %q", nested.Error, why)
			}
			c := k.ChildOf(nested.ID, "below")
			if why := fmt.Sprintf("run was %s: its parent %s was %[1]s", end.way,
				nested.ID); c.Status != kagzi.StatusCancelled || c.Error != why {
				t.Errorf("the grandchild is %s: %q, want %q", c.Status, c.Error, why)
			}
			if c := k.ChildOf(k.ChildOf(run.ID(), "nested1").ID, "below"); c.Status != kagzi.StatusSleeping {
				t.Errorf("the detached child's is %s", c.Status)
			}
		})
	}
}
