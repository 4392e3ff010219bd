package language_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/health"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
)

func setLimit(k *kit.Kit, l admin.StepLimit) {
	k.T.Helper()
	if err := admin.New(k.Client).Limits.Set(k.T.Context(), l); err != nil {
		k.T.Fatal(err)
	}
}

// An account counts the functions under way, and the most at a time.
type account struct{ now, most, calls atomic.Int64 }

// enter counts a function until leave is called.
func (a *account) enter() (leave func()) {
	a.calls.Add(1)
	n := a.now.Add(1)
	for m := a.most.Load(); n > m && !a.most.CompareAndSwap(m, n); m = a.most.Load() {
	}
	return func() { a.now.Add(-1) }
}

func (a *account) call(d time.Duration) func(context.Context) (int, error) {
	return func(ctx context.Context) (int, error) {
		defer a.enter()()
		select {
		case <-time.After(d):
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
		return 1, nil
	}
}

// fan is a workflow whose branches all execute the step.
func fan(n int, call func(context.Context) (int, error), opts ...kagzi.StepOption) func(kagzi.Context,
	int) (int, error) {
	return func(ctx kagzi.Context, _ int) (int, error) {
		out, err := kagzi.Map(ctx, "each", make([]int, n), func(ctx kagzi.Context, _ int) (int, error) {
			return kagzi.Step(ctx, "call", call, opts...)
		})
		return len(out), err
	}
}

// TestMostRunningSteps has branches of many runs, on three workers, and three slots.
func TestMostRunningSteps(t *testing.T) {
	t.Parallel()
	for name, step := range map[string]func(a *account) func(kagzi.Context, int) (int, error){
		"Step": func(a *account) func(kagzi.Context, int) (int, error) {
			return fan(4, a.call(5*time.Millisecond), kagzi.Limit("api"))
		},
		"StepTx": func(a *account) func(kagzi.Context, int) (int, error) {
			return func(ctx kagzi.Context, _ int) (int, error) {
				for i := range 4 {
					_, err := kagzi.StepTx(ctx, fmt.Sprint("s", i), func(ctx context.Context, tx pgx.Tx) (int, error) {
						return a.call(5 * time.Millisecond)(ctx)
					}, kagzi.Limit("api"))
					if err != nil {
						return 0, err
					}
				}
				return 4, nil
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := kit.New(t)
			setLimit(k, admin.StepLimit{Name: "api", MaxRunning: 3})
			var a account
			wf := kagzi.Define[int, int]("wf")
			for range 3 {
				kit.ServeWith(k, kagzi.WorkerConfig{}, wf, step(&a))
			}
			kit.CheckResults(t, kit.StartRuns(t, k.Client, wf, 12), func(int) int { return 4 })
			if most, calls := a.most.Load(), a.calls.Load(); most > 3 || calls != 48 {
				t.Errorf("%d functions at a time, %d calls", most, calls)
			}
			if n := k.Count(`SELECT count(*) FROM kagzi.limit_places WHERE lease IS NULL`); n != 0 {
				t.Errorf("%d places in the line are left", n)
			}
		})
	}
}

// Steps that wait for a slot cost no polling: no time makes their runs due, so only a free slot does.
func TestManyWaitForALimit(t *testing.T) {
	const runs = 1_000
	k := kit.New(t)
	setLimit(k, admin.StepLimit{Name: "slot", MaxRunning: 1})
	wf := kagzi.Define[int, int]("wf", kagzi.Queue("many"))
	begun, release := make(chan int, runs), make(chan struct{})
	w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{Queue: "many", MaxConcurrent: 50})
	kagzi.Handle(w, wf, func(ctx kagzi.Context, n int) (int, error) {
		return kagzi.Step(ctx, "s", func(ctx context.Context) (int, error) {
			begun <- n
			select {
			case <-release:
			case <-ctx.Done():
			}
			return n, nil
		}, kagzi.Limit("slot"))
	})
	kit.StartWorker(t, w)
	calls := make([]kagzi.Call, runs)
	for i := range calls {
		calls[i] = wf.With(i)
	}
	if _, err := k.Client.StartMany(k.Ctx, calls); err != nil {
		t.Fatal(err)
	}
	await.True(t, "one holds the slot, and the others wait for it", func() bool {
		return k.Count(`SELECT count(*) FROM kagzi.workflow_runs WHERE status = 'SLEEPING'`) == runs-1
	})
	if n := k.Count(`SELECT count(*) FROM kagzi.workflow_runs
		WHERE status = 'SLEEPING' AND available_at < 'infinity'`); n != 0 {
		t.Errorf("%d runs look again by themselves", n)
	}
	setLimit(k, admin.StepLimit{Name: "slot"})
	close(release)
	await.True(t, "each step has been executed", func() bool {
		return k.Count(`SELECT count(*) FROM kagzi.workflow_runs WHERE status = 'COMPLETED'`) == runs
	})
	if len(begun) != runs {
		t.Errorf("%d steps for %d runs", len(begun), runs)
	}
}

// TestLimitedStepParks has a run wait for a slot without holding anything, and another one for its token.
func TestLimitedStepParks(t *testing.T) {
	k := kit.New(t)
	setLimit(k, admin.StepLimit{Name: "slot", MaxRunning: 1})
	setLimit(k, admin.StepLimit{Name: "token", Rate: admin.Rate{Starts: 1, Per: time.Hour}})
	wf := kagzi.Define[string, int]("wf")
	held, release := make(chan struct{}, 3), make(chan struct{})
	kit.Serve(k, wf, func(ctx kagzi.Context, limit string) (int, error) {
		return kagzi.Step(ctx, "s", func(ctx context.Context) (int, error) {
			held <- struct{}{}
			select {
			case <-release:
			case <-ctx.Done():
			}
			return 1, nil
		}, kagzi.Limit(limit))
	})
	first := kit.Begin(k, wf, "slot")
	await.Receive(t, held)
	second := kit.Begin(k, wf, "slot")
	if got := k.WaitStatus(second.ID(), kagzi.StatusSleeping).WaitingOn.String(); got != "limit slot" {
		t.Errorf("the run waits on %q", got)
	}
	close(release)
	if got := kit.ResultOf(k, first) + kit.ResultOf(k, second); got != 2 {
		t.Errorf("results: %d", got)
	}
	if got := kit.ResultOf(k, kit.Begin(k, wf, "token")); got != 1 {
		t.Error("the first token")
	}
	late := kit.Begin(k, wf, "token")
	k.WaitStatus(late.ID(), kagzi.StatusSleeping)
	list, err := admin.New(k.Client).Limits.List(t.Context(), "slot", 0)
	if err != nil || len(list) != 1 || list[0].Waiting != 1 || list[0].Every != time.Hour ||
		time.Until(list[0].NextAt) < time.Minute {
		t.Errorf("limits: %+v, %v", list, err)
	}
	if err := admin.New(k.Client).Limits.Delete(t.Context(), "token"); err == nil ||
		!strings.Contains(err.Error(), "steps wait") {
		t.Errorf("delete a limit that a step waits for: %v", err)
	}
	setLimit(k, admin.StepLimit{Name: "token"})
	if got := kit.ResultOf(k, late); got != 1 {
		t.Error("the limit was lifted")
	}
	if err := admin.New(k.Client).Limits.Delete(t.Context(), "token"); err != nil {
		t.Error(err)
	}
	if err := admin.New(k.Client).Limits.Delete(t.Context(), "token"); !errors.Is(err, kagzi.ErrNotFound) {
		t.Errorf("delete a limit that is gone: %v", err)
	}
}

// Steps that name a limit which was not set wait, and Health names it. Once it is declared, they begin.
func TestLimitThatWasNotSet(t *testing.T) {
	k := kit.New(t)
	wf := kagzi.Define[int, int]("wf")
	kit.Serve(k, wf, func(ctx kagzi.Context, _ int) (int, error) {
		return kagzi.Step(ctx, "s", just1, kagzi.Limit("api"))
	})
	run := kit.Begin(k, wf, 0)
	k.WaitStatus(run.ID(), kagzi.StatusSleeping, "limit api")
	limits := admin.New(k.Client).Limits
	list, err := limits.List(k.Ctx, "", 0)
	if err != nil || len(list) != 1 || !list[0].Unset || list[0].Waiting != 1 {
		t.Errorf("the limits are %+v (%v)", list, err)
	}
	report, err := admin.New(k.Client).Health(k.Ctx)
	if !slices.ContainsFunc(report.Checks, func(c health.Check) bool {
		return c.Name == "limits" && strings.Contains(c.Detail, `limit "api", which is neither declared nor set`)
	}) {
		t.Errorf("Health says %+v (%v)", report.Checks, err)
	}
	if err := limits.Declare(k.Ctx, admin.StepLimit{Name: "api", MaxRunning: 3}); err != nil {
		t.Fatal(err)
	}
	if got := kit.ResultOf(k, run); got != 1 {
		t.Errorf("got %d", got)
	}
	if steps := k.Steps(run)["s"]; len(steps) != 1 {
		t.Errorf("its attempts are %+v", steps)
	}
}

// An operator's limits hold until they are reset, whatever the code declares meanwhile, and are shown beside it.
func TestDeclaredLimits(t *testing.T) {
	k := kit.New(t)
	limits, queues := admin.New(k.Client).Limits, admin.New(k.Client).Queues
	declare := func(starts int) {
		t.Helper()
		rate := admin.Rate{Starts: starts}
		if err := errors.Join(limits.Declare(k.Ctx, admin.StepLimit{Name: "api", Rate: rate}),
			queues.Declare(k.Ctx, admin.QueueLimits{Queue: "shop", Rate: rate})); err != nil {
			t.Fatal(err)
		}
	}
	want := func(now, declared time.Duration, by *admin.Override) {
		t.Helper()
		l, err := limits.List(k.Ctx, "", 0)
		q, qerr := queues.List(k.Ctx)
		if err != nil || qerr != nil || len(l) != 1 || len(q) != 1 || l[0].Declared == nil || q[0].Declared == nil {
			t.Fatalf("the limits are %+v (%v), of queues %+v (%v)", l, err, q, qerr)
		}
		if l[0].Every != now || q[0].Rate.Per != now || l[0].Declared.Rate.Per != declared ||
			q[0].Declared.Rate.Per != declared {
			t.Errorf("one in %v and %v, declared %+v and %+v; want %v, declared %v", l[0].Every, q[0].Rate.Per,
				l[0].Declared, q[0].Declared, now, declared)
		}
		for _, o := range []*admin.Override{l[0].Override, q[0].Override} {
			if (o == nil) != (by == nil) || o != nil &&
				(o.Actor != by.Actor || o.Reason != by.Reason || o.At.IsZero()) {
				t.Errorf("the override is %+v, want %+v", o, by)
			}
		}
	}
	declare(20)
	want(50*time.Millisecond, 50*time.Millisecond, nil)
	why := []kagzi.ChangeOption{kagzi.Actor("ada"), kagzi.Reason("incident 4711")}
	if err := errors.Join(limits.Set(k.Ctx, admin.StepLimit{Name: "api", Rate: admin.Rate{Starts: 1}}, why...),
		queues.Set(k.Ctx, admin.QueueLimits{Queue: "shop", Rate: admin.Rate{Starts: 1}}, why...)); err != nil {
		t.Fatal(err)
	}
	declare(10)
	want(time.Second, 100*time.Millisecond, &admin.Override{Actor: "ada", Reason: "incident 4711"})
	if err := errors.Join(limits.Reset(k.Ctx, "api", why...), queues.Reset(k.Ctx, "shop", why...)); err != nil {
		t.Fatal(err)
	}
	want(100*time.Millisecond, 100*time.Millisecond, nil)
	for name, err := range map[string]error{
		"limit": limits.Reset(k.Ctx, "other"), "queue": queues.Reset(k.Ctx, "other"),
	} {
		if !errors.Is(err, kagzi.ErrNotFound) || !strings.Contains(err.Error(), "nothing to go back to") {
			t.Errorf("reset of a %s that no code declares: %v", name, err)
		}
	}
}

func just1(context.Context) (int, error) { return 1, nil }

// TestLimitIsValidated refuses mistakes before any SQL.
func TestLimitIsValidated(t *testing.T) {
	k := kit.New(t)
	for want, l := range map[string]admin.StepLimit{
		"the limit's name is empty": {},
		"MaxRunning is -1":          {Name: "a", MaxRunning: -1},
		"Starts is 0":               {Name: "a", Rate: admin.Rate{Per: time.Second}},
		"Starts is -1":              {Name: "a", Rate: admin.Rate{Starts: -1}},
		"Burst is -1":               {Name: "a", Rate: admin.Rate{Starts: 1, Burst: -1}},
		"more than a year":          {Name: "a", Rate: admin.Rate{Starts: 1, Per: 24 * time.Hour, Burst: 1000}},
		"did you mean":              {Name: "a", Rate: admin.Rate{Starts: 1, Per: 30}},
		"at most one in a":          {Name: "a", Rate: admin.Rate{Starts: 1000, Per: time.Microsecond}},
		"at most a year":            {Name: "a", Rate: admin.Rate{Starts: 1, Per: 1e6 * time.Hour}},
		"control character":         {Name: "a\n"},
		"at most 255 are all":       {Name: strings.Repeat("a", 256)},
	} {
		if err := admin.New(k.Client).Limits.Set(t.Context(), l); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", l, err, want)
		}
	}
	err := kit.Refused(k, func(ctx kagzi.Context) (int, error) { return kagzi.Step(ctx, "s", just1, kagzi.Limit("")) })
	kit.MustContain(t, err, "the limit's name is empty")
}
