package kagzi

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kagzi/kagzi/internal/dbtest"
)

var (
	doubling  = Define[int, int]("doubling", noRetry)
	parenting = Define[int, int]("parenting", noRetry)
)

var errNegative = Kind("negative")

// family serves fn as a parent's code, beside the code of children. Nobody polls: what goes on was woken.
func family[In, Out any](k *kit, parent Workflow[In, Out], fn func(Context, In) (Out, error), children ...func(*Worker)) (stop func() error) {
	k.t.Helper()
	w := newTestWorker(k.t, k.c, WorkerConfig{PollInterval: time.Hour})
	Handle(w, parent, fn)
	for _, handle := range children {
		handle(w)
	}
	return startWorker(k.t, w)
}

// handleDoubling has a child double a number in a step, and fail for one below zero.
func handleDoubling(w *Worker) {
	Handle(w, doubling, func(ctx Context, n int) (int, error) {
		if n < 0 {
			return 0, fmt.Errorf("%w: %d", Permanent(errNegative), n)
		}
		return Step(ctx, "double", func(context.Context) (int, error) { return 2 * n, nil })
	})
}

// handleSleeping has a child sleep for ever.
func handleSleeping(w *Worker) {
	Handle(w, doubling, func(ctx Context, n int) (int, error) { return n, Sleep(ctx, "for ever", 1000*time.Hour) })
}

func TestChild(t *testing.T) {
	t.Parallel()
	t.Run("ResultAndLineage", func(t *testing.T) {
		k := newKit(t)
		family(k, parenting, func(ctx Context, n int) (int, error) {
			f := Go(ctx, "branch", func(ctx Context) (int, error) { return RunChild(ctx, "child", doubling, n) })
			return f.Result(ctx)
		}, handleDoubling)
		run := begin(k, parenting, 21)
		if got := resultOf(k, run); got != 42 {
			t.Errorf("got %d", got)
		}
		child := k.childOf(run.ID(), "branch/child")
		if child.Parent != run.ID() || child.Status != StatusCompleted || child.Workflow != "doubling" {
			t.Errorf("the child is %+v", child)
		}
		step := k.steps(run.ID())["branch/child"][0]
		if step.Child != child.ID || step.Status != StatusCompleted || string(step.Output) != "42" || step.EndedAt.Before(child.EndedAt) || step.StartedAt.After(child.StartedAt) {
			t.Errorf("the step is %+v, the child %+v", step, child)
		}
		if n := k.count(`SELECT count(*) FROM kagzi.step_runs WHERE child_run_id = $1 AND step_kind = 'CHILD_WORKFLOW'`, string(child.ID)); n != 1 {
			t.Errorf("%d steps have the child's ID", n)
		}
	})

	t.Run("WaitsWithoutASlot", func(t *testing.T) {
		k := newKit(t)
		w := newTestWorker(t, k.c, WorkerConfig{MaxConcurrent: 1, PollInterval: time.Hour})
		Handle(w, parenting, func(ctx Context, n int) (int, error) {
			if n == 0 {
				return 1, nil
			}
			sub, err := RunChild(ctx, "child", parenting, n-1)
			return 2 * sub, err
		})
		startWorker(t, w)
		if got := resultOf(k, begin(k, parenting, 5)); got != 32 {
			t.Errorf("five generations in one slot: %d", got)
		}
	})

	t.Run("TheSameInEachReplay", func(t *testing.T) {
		k := newKit(t)
		type seen struct {
			ID       RunID
			Result   int
			Err      string
			Failed   RunError
			Now      time.Time
			Conflict string
		}
		w := newTestWorker(t, k.c, WorkerConfig{})
		handleDoubling(w)
		startWorker(t, w)
		holder := begin(k, nothing, 1, ID("taken"), Delay(time.Hour))
		got := replayed(k, func(ctx Context) (s seen) {
			c, err := StartChild(ctx, "good", doubling, 1)
			if err != nil {
				s.Err = err.Error()
				return s
			}
			s.ID = c.ID()
			if s.Result, err = c.Result(ctx); err != nil {
				s.Err = err.Error()
			}
			_, err = RunChild(ctx, "bad", doubling, -1)
			if re, ok := errors.AsType[*RunError](err); ok && errors.Is(err, errNegative) {
				s.Failed = *re
			}
			if _, err = RunChild(ctx, "taken", doubling, 1, ID("taken")); errors.Is(err, ErrIDConflict) && KindOf(err) == KindBadRequest {
				s.Conflict = err.Error()
			}
			s.Now = ctx.Now()
			return s
		})
		if got.Result != 2 || got.Err != "" || got.Failed.Kind != errNegative || got.Failed.Status != StatusFailed || got.Failed.Message != "negative: -1" || got.Failed.Workflow != "doubling" {
			t.Errorf("got %+v", got)
		}
		if !strings.Contains(got.Conflict, `child "taken"`) || !strings.Contains(got.Conflict, `the ID "taken" is an active run's: a child needs one that is free`) {
			t.Errorf("the conflict says %q", got.Conflict)
		}
		if n := k.count(`SELECT count(*) FROM kagzi.workflow_runs WHERE workflow_type = 'doubling'`); n != 2 {
			t.Errorf("%d children", n)
		}
		if err := k.c.Cancel(k.ctx, holder.ID()); err != nil {
			t.Error(err)
		}
	})

	t.Run("QueueAndPriority", func(t *testing.T) {
		k := newKit(t)
		w := newTestWorker(t, k.c, WorkerConfig{Queue: "shop", PollInterval: time.Hour})
		other := newTestClient(t, k.pool) // another process, which alone has the code of children
		elsewhere := Define[int, int]("elsewhere", Queue("mill"), Priority(4))
		mill := newTestWorker(t, other, WorkerConfig{Queue: "mill", PollInterval: time.Hour})
		Handle(mill, elsewhere, func(_ Context, n int) (int, error) { return 2 * n, nil })
		Handle(w, parenting, func(ctx Context, n int) (int, error) {
			a, err := RunChild(ctx, "here", doubling, n)
			if err != nil {
				return 0, err
			}
			if err := Sleep(ctx, "nap", 300*time.Millisecond); err != nil {
				return 0, err
			}
			b, err := RunChild(ctx, "there", elsewhere, a)
			if err != nil {
				return 0, err
			}
			return RunChild(ctx, "chosen", doubling, b, Queue("mill"), Priority(2))
		})
		handleDoubling(w)
		handleDoubling(mill)
		startWorker(t, w)
		startWorker(t, mill)
		run := begin(k, parenting, 1, Queue("shop"), Priority(1))
		if got := resultOf(k, run); got != 8 {
			t.Errorf("got %d", got)
		}
		for step, want := range map[string]struct {
			queue    string
			priority int
		}{"here": {"shop", 1}, "there": {"mill", 4}, "chosen": {"mill", 2}} {
			if c := k.childOf(run.ID(), step); c.Queue != want.queue || c.Priority != want.priority {
				t.Errorf("%s: queue %q, priority %d; want %+v", step, c.Queue, c.Priority, want)
			}
		}
	})

	t.Run("AskedTwiceAndByABranch", func(t *testing.T) {
		k := newKit(t)
		family(k, parenting, func(ctx Context, n int) (int, error) {
			c, err := StartChild(ctx, "child", doubling, n)
			if err != nil {
				return 0, err
			}
			f := Go(ctx, "asks", func(ctx Context) (int, error) { return c.Result(ctx) })
			a, err := c.Result(ctx)
			if err != nil {
				return 0, err
			}
			b, err := f.Result(ctx)
			if err != nil {
				return 0, err
			}
			again, err := Results(ctx, []*Child[int]{c, c})
			return a + b + again[0] + again[1], err
		}, handleDoubling)
		if got := resultOf(k, begin(k, parenting, 1)); got != 8 {
			t.Errorf("got %d", got)
		}
	})

	t.Run("WaitingOn", func(t *testing.T) {
		k := newKit(t)
		family(k, parenting, func(ctx Context, n int) (int, error) {
			children := make([]*Child[int], n)
			for i := range children {
				var err error
				if children[i], err = StartChild(ctx, fmt.Sprint("c", i), doubling, i); err != nil {
					return 0, err
				}
			}
			out, err := Results(ctx, children)
			return len(out), err
		}, handleSleeping)
		for n, want := range map[int]string{1: "child c0", 3: "child c0 and 2 more"} {
			run := begin(k, parenting, n)
			if info := k.waitStatus(run.ID(), StatusSleeping); info.WaitingOn != want || !info.AvailableAt.IsZero() {
				t.Errorf("waits on %q until %v, want %q", info.WaitingOn, info.AvailableAt, want)
			}
			if err := k.c.Cancel(k.ctx, run.ID()); err != nil {
				t.Error(err)
			}
		}
	})
}

// Calls that are wrong start nothing, and say so before any write.
func TestChildRefusals(t *testing.T) {
	t.Parallel()
	k := newKitWith(t, ClientConfig{MaxPayload: 100})
	big := Define[string, string]("big")
	bad := Define[func(), int]("bad")
	tx := k.callersTx()
	type outcome struct {
		kind Kind
		text string
	}
	refused(k, func(ctx Context) (int, error) {
		var all []outcome
		add := func(err error) { all = append(all, outcome{KindOf(err), fmt.Sprint(err)}) }
		_, err := StartChild(ctx, "a", big, strings.Repeat("x", 200))
		add(err)
		if !errors.Is(err, ErrPayloadTooLarge) {
			t.Errorf("got %v", err)
		}
		_, err = RunChild(ctx, "b", bad, func() {})
		add(err)
		_, err = RunChild(ctx, "c", big, "", InTx(tx))
		add(err)
		_, err = RunChild(ctx, "d", big, "", Priority(9))
		add(err)
		_, err = RunChild(ctx, "e/f", big, "")
		add(err)
		_, err = RunChild(ctx, "g", Define[string, string](""), "")
		add(err)
		_, err = Results(ctx, []*Child[int]{nil})
		add(err)
		var none *Child[int]
		_, err = none.Result(ctx)
		add(err)
		_, err = new(Child[int]).Result(ctx)
		add(err)
		_, err = RunChild(ctx, "h", big, "", ID("x"), RejectActive)
		add(err)
		_, err = RunChild(ctx, "i", big, "", DefineSignal[int]("s").With(1))
		add(err)
		for i, want := range []string{`child "a"`, "cannot be encoded", "takes no InTx", "Priority is 9", "e/f", "workflow name", "child 0 is empty", "the Child is empty", "the Child is empty", "takes no IfActive", "takes no Message"} {
			if all[i].kind != KindBadRequest || !strings.Contains(all[i].text, want) {
				t.Errorf("got %+v, want one that says %q", all[i], want)
			}
		}
		return 0, nil
	})
	if n := k.count(`SELECT count(*) FROM kagzi.workflow_runs`); n != 1 {
		t.Errorf("%d runs", n)
	}
	_, err := Start(k.ctx, k.c, doubling, 1, Detached())
	mustContain(t, err, "Detached is for children")
	_, err = k.c.StartMany(k.ctx, []Call{doubling.With(1, Detached())})
	mustContain(t, err, "Detached is for children")
	err = k.c.Schedule(k.ctx, Schedule{Name: "s", Every: time.Hour, Run: doubling.With(1, Detached())})
	mustContain(t, err, "Detached is for children")
}

// A Race's loser takes no end in, and a cancelled branch gets its cause.
func TestChildInBranches(t *testing.T) {
	t.Parallel()
	t.Run("Race", func(t *testing.T) {
		k := newKit(t)
		family(k, Define[int, string]("racing"), func(ctx Context, n int) (string, error) {
			winner, _, err := Race(ctx, "race", map[string]func(Context) (int, error){
				"slow": func(ctx Context) (int, error) { return RunChild(ctx, "c", doubling, 1, Delay(time.Hour)) },
				"fast": func(ctx Context) (int, error) { return RunChild(ctx, "c", doubling, 2) },
			})
			if err != nil {
				return "", err
			}
			return winner, Sleep(ctx, "nap", 300*time.Millisecond)
		}, handleDoubling)
		run := begin(k, Define[int, string]("racing"), 1)
		if got := resultOf(k, run); got != "fast" {
			t.Errorf("%s won", got)
		}
		if c := k.childOf(run.ID(), "race/slow/c"); c.Status != StatusCancelled {
			t.Errorf("the loser's child is %s once its parent is over", c.Status)
		}
	})
	t.Run("Timeout", func(t *testing.T) {
		k := newKit(t)
		causes := make(chan error, 10)
		family(k, parenting, func(ctx Context, n int) (int, error) {
			err := Parallel(ctx, "group", map[string]func(Context) error{"a": func(ctx Context) error {
				_, err := RunChild(ctx, "c", doubling, 1)
				causes <- err
				return err
			}}, Timeout(100*time.Millisecond))
			if !errors.Is(err, KindTimeout) {
				return 0, err
			}
			return 1, nil
		}, handleSleeping)
		if got := resultOf(k, begin(k, parenting, 1)); got != 1 {
			t.Errorf("got %d", got)
		}
		if err := <-causes; !errors.Is(err, KindCancelled) {
			t.Errorf("the branch got %v", err)
		}
	})
	t.Run("Map", func(t *testing.T) {
		k := newKit(t)
		family(k, Define[int, string]("mapping"), func(ctx Context, n int) (string, error) {
			out, err := Map(ctx, "all", []int{1, -1, 3}, func(ctx Context, n int) (int, error) {
				return RunChild(ctx, "c", doubling, n)
			}, CollectErrors())
			return fmt.Sprint(out, err), nil
		}, handleDoubling)
		got := resultOf(k, begin(k, Define[int, string]("mapping"), 1))
		if !strings.HasPrefix(got, "[2 0 6] ") || !strings.Contains(got, "negative: -1") {
			t.Errorf("got %s", got)
		}
	})
}

// TestResults awaits many children with few statements and few claims of their parent.
func TestResults(t *testing.T) {
	const n = 1000
	k := newKit(t)
	dbtest.Audit(t, k.pool)
	fanout := Define[int, []int]("fanout", noRetry)
	failures := make(chan error, 10)
	family(k, fanout, func(ctx Context, n int) ([]int, error) {
		children := make([]*Child[int], n)
		for i := range children {
			var err error
			if children[i], err = StartChild(ctx, fmt.Sprint("child-", i), doubling, i-2); err != nil {
				return nil, err
			}
		}
		out, err := Results(ctx, children)
		failures <- err
		return out, nil
	}, handleDoubling)
	run := begin(k, fanout, n)
	got := resultOf(k, run)
	for i := range got {
		if want := max(0, 2*(i-2)); got[i] != want {
			t.Fatalf("result %d is %d, want %d", i, got[i], want)
		}
	}
	failed, ok := errors.AsType[BranchErrors](<-failures)
	mustContain(t, failed, "kagzi: 2 children failed: child \"child-0\": run ")
	if !ok || len(failed) != 2 || failed[1].Index != 1 || failed[1].Name != "child-1" || !errors.Is(failed[1], errNegative) {
		t.Errorf("failures %v", failed)
	}
	if re, ok := errors.AsType[*RunError](failed[0].Err); !ok || re.Status != StatusFailed || re.Workflow != "doubling" {
		t.Errorf("the failure is %v", failed[0])
	}
	inserts := k.count(`SELECT count(DISTINCT txid) FROM kagzi_audit.changes WHERE relation = 'workflow_runs' AND operation = 'INSERT' AND new->>'parent_run_id' IS NOT NULL`)
	claims := k.count(`SELECT count(DISTINCT new_lease) FROM kagzi_audit.changes WHERE relation = 'workflow_runs' AND run_id = $1`, string(run.ID()))
	t.Logf("%d children were inserted by %d statements, their parent was claimed %d times", n, inserts, claims)
	if inserts > 5 {
		t.Errorf("%d children were inserted by %d statements", n, inserts)
	}
	if claims > 4 {
		t.Errorf("the parent was claimed %d times", claims)
	}
}
