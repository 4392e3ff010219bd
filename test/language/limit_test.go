package language_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/kind"
)

func setLimit(k *kit.Kit, l admin.StepLimit) {
	k.T.Helper()
	if err := admin.New(k.Client).Limits.Set(k.T.Context(), l); err != nil {
		k.T.Fatal(err)
	}
}

// An account counts the functions under way, and the most at a time.
type account struct{ now, most, calls atomic.Int64 }

func (a *account) call(d time.Duration) func(context.Context) (int, error) {
	return func(ctx context.Context) (int, error) {
		a.calls.Add(1)
		n := a.now.Add(1)
		defer a.now.Add(-1)
		for m := a.most.Load(); n > m && !a.most.CompareAndSwap(m, n); m = a.most.Load() {
		}
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

// TestLimitThatNobodyHasSet fails attempts, with an error that says what to do.
func TestLimitThatNobodyHasSet(t *testing.T) {
	k := kit.New(t)
	wf := kagzi.Define[int, int]("wf")
	kit.Serve(k, wf, func(ctx kagzi.Context, attempts int) (int, error) {
		policy := kagzi.RetryPolicy{MaxAttempts: attempts, Forever: attempts == 0, Backoff: time.Millisecond, Factor: 1}
		return kagzi.Step(ctx, "s", just1, kagzi.Limit("api"), policy)
	})
	err := kit.FailureOf(k, kit.Begin(k, wf, 2), kagzi.StatusFailed)
	if !errors.Is(err, kind.Unavailable) {
		t.Errorf("kind %v", kagzi.KindOf(err))
	}
	kit.MustContain(t, err, `"api"`, "admin.Limits.Set", "2 attempts")
	run := kit.Begin(k, wf, 0)
	k.WaitStatus(run.ID(), kagzi.StatusRunning)
	setLimit(k, admin.StepLimit{Name: "api"})
	if got := kit.ResultOf(k, run); got != 1 {
		t.Errorf("got %d", got)
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
