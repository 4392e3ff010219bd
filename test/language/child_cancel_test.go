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
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/kind"
)

// TestChildCancel cancels a child that sleeps, and replays the parent after a client has resumed the child: neither the
// replay nor another attempt of the parent cancels it again.
func TestChildCancel(t *testing.T) {
	t.Parallel()
	t.Run("Once", func(t *testing.T) {
		k := kit.New(t)
		wf := kagzi.Define[int, string]("cancelling", kit.Twice)
		family(k, wf, func(ctx kagzi.Context, n int) (string, error) {
			c, err := kagzi.StartChild(ctx, "child", doubling, n)
			if err != nil {
				return "", err
			}
			if err := errors.Join(c.Cancel(ctx), c.Cancel(ctx)); err != nil {
				return "", err
			}
			if err := kit.Naps(ctx, 2); err != nil {
				return "", err
			}
			if ctx.Attempt() == 1 {
				return "", errors.New("once more")
			}
			return "went on", nil
		}, handleSleeping)
		run := kit.Begin(k, wf, 1)
		k.WaitStatus(run.ID(), kagzi.StatusSleeping, "timer nap0")
		child := k.ChildOf(run.ID(), "child")
		if want := fmt.Sprintf("run was cancelled: its parent %s cancelled it",
			run.ID()); child.Status != kagzi.StatusCancelled || child.Error != want {
			t.Fatalf("the child is %s: %s", child.Status, child.Error)
		}
		k.Resume(child.ID)
		k.WaitStatus(child.ID, kagzi.StatusSleeping)
		k.Forward(run.ID())
		k.ThroughNaps(run.ID(), 1, 1)
		if got := kit.ResultOf(k, run); got != "went on" {
			t.Errorf("got %q", got)
		}
		if rows := k.Steps(run.ID())["child"]; len(rows) != 1 {
			t.Errorf("the child was started %d times", len(rows))
		}
	})
	t.Run("Result", func(t *testing.T) {
		k := kit.New(t)
		wf := kagzi.Define[int, string]("cancelling")
		family(k, wf, func(ctx kagzi.Context, n int) (string, error) {
			c, err := kagzi.StartChild(ctx, "child", doubling, n)
			if err != nil {
				return "", err
			}
			if err := c.Cancel(ctx); err != nil {
				return "", err
			}
			_, err = c.Result(ctx)
			if re, ok := errors.AsType[*kagzi.RunError](err); !ok || re.Status != kagzi.StatusCancelled {
				return "", fmt.Errorf("result: %w", err)
			}
			return "cancelled", nil
		}, handleSleeping)
		if got := kit.ResultOf(k, kit.Begin(k, wf, 1)); got != "cancelled" {
			t.Errorf("got %q", got)
		}
	})
	t.Run("OfOneThatIsOver", func(t *testing.T) {
		k := kit.New(t)
		family(k, parenting, func(ctx kagzi.Context, n int) (int, error) {
			c, err := kagzi.StartChild(ctx, "child", doubling, n)
			if err != nil {
				return 0, err
			}
			got, err := c.Result(ctx)
			return got, errors.Join(err, c.Cancel(ctx))
		}, handleDoubling)
		if got := kit.ResultOf(k, kit.Begin(k, parenting, 4)); got != 8 {
			t.Errorf("got %d", got)
		}
	})
	t.Run("BadCalls", func(t *testing.T) {
		k := kit.New(t)
		kit.Refused(k, func(ctx kagzi.Context) (int, error) {
			kit.MustContain(t, (&kagzi.Child[int]{}).Cancel(ctx), "the Child is empty")
			kit.MustContain(t, (*kagzi.Child[int])(nil).Cancel(ctx), "the Child is empty")
			kit.MustContain(t, (&kagzi.Child[int]{}).Cancel(nil), "Context is nil")
			return 0, nil
		})
	})
}

// TestChildrenOfEndedBranches ends branches while their run goes on: the children that were started in or below them
// are cancelled, and detached ones are not.
func TestChildrenOfEndedBranches(t *testing.T) {
	t.Parallel()
	start := func(ctx kagzi.Context) error {
		if _, err := kagzi.StartChild(ctx, "kept", doubling, 1, kagzi.Detached()); err != nil {
			return err
		}
		_, err := kagzi.StartChild(ctx, "own", doubling, 1)
		if err != nil {
			return err
		}
		_, err = kagzi.Go(ctx, "sub", func(ctx kagzi.Context) (int, error) {
			_, err := kagzi.StartChild(ctx, "below", doubling, 1)
			return 0, err
		}).Result(ctx)
		return err
	}
	for _, tt := range []struct {
		name   string
		branch string // in which the children are
		fn     func(ctx kagzi.Context) error
	}{
		{"Go", "b", func(ctx kagzi.Context) error {
			_, err := kagzi.Go(ctx, "b", func(ctx kagzi.Context) (int, error) {
				return 0, errors.Join(start(ctx), kagzi.Do(ctx, "s", failing))
			}).Result(ctx)
			if err == nil {
				return errors.New("no failure")
			}
			return nil
		}},
		{"Race", "r/loser", func(ctx kagzi.Context) error {
			started := make(chan struct{})
			_, _, err := kagzi.Race(ctx, "r", map[string]func(kagzi.Context) (int, error){
				"loser": func(ctx kagzi.Context) (int, error) {
					err := start(ctx)
					close(started)
					return 0, errors.Join(err, kagzi.Sleep(ctx, "long", 2*time.Hour))
				},
				"winner": func(ctx kagzi.Context) (int, error) { await.Opened(t, started); return 1, nil },
			})
			return err
		}},
		{"SucceededInAGroup", "p/a", func(ctx kagzi.Context) error {
			started := make(chan struct{})
			err := kagzi.Parallel(ctx, "p", map[string]func(kagzi.Context) error{
				"a": func(ctx kagzi.Context) error { defer close(started); return start(ctx) },
				"b": func(ctx kagzi.Context) error { await.Opened(t, started); return kagzi.Do(ctx, "s", failing) },
			})
			if err == nil {
				return errors.New("no failure")
			}
			return nil
		}},
		{"TooLate", "p/a", func(ctx kagzi.Context) error {
			err := kagzi.Parallel(ctx, "p", map[string]func(kagzi.Context) error{
				"a": func(ctx kagzi.Context) error {
					return errors.Join(start(ctx), kagzi.Sleep(ctx, "long", 2*time.Hour))
				},
			}, enough)
			if !errors.Is(err, kind.Timeout) {
				return fmt.Errorf("no timeout: %w", err)
			}
			return nil
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k := kit.New(t)
			family(k, parenting, func(ctx kagzi.Context, n int) (int, error) {
				if err := tt.fn(ctx); err != nil {
					return 0, err
				}
				return n, kit.Naps(ctx, 2)
			}, handleSleeping)
			run := kit.Begin(k, parenting, 1)
			k.WaitStatus(run.ID(), kagzi.StatusSleeping, "timer nap0")
			for step, want := range map[string]kagzi.Status{
				"own":       kagzi.StatusCancelled,
				"sub/below": kagzi.StatusCancelled, "kept": kagzi.StatusSleeping,
			} {
				k.WaitStatus(k.ChildOf(run.ID(), tt.branch+"/"+step).ID, want)
			}
			// As if the process had died before it cancelled this child.
			own := k.ChildOf(run.ID(), tt.branch+"/own").ID
			k.Exec(`UPDATE kagzi.workflow_runs SET status = 'PENDING', available_at = now() + interval '1 hour',
				finished_at = NULL WHERE run_id = $1`, string(own))
			k.ThroughNaps(run.ID(), 0, 0)
			k.WaitStatus(run.ID(), kagzi.StatusSleeping, "timer nap1")
			k.WaitStatus(own, kagzi.StatusCancelled)
			k.ThroughNaps(run.ID(), 1, 1)
			kit.ResultOf(k, run)
		})
	}
}

// TestChildrenGoOnInTheNextAttempt fails an attempt of a run while a branch has a child under way: the child goes on.
func TestChildrenGoOnInTheNextAttempt(t *testing.T) {
	k := kit.New(t)
	wf := kagzi.Define[int, int]("retried", kit.Twice)
	var starts atomic.Int64
	release := make(chan struct{})
	family(k, wf, func(ctx kagzi.Context, n int) (int, error) {
		ready := make(chan struct{})
		f := kagzi.Go(ctx, "b", func(ctx kagzi.Context) (int, error) {
			c, err := kagzi.StartChild(ctx, "child", doubling, n)
			close(ready)
			if err != nil {
				return 0, err
			}
			return c.Result(ctx)
		})
		await.Opened(t, ready)
		if err := kagzi.Do(ctx, "s", func(context.Context) error {
			if ctx.Attempt() == 1 {
				return errors.New("not yet")
			}
			close(release)
			return nil
		}, kit.NoRetry); err != nil {
			return 0, err
		}
		return f.Result(ctx)
	}, func(w *kagzi.Worker) {
		kagzi.Handle(w, doubling, func(ctx kagzi.Context, n int) (int, error) {
			starts.Add(1)
			return kagzi.Step(ctx, "s", func(context.Context) (int, error) {
				await.Opened(t, release)
				return 2 * n, nil
			})
		})
	})
	run := kit.Begin(k, wf, 4)
	if got := kit.ResultOf(k, run); got != 8 || starts.Load() != 1 {
		t.Errorf("got %d after %d starts", got, starts.Load())
	}
	if s := k.ChildOf(run.ID(), "b/child"); !strings.HasSuffix(s.ParentStep, "child") ||
		s.Status != kagzi.StatusCompleted {
		t.Errorf("the child is %+v", s)
	}
}
