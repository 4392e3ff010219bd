package language_test

import (
	"context"
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

// Steps of one to three units are executed on three workers. Together they never have more slots than there are.
func TestUnitsOfSteps(t *testing.T) {
	k := kit.New(t)
	setLimit(k, admin.StepLimit{Name: "memory", MaxRunning: 4})
	var used, most atomic.Int64
	wf := kagzi.Define[int, int]("wf")
	for range 3 {
		kit.ServeWith(k, kagzi.WorkerConfig{}, wf, func(ctx kagzi.Context, n int) (int, error) {
			units := 1 + n%3
			return kagzi.Step(ctx, "s", func(context.Context) (int, error) {
				now := used.Add(int64(units))
				defer used.Add(-int64(units))
				for m := most.Load(); now > m && !most.CompareAndSwap(m, now); m = most.Load() {
				}
				return n, nil
			}, kagzi.Limit("memory", units))
		})
	}
	kit.CheckResults(t, kit.StartRuns(t, k.Client, wf, 60), func(n int) int { return n })
	if most.Load() > 4 {
		t.Errorf("%d units were in use, of 4", most.Load())
	}
	await.True(t, "no place is left", func() bool { return k.Count(`SELECT count(*) FROM kagzi.limit_places`) == 0 })
}

// Steps with the same two limits in two orders are executed on three workers. None of the limits is exceeded, and no
// step waits for one that waits for it.
func TestLimitsInTwoOrders(t *testing.T) {
	k := kit.New(t)
	setLimit(k, admin.StepLimit{Name: "a", MaxRunning: 1})
	setLimit(k, admin.StepLimit{Name: "b", MaxRunning: 2})
	setLimit(k, admin.StepLimit{Name: "c", Rate: admin.Rate{Starts: 500}})
	a, b := kagzi.Limit("a"), kagzi.Limit("b")
	var of account
	wf := kagzi.Define[int, int]("wf")
	for range 3 {
		kit.ServeWith(k, kagzi.WorkerConfig{}, wf, func(ctx kagzi.Context, n int) (int, error) {
			opts := []kagzi.StepOption{a, b, kagzi.Limit("c", 2)}
			if n%2 == 1 {
				opts = []kagzi.StepOption{kagzi.Limit("c"), b, a}
			}
			return kagzi.Step(ctx, "s", of.call(time.Millisecond), opts...)
		})
	}
	kit.CheckResults(t, kit.StartRuns(t, k.Client, wf, 40), func(int) int { return 1 })
	if most, calls := of.most.Load(), of.calls.Load(); most > 1 || calls != 40 {
		t.Errorf("%d functions at a time, %d calls", most, calls)
	}
	await.True(t, "no place is left", func() bool { return k.Count(`SELECT count(*) FROM kagzi.limit_places`) == 0 })
}

// A step that waits long for its second limit holds up none of the first one.
func TestStepThatWaitsForItsSecondLimit(t *testing.T) {
	k := kit.New(t)
	setLimit(k, admin.StepLimit{Name: "a", MaxRunning: 1})
	setLimit(k, admin.StepLimit{Name: "b", MaxRunning: 1})
	wf := kagzi.Define[[]string, int]("wf")
	began, release := make(chan string, 4), make(chan struct{})
	kit.Serve(k, wf, func(ctx kagzi.Context, limits []string) (int, error) {
		var opts []kagzi.StepOption
		for _, name := range limits {
			opts = append(opts, kagzi.Limit(name))
		}
		return kagzi.Step(ctx, "s", func(context.Context) (int, error) {
			if began <- fmt.Sprint(limits); limits[0] == "b" {
				await.Opened(t, release)
			}
			return len(limits), nil
		}, opts...)
	})
	first := kit.Begin(k, wf, []string{"b"})
	await.Receive(t, began)
	second := kit.Begin(k, wf, []string{"a", "b"})
	k.WaitStatus(second.ID(), kagzi.StatusSleeping, "limit b")
	await.True(t, "the step has left the line of the first limit", func() bool {
		return k.Count(`SELECT count(*) FROM kagzi.limit_places WHERE limit_name = 'a'`) == 0
	})
	if got := kit.ResultOf(k, kit.Begin(k, wf, []string{"a"})); got != 1 {
		t.Errorf("got %d", got)
	}
	close(release)
	if got := kit.ResultOf(k, first) + kit.ResultOf(k, second); got != 3 {
		t.Errorf("got %d", got)
	}
	if steps := k.Steps(second)["s"]; len(steps) != 1 {
		t.Errorf("the attempts are %+v", steps)
	}
}

// A step that has its slots waits with them for its token, in memory: its run is not suspended.
func TestStepWaitsForATokenWithItsSlots(t *testing.T) {
	k := kit.New(t)
	setLimit(k, admin.StepLimit{Name: "slots", MaxRunning: 5})
	setLimit(k, admin.StepLimit{Name: "rate", Rate: admin.Rate{Starts: 1, Per: 600 * time.Millisecond}})
	wf := kagzi.Define[int, int]("wf")
	var executions atomic.Int64
	kit.Serve(k, wf, func(ctx kagzi.Context, n int) (int, error) {
		executions.Add(1)
		return kagzi.Step(ctx, "s", just1, kagzi.Limit("rate"), kagzi.Limit("slots"))
	})
	kit.CheckResults(t, kit.StartRuns(t, k.Client, wf, 3), func(int) int { return 1 })
	if n := executions.Load(); n != 3 {
		t.Errorf("3 runs were executed %d times", n)
	}
}

// An error pauses those of a step's limits that honour it. The step leaves the others.
func TestRetryAfterOfSeveralLimits(t *testing.T) {
	k := kit.New(t)
	limits := admin.New(k.Client).Limits
	honors := admin.StepLimit{Name: "b", MaxRunning: 1, HonorRetryAfter: true}
	setLimit(k, admin.StepLimit{Name: "a", MaxRunning: 1})
	setLimit(k, honors)
	wf := kagzi.Define[int, int]("wf")
	var calls atomic.Int64
	kit.Serve(k, wf, func(ctx kagzi.Context, _ int) (int, error) {
		return kagzi.Step(ctx, "s", func(context.Context) (int, error) {
			if calls.Add(1) == 1 {
				return 0, kagzi.RetryAfter(kind.Unavailable, time.Hour)
			}
			return 1, nil
		}, kagzi.Limit("a"), kagzi.Limit("b"))
	})
	run := kit.Begin(k, wf, 0)
	k.WaitStatus(run.ID(), kagzi.StatusSleeping, "limit b")
	await.True(t, "the step has left the line of the first limit", func() bool {
		return k.Count(`SELECT count(*) FROM kagzi.limit_places WHERE limit_name = 'a'`) == 0
	})
	honors.HonorRetryAfter = false
	if err := limits.Set(k.Ctx, honors); err != nil {
		t.Fatal(err)
	}
	if got := kit.ResultOf(k, run); got != 1 || calls.Load() != 2 {
		t.Errorf("got %d after %d calls", got, calls.Load())
	}
}

// A wrong Limit fails the run before any SQL, and says what to give.
func TestWrongLimits(t *testing.T) {
	t.Parallel()
	nine := make([]kagzi.StepOption, 9)
	for i := range nine {
		nine[i] = kagzi.Limit(fmt.Sprint("limit", i))
	}
	for want, opts := range map[string][]kagzi.StepOption{
		"0 units: give 1 to 1000000":             {kagzi.Limit("api", 0)},
		"1000001 units":                          {kagzi.Limit("api", 1_000_001)},
		"2 numbers of units":                     {kagzi.Limit("api", 1, 2)},
		`"api" is given twice`:                   {kagzi.Limit("api"), kagzi.Limit("api", 2)},
		"there are 9 Limits: a step has at most": nine,
	} {
		t.Run(want, func(t *testing.T) {
			failed := kit.Refused(kit.New(t), func(ctx kagzi.Context) (int, error) {
				return kagzi.Step(ctx, "s", just1, opts...)
			})
			if !strings.Contains(failed.Error(), want) {
				t.Error(failed)
			}
		})
	}
}
