package language_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/kind"
)

var (
	doubling  = kagzi.Define[int, int]("doubling", kit.NoRetry)
	parenting = kagzi.Define[int, int]("parenting", kit.NoRetry)
)

var errNegative = kind.Kind("negative")

// family serves fn as a parent's code, beside the code of children. The worker does not poll: every run that continues
// was woken.
func family[In, Out any](k *kit.Kit, parent kagzi.Workflow[In, Out], fn func(kagzi.Context, In) (Out, error),
	children ...func(*kagzi.Worker),
) (stop func() error) {
	k.T.Helper()
	w := kit.NewWorker(k.T, k.Client, kagzi.WorkerConfig{PollInterval: time.Hour})
	kagzi.Handle(w, parent, fn)
	for _, handle := range children {
		handle(w)
	}
	return kit.StartWorker(k.T, w)
}

// handleDoubling has a child double a number in a step, and fail for one below zero.
func handleDoubling(w *kagzi.Worker) {
	kagzi.Handle(w, doubling, func(ctx kagzi.Context, n int) (int, error) {
		if n < 0 {
			return 0, fmt.Errorf("%w: %d", kagzi.Permanent(errNegative), n)
		}
		return kagzi.Step(ctx, "double", func(context.Context) (int, error) { return 2 * n, nil })
	})
}

// handleSleeping has a child sleep for ever.
func handleSleeping(w *kagzi.Worker) {
	kagzi.Handle(w, doubling, func(ctx kagzi.Context, n int) (int, error) {
		return n, kagzi.Sleep(ctx, "for ever", 1000*time.Hour)
	})
}

func TestChild(t *testing.T) {
	t.Parallel()
	t.Run("ResultAndLineage", func(t *testing.T) {
		k := kit.New(t)
		family(k, parenting, func(ctx kagzi.Context, n int) (int, error) {
			f := kagzi.Go(ctx, "branch", func(ctx kagzi.Context) (int, error) {
				return kagzi.RunChild(ctx, "child", doubling, n)
			})
			return f.Result(ctx)
		}, handleDoubling)
		run := kit.Begin(k, parenting, 21)
		if got := kit.ResultOf(k, run); got != 42 {
			t.Errorf("got %d", got)
		}
		child := k.ChildOf(run.ID(), "branch/child")
		if child.Parent != run.ID() || child.Status != kagzi.StatusCompleted || child.Workflow != "doubling" {
			t.Errorf("the child is %+v", child)
		}
		step := k.Steps(run.ID())["branch/child"][0]
		if step.Child != child.ID || step.Status != kagzi.StatusCompleted || string(step.Output) != "42" ||
			step.EndedAt.Before(child.EndedAt) || step.StartedAt.After(child.StartedAt) {
			t.Errorf("the step is %+v, the child %+v", step, child)
		}
		if n := k.Count(`SELECT count(*) FROM kagzi.step_runs WHERE child_run_id = $1 AND step_kind = 'CHILD_WORKFLOW'`,
			string(child.ID)); n != 1 {
			t.Errorf("%d steps have the child's ID", n)
		}
	})

	t.Run("WaitsWithoutASlot", func(t *testing.T) {
		k := kit.New(t)
		w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{MaxConcurrent: 1, PollInterval: time.Hour})
		kagzi.Handle(w, parenting, func(ctx kagzi.Context, n int) (int, error) {
			if n == 0 {
				return 1, nil
			}
			sub, err := kagzi.RunChild(ctx, "child", parenting, n-1)
			return 2 * sub, err
		})
		kit.StartWorker(t, w)
		if got := kit.ResultOf(k, kit.Begin(k, parenting, 5)); got != 32 {
			t.Errorf("five generations in one slot: %d", got)
		}
	})

	t.Run("TheSameInEachReplay", func(t *testing.T) {
		k := kit.New(t)
		type seen struct {
			ID       kagzi.RunID
			Result   int
			Err      string
			Failed   kagzi.RunError
			Now      time.Time
			Conflict string
		}
		w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{})
		handleDoubling(w)
		kit.StartWorker(t, w)
		holder := kit.Begin(k, kit.Nothing, 1, kagzi.ID("taken"), kagzi.Delay(time.Hour))
		got := replayed(k, func(ctx kagzi.Context) (s seen) {
			c, err := kagzi.StartChild(ctx, "good", doubling, 1)
			if err != nil {
				s.Err = err.Error()
				return s
			}
			s.ID = c.ID()
			if s.Result, err = c.Result(ctx); err != nil {
				s.Err = err.Error()
			}
			_, err = kagzi.RunChild(ctx, "bad", doubling, -1)
			if re, ok := errors.AsType[*kagzi.RunError](err); ok && errors.Is(err, errNegative) {
				s.Failed = *re
			}
			if _, err = kagzi.RunChild(ctx, "taken", doubling, 1, kagzi.ID("taken")); errors.Is(err,
				kagzi.ErrIDConflict) && kagzi.KindOf(err) == kind.BadRequest {
				s.Conflict = err.Error()
			}
			s.Now = ctx.Now()
			return s
		})
		if got.Result != 2 || got.Err != "" || got.Failed.Kind != errNegative ||
			got.Failed.Status != kagzi.StatusFailed || got.Failed.Message != "negative: -1" ||
			got.Failed.Workflow != "doubling" {
			t.Errorf("got %+v", got)
		}
		if !strings.Contains(got.Conflict, `child "taken"`) ||
			!strings.Contains(got.Conflict, `the ID "taken" is an active run's: a child needs one that is free`) {
			t.Errorf("the conflict says %q", got.Conflict)
		}
		if n := k.Count(`SELECT count(*) FROM kagzi.workflow_runs WHERE workflow_type = 'doubling'`); n != 2 {
			t.Errorf("%d children", n)
		}
		if err := k.Client.Cancel(k.Ctx, holder.ID()); err != nil {
			t.Error(err)
		}
	})

	t.Run("QueueAndPriority", func(t *testing.T) {
		k := kit.New(t)
		w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{Queue: "shop", PollInterval: time.Hour})
		other := kit.NewClient(t, k.Pool) // another process, which alone has the code of children
		elsewhere := kagzi.Define[int, int]("elsewhere", kagzi.Queue("mill"), kagzi.Priority(4))
		mill := kit.NewWorker(t, other, kagzi.WorkerConfig{Queue: "mill", PollInterval: time.Hour})
		kagzi.Handle(mill, elsewhere, func(_ kagzi.Context, n int) (int, error) { return 2 * n, nil })
		kagzi.Handle(w, parenting, func(ctx kagzi.Context, n int) (int, error) {
			a, err := kagzi.RunChild(ctx, "here", doubling, n)
			if err != nil {
				return 0, err
			}
			if err := kagzi.Sleep(ctx, "nap", 300*time.Millisecond); err != nil {
				return 0, err
			}
			b, err := kagzi.RunChild(ctx, "there", elsewhere, a)
			if err != nil {
				return 0, err
			}
			return kagzi.RunChild(ctx, "chosen", doubling, b, kagzi.Queue("mill"), kagzi.Priority(2))
		})
		handleDoubling(w)
		handleDoubling(mill)
		kit.StartWorker(t, w)
		kit.StartWorker(t, mill)
		run := kit.Begin(k, parenting, 1, kagzi.Queue("shop"), kagzi.Priority(1))
		if got := kit.ResultOf(k, run); got != 8 {
			t.Errorf("got %d", got)
		}
		for step, want := range map[string]struct {
			queue    string
			priority int
		}{"here": {"shop", 1}, "there": {"mill", 4}, "chosen": {"mill", 2}} {
			if c := k.ChildOf(run.ID(), step); c.Queue != want.queue || c.Priority != want.priority {
				t.Errorf("%s: queue %q, priority %d; want %+v", step, c.Queue, c.Priority, want)
			}
		}
	})

	t.Run("AskedTwiceAndByABranch", func(t *testing.T) {
		k := kit.New(t)
		family(k, parenting, func(ctx kagzi.Context, n int) (int, error) {
			c, err := kagzi.StartChild(ctx, "child", doubling, n)
			if err != nil {
				return 0, err
			}
			f := kagzi.Go(ctx, "asks", func(ctx kagzi.Context) (int, error) { return c.Result(ctx) })
			a, err := c.Result(ctx)
			if err != nil {
				return 0, err
			}
			b, err := f.Result(ctx)
			if err != nil {
				return 0, err
			}
			again, err := kagzi.Results(ctx, []*kagzi.Child[int]{c, c})
			return a + b + again[0] + again[1], err
		}, handleDoubling)
		if got := kit.ResultOf(k, kit.Begin(k, parenting, 1)); got != 8 {
			t.Errorf("got %d", got)
		}
	})

	t.Run("WaitingOn", func(t *testing.T) {
		k := kit.New(t)
		family(k, parenting, func(ctx kagzi.Context, n int) (int, error) {
			children := make([]*kagzi.Child[int], n)
			for i := range children {
				var err error
				if children[i], err = kagzi.StartChild(ctx, fmt.Sprint("c", i), doubling, i); err != nil {
					return 0, err
				}
			}
			out, err := kagzi.Results(ctx, children)
			return len(out), err
		}, handleSleeping)
		for n, want := range map[int]string{1: "child c0", 3: "child c0 and 2 more"} {
			run := kit.Begin(k, parenting, n)
			if info := k.WaitStatus(run.ID(), kagzi.StatusSleeping); info.WaitingOn.String() != want ||
				!info.AvailableAt.IsZero() {
				t.Errorf("waits on %q until %v, want %q", info.WaitingOn, info.AvailableAt, want)
			}
			if err := k.Client.Cancel(k.Ctx, run.ID()); err != nil {
				t.Error(err)
			}
		}
	})
}

// Calls that are wrong start nothing, and say so before any write.
func TestChildRefusals(t *testing.T) {
	t.Parallel()
	k := kit.NewWith(t, kagzi.ClientConfig{MaxPayload: 100})
	big := kagzi.Define[string, string]("big")
	bad := kagzi.Define[func(), int]("bad")
	tx := k.CallersTx()
	type outcome struct {
		kind kind.Kind
		text string
	}
	kit.Refused(k, func(ctx kagzi.Context) (int, error) {
		var all []outcome
		add := func(err error) { all = append(all, outcome{kagzi.KindOf(err), fmt.Sprint(err)}) }
		_, err := kagzi.StartChild(ctx, "a", big, strings.Repeat("x", 200))
		add(err)
		if !errors.Is(err, kagzi.ErrPayloadTooLarge) {
			t.Errorf("got %v", err)
		}
		_, err = kagzi.RunChild(ctx, "b", bad, func() {})
		add(err)
		_, err = kagzi.RunChild(ctx, "c", big, "", kagzi.InTx(tx))
		add(err)
		_, err = kagzi.RunChild(ctx, "d", big, "", kagzi.Priority(9))
		add(err)
		_, err = kagzi.RunChild(ctx, "e/f", big, "")
		add(err)
		_, err = kagzi.RunChild(ctx, "g", kagzi.Define[string, string](""), "")
		add(err)
		_, err = kagzi.Results(ctx, []*kagzi.Child[int]{nil})
		add(err)
		var none *kagzi.Child[int]
		_, err = none.Result(ctx)
		add(err)
		_, err = new(kagzi.Child[int]).Result(ctx)
		add(err)
		_, err = kagzi.RunChild(ctx, "h", big, "", kagzi.ID("x"), kagzi.RejectActive)
		add(err)
		_, err = kagzi.RunChild(ctx, "i", big, "", kagzi.DefineSignal[int]("s").With(1))
		add(err)
		for i, want := range []string{
			`child "a"`, "cannot be encoded", "takes no InTx", "Priority is 9", "e/f",
			"workflow name", "child 0 is empty", "the Child is empty", "the Child is empty", "takes no IfActive",
			"takes no Message",
		} {
			if all[i].kind != kind.BadRequest || !strings.Contains(all[i].text, want) {
				t.Errorf("got %+v, want one that says %q", all[i], want)
			}
		}
		return 0, nil
	})
	if n := k.Count(`SELECT count(*) FROM kagzi.workflow_runs`); n != 1 {
		t.Errorf("%d runs", n)
	}
	_, err := kagzi.Start(k.Ctx, k.Client, doubling, 1, kagzi.Detached())
	kit.MustContain(t, err, "takes no Detached", "only a child")
	_, err = k.Client.StartMany(k.Ctx, []kagzi.Call{doubling.With(1, kagzi.Detached())})
	kit.MustContain(t, err, "takes no Detached", "only a child")
	err = k.Client.Schedule(k.Ctx, kagzi.Schedule{Name: "s", Every: time.Hour, Run: doubling.With(1, kagzi.Detached())})
	kit.MustContain(t, err, "takes no Detached", "only a child")
}

// A Race's loser takes no end in, and a cancelled branch gets its cause.
func TestChildInBranches(t *testing.T) {
	t.Parallel()
	t.Run("Race", func(t *testing.T) {
		k := kit.New(t)
		family(k, kagzi.Define[int, string]("racing"), func(ctx kagzi.Context, n int) (string, error) {
			winner, _, err := kagzi.Race(ctx, "race", map[string]func(kagzi.Context) (int, error){
				"slow": func(ctx kagzi.Context) (int, error) {
					return kagzi.RunChild(ctx, "c", doubling, 1, kagzi.Delay(time.Hour))
				},
				"fast": func(ctx kagzi.Context) (int, error) { return kagzi.RunChild(ctx, "c", doubling, 2) },
			})
			if err != nil {
				return "", err
			}
			return winner, kagzi.Sleep(ctx, "nap", 300*time.Millisecond)
		}, handleDoubling)
		run := kit.Begin(k, kagzi.Define[int, string]("racing"), 1)
		if got := kit.ResultOf(k, run); got != "fast" {
			t.Errorf("%s won", got)
		}
		if c := k.ChildOf(run.ID(), "race/slow/c"); c.Status != kagzi.StatusCancelled {
			t.Errorf("the loser's child is %s once its parent is over", c.Status)
		}
	})
	t.Run("Timeout", func(t *testing.T) {
		k := kit.New(t)
		causes := make(chan error, 10)
		family(k, parenting, func(ctx kagzi.Context, n int) (int, error) {
			err := kagzi.Parallel(ctx, "group",
				map[string]func(kagzi.Context) error{"a": func(ctx kagzi.Context) error {
					_, err := kagzi.RunChild(ctx, "c", doubling, 1)
					causes <- err
					return err
				}}, kagzi.Timeout(100*time.Millisecond))
			if !errors.Is(err, kind.Timeout) {
				return 0, err
			}
			return 1, nil
		}, handleSleeping)
		if got := kit.ResultOf(k, kit.Begin(k, parenting, 1)); got != 1 {
			t.Errorf("got %d", got)
		}
		if err := <-causes; !errors.Is(err, kind.Cancelled) {
			t.Errorf("the branch got %v", err)
		}
	})
	t.Run("Map", func(t *testing.T) {
		k := kit.New(t)
		family(k, kagzi.Define[int, string]("mapping"), func(ctx kagzi.Context, n int) (string, error) {
			out, err := kagzi.Map(ctx, "all", []int{1, -1, 3}, func(ctx kagzi.Context, n int) (int, error) {
				return kagzi.RunChild(ctx, "c", doubling, n)
			}, kagzi.CollectErrors())
			return fmt.Sprint(out, err), nil
		}, handleDoubling)
		got := kit.ResultOf(k, kit.Begin(k, kagzi.Define[int, string]("mapping"), 1))
		if !strings.HasPrefix(got, "[2 0 6] ") || !strings.Contains(got, "negative: -1") {
			t.Errorf("got %s", got)
		}
	})
}

// TestResults awaits many children with few statements and few claims of their parent.
func TestResults(t *testing.T) {
	const n = 1000
	k := kit.New(t)
	dbtest.Audit(t, k.Pool)
	fanout := kagzi.Define[int, []int]("fanout", kit.NoRetry)
	failures := make(chan error, 10)
	family(k, fanout, func(ctx kagzi.Context, n int) ([]int, error) {
		children := make([]*kagzi.Child[int], n)
		for i := range children {
			var err error
			if children[i], err = kagzi.StartChild(ctx, fmt.Sprint("child-", i), doubling, i-2); err != nil {
				return nil, err
			}
		}
		out, err := kagzi.Results(ctx, children)
		failures <- err
		return out, nil
	}, handleDoubling)
	run := kit.Begin(k, fanout, n)
	got := kit.ResultOf(k, run)
	for i := range got {
		if want := max(0, 2*(i-2)); got[i] != want {
			t.Fatalf("result %d is %d, want %d", i, got[i], want)
		}
	}
	failed, ok := errors.AsType[kagzi.BranchErrors](<-failures)
	kit.MustContain(t, failed, "kagzi: 2 children failed: child \"child-0\": run ")
	if !ok || len(failed) != 2 || failed[1].Index != 1 || failed[1].Name != "child-1" ||
		!errors.Is(failed[1], errNegative) {
		t.Errorf("failures %v", failed)
	}
	if re, ok := errors.AsType[*kagzi.RunError](failed[0].Err); !ok || re.Status != kagzi.StatusFailed ||
		re.Workflow != "doubling" {
		t.Errorf("the failure is %v", failed[0])
	}
	inserts := k.Count(`SELECT count(DISTINCT txid) FROM kagzi_audit.changes WHERE relation = 'workflow_runs'
		AND operation = 'INSERT' AND new->>'parent_run_id' IS NOT NULL`)
	claims := k.Count(`SELECT count(DISTINCT new_lease) FROM kagzi_audit.changes WHERE relation = 'workflow_runs'
		AND run_id = $1`, string(run.ID()))
	t.Logf("%d children were inserted by %d statements, their parent was claimed %d times", n, inserts, claims)
	if inserts > n/20 { // a busy machine writes some more often
		t.Errorf("%d children were inserted by %d statements", n, inserts)
	}
	if claims > 4 {
		t.Errorf("the parent was claimed %d times", claims)
	}
}
