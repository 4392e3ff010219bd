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

// TestChildCancel cancels a child that sleeps, and replays the parent after somebody has resumed the child: neither the
// replay nor another attempt of the parent cancels it again.
func TestChildCancel(t *testing.T) {
	t.Parallel()
	t.Run("Once", func(t *testing.T) {
		k := newKit(t)
		wf := Define[int, string]("cancelling", twice)
		family(k, wf, func(ctx Context, n int) (string, error) {
			c, err := StartChild(ctx, "child", doubling, n)
			if err != nil {
				return "", err
			}
			if err := errors.Join(c.Cancel(ctx), c.Cancel(ctx)); err != nil {
				return "", err
			}
			if err := naps(ctx, 2); err != nil {
				return "", err
			}
			if ctx.Attempt() == 1 {
				return "", errors.New("once more")
			}
			return "went on", nil
		}, handleSleeping)
		run := begin(k, wf, 1)
		k.waitStatus(run.ID(), StatusSleeping, "timer nap0")
		child := k.childOf(run.ID(), "child")
		if want := fmt.Sprintf("run was cancelled: its parent %s cancelled it", run.ID()); child.Status != StatusCancelled || child.Error != want {
			t.Fatalf("the child is %s: %s", child.Status, child.Error)
		}
		k.resume(child.ID)
		k.waitStatus(child.ID, StatusSleeping)
		k.forward(run.ID())
		k.throughNaps(run.ID(), 1, 1)
		if got := resultOf(k, run); got != "went on" {
			t.Errorf("got %q", got)
		}
		if rows := k.steps(run.ID())["child"]; len(rows) != 1 {
			t.Errorf("the child was started %d times", len(rows))
		}
	})
	t.Run("Result", func(t *testing.T) {
		k := newKit(t)
		wf := Define[int, string]("cancelling")
		family(k, wf, func(ctx Context, n int) (string, error) {
			c, err := StartChild(ctx, "child", doubling, n)
			if err != nil {
				return "", err
			}
			if err := c.Cancel(ctx); err != nil {
				return "", err
			}
			_, err = c.Result(ctx)
			if re, ok := errors.AsType[*RunError](err); !ok || re.Status != StatusCancelled {
				return "", fmt.Errorf("result: %w", err)
			}
			return "cancelled", nil
		}, handleSleeping)
		if got := resultOf(k, begin(k, wf, 1)); got != "cancelled" {
			t.Errorf("got %q", got)
		}
	})
	t.Run("OfOneThatIsOver", func(t *testing.T) {
		k := newKit(t)
		family(k, parenting, func(ctx Context, n int) (int, error) {
			c, err := StartChild(ctx, "child", doubling, n)
			if err != nil {
				return 0, err
			}
			got, err := c.Result(ctx)
			return got, errors.Join(err, c.Cancel(ctx))
		}, handleDoubling)
		if got := resultOf(k, begin(k, parenting, 4)); got != 8 {
			t.Errorf("got %d", got)
		}
	})
	t.Run("BadCalls", func(t *testing.T) {
		k := newKit(t)
		refused(k, func(ctx Context) (int, error) {
			mustContain(t, (&Child[int]{}).Cancel(ctx), "the Child is empty")
			mustContain(t, (*Child[int])(nil).Cancel(ctx), "the Child is empty")
			mustContain(t, (&Child[int]{}).Cancel(nil), "Context is nil")
			return 0, nil
		})
	})
}

// TestChildrenOfEndedBranches ends branches while their run goes on: the children that were started in or below them are
// cancelled, and detached ones are not.
func TestChildrenOfEndedBranches(t *testing.T) {
	t.Parallel()
	start := func(ctx Context) error {
		if _, err := StartChild(ctx, "kept", doubling, 1, Detached()); err != nil {
			return err
		}
		_, err := StartChild(ctx, "own", doubling, 1)
		if err != nil {
			return err
		}
		_, err = Go(ctx, "sub", func(ctx Context) (int, error) {
			_, err := StartChild(ctx, "below", doubling, 1)
			return 0, err
		}).Result(ctx)
		return err
	}
	for _, tt := range []struct {
		name   string
		branch string // in which the children are
		fn     func(ctx Context) error
	}{
		{"Go", "b", func(ctx Context) error {
			_, err := Go(ctx, "b", func(ctx Context) (int, error) { return 0, errors.Join(start(ctx), Do(ctx, "s", failing)) }).Result(ctx)
			if err == nil {
				return errors.New("no failure")
			}
			return nil
		}},
		{"Race", "r/loser", func(ctx Context) error {
			started := make(chan struct{})
			_, _, err := Race(ctx, "r", map[string]func(Context) (int, error){
				"loser": func(ctx Context) (int, error) {
					err := start(ctx)
					close(started)
					return 0, errors.Join(err, Sleep(ctx, "long", 2*time.Hour))
				},
				"winner": func(ctx Context) (int, error) { <-started; return 1, nil },
			})
			return err
		}},
		{"SucceededInAGroup", "p/a", func(ctx Context) error {
			started := make(chan struct{})
			err := Parallel(ctx, "p", map[string]func(Context) error{
				"a": func(ctx Context) error { defer close(started); return start(ctx) },
				"b": func(ctx Context) error { <-started; return Do(ctx, "s", failing) },
			})
			if err == nil {
				return errors.New("no failure")
			}
			return nil
		}},
		{"TooLate", "p/a", func(ctx Context) error {
			err := Parallel(ctx, "p", map[string]func(Context) error{
				"a": func(ctx Context) error { return errors.Join(start(ctx), Sleep(ctx, "long", 2*time.Hour)) },
			}, Timeout(3*time.Second))
			if !errors.Is(err, KindTimeout) {
				return fmt.Errorf("no timeout: %w", err)
			}
			return nil
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k := newKit(t)
			family(k, parenting, func(ctx Context, n int) (int, error) {
				if err := tt.fn(ctx); err != nil {
					return 0, err
				}
				return n, naps(ctx, 2)
			}, handleSleeping)
			run := begin(k, parenting, 1)
			k.waitStatus(run.ID(), StatusSleeping, "timer nap0")
			for step, want := range map[string]Status{"own": StatusCancelled, "sub/below": StatusCancelled, "kept": StatusSleeping} {
				k.waitStatus(k.childOf(run.ID(), tt.branch+"/"+step).ID, want)
			}
			// As if the process had died before it cancelled this child.
			own := k.childOf(run.ID(), tt.branch+"/own").ID
			k.exec(`UPDATE kagzi.workflow_runs SET status = 'PENDING', available_at = now() + interval '1 hour', finished_at = NULL WHERE run_id = $1`, string(own))
			k.throughNaps(run.ID(), 0, 0)
			k.waitStatus(run.ID(), StatusSleeping, "timer nap1")
			k.waitStatus(own, StatusCancelled)
			k.throughNaps(run.ID(), 1, 1)
			resultOf(k, run)
		})
	}
}

// TestChildrenGoOnInTheNextAttempt fails an attempt of a run while a branch has a child under way: the child goes on.
func TestChildrenGoOnInTheNextAttempt(t *testing.T) {
	k := newKit(t)
	wf := Define[int, int]("retried", twice)
	var starts atomic.Int64
	release := make(chan struct{})
	family(k, wf, func(ctx Context, n int) (int, error) {
		ready := make(chan struct{})
		f := Go(ctx, "b", func(ctx Context) (int, error) {
			c, err := StartChild(ctx, "child", doubling, n)
			close(ready)
			if err != nil {
				return 0, err
			}
			return c.Result(ctx)
		})
		<-ready
		if err := Do(ctx, "s", func(context.Context) error {
			if ctx.Attempt() == 1 {
				return errors.New("not yet")
			}
			close(release)
			return nil
		}, noRetry); err != nil {
			return 0, err
		}
		return f.Result(ctx)
	}, func(w *Worker) {
		Handle(w, doubling, func(ctx Context, n int) (int, error) {
			starts.Add(1)
			return Step(ctx, "s", func(context.Context) (int, error) { <-release; return 2 * n, nil })
		})
	})
	run := begin(k, wf, 4)
	if got := resultOf(k, run); got != 8 || starts.Load() != 1 {
		t.Errorf("got %d after %d starts", got, starts.Load())
	}
	if s := k.childOf(run.ID(), "b/child"); !strings.HasSuffix(s.ParentStep, "child") || s.Status != StatusCompleted {
		t.Errorf("the child is %+v", s)
	}
}
