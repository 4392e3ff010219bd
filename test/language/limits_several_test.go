package language_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
)

func noPlaceIsLeft(k *kit.Kit) {
	k.T.Helper()
	await.True(k.T, "no place is left", func() bool { return k.Count(`SELECT count(*) FROM kagzi.limit_places`) == 0 })
}

// Steps with two limits, named in either order, and steps with one of them, never exceed one of the two, and all end.
func TestSeveralLimitsOfAStep(t *testing.T) {
	k := kit.New(t)
	setLimit(k, admin.StepLimit{Name: "a", MaxRunning: 2})
	setLimit(k, admin.StepLimit{Name: "b", MaxRunning: 3})
	var a, b account
	wf := kagzi.Define[int, int]("wf")
	for range 3 {
		kit.ServeWith(k, kagzi.WorkerConfig{}, wf, func(ctx kagzi.Context, n int) (int, error) {
			opts := []kagzi.StepOption{kagzi.Limit("a"), kagzi.Limit("b")}
			call := func(ctx context.Context) (int, error) {
				defer a.enter()()
				return b.call(3 * time.Millisecond)(ctx)
			}
			switch n % 4 {
			case 1:
				slices.Reverse(opts)
			case 2:
				opts, call = opts[:1], a.call(3*time.Millisecond)
			case 3:
				opts, call = opts[1:], b.call(3*time.Millisecond)
			}
			return kagzi.Step(ctx, fmt.Sprint("s", n%4), call, opts...)
		})
	}
	kit.CheckResults(t, kit.StartRuns(t, k.Client, wf, 120), func(int) int { return 1 })
	if mostA, mostB := a.most.Load(), b.most.Load(); mostA > 2 || mostB > 3 {
		t.Errorf("%d steps of a and %d of b were under way at a time", mostA, mostB)
	}
	noPlaceIsLeft(k)
}

// The steps of a customer that wait for the customer's own limit leave the limit of all to others.
func TestNarrowLimitLeavesTheWideOneToOthers(t *testing.T) {
	k := kit.New(t)
	setLimit(k, admin.StepLimit{Name: "all", MaxRunning: 3})
	setLimit(k, admin.StepLimit{Name: "customer", MaxRunning: 1})
	held := make(chan struct{})
	of, others := kagzi.Define[int, int]("of"), kagzi.Define[int, int]("others")
	w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{MaxConcurrent: 4})
	kagzi.Handle(w, of, func(ctx kagzi.Context, _ int) (int, error) {
		return kagzi.Step(ctx, "s", func(context.Context) (int, error) {
			<-held
			return 1, nil
		}, kagzi.Limit("all"), kagzi.Limit("customer"))
	})
	kagzi.Handle(w, others, func(ctx kagzi.Context, _ int) (int, error) {
		return kagzi.Step(ctx, "s", just1, kagzi.Limit("all"))
	})
	kit.StartWorker(t, w)
	waiting := kit.StartRuns(t, k.Client, of, 20)
	await.True(t, "all but one of the customer's runs wait", func() bool {
		return k.Count(`SELECT count(*) FROM kagzi.workflow_runs
			WHERE status = 'SLEEPING' AND waiting_on -> 0 ->> 'name' = 'customer'`) == 19
	})
	kit.CheckResults(t, kit.StartRuns(t, k.Client, others, 50), func(int) int { return 1 })
	await.True(t, "one step of the customer has a slot of all, and none waits for one", func() bool {
		return k.Count(`SELECT count(*) FROM kagzi.limit_places WHERE limit_name = 'all'`) == 1
	})
	close(held)
	kit.CheckResults(t, waiting, func(int) int { return 1 })
	noPlaceIsLeft(k)
}

// A step with two limits, both of which are always in use by steps with one of them, has its turn.
func TestStepOfTwoBusyLimitsHasItsTurn(t *testing.T) {
	k := kit.New(t)
	for _, name := range []string{"a", "b"} {
		setLimit(k, admin.StepLimit{Name: name, MaxRunning: 1})
	}
	var ended atomic.Bool
	busy, both := kagzi.Define[string, int]("busy"), kagzi.Define[int, int]("both")
	w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{})
	kagzi.Handle(w, busy, func(ctx kagzi.Context, name string) (n int, err error) {
		for last := false; !last && err == nil; n++ {
			last, err = kagzi.Step(ctx, fmt.Sprint("s", n), func(context.Context) (bool, error) {
				return ended.Load(), nil
			}, kagzi.Limit(name))
		}
		return n, err
	})
	kagzi.Handle(w, both, func(ctx kagzi.Context, _ int) (int, error) {
		return kagzi.Step(ctx, "s", just1, kagzi.Limit("a"), kagzi.Limit("b"))
	})
	kit.StartWorker(t, w)
	var calls []kagzi.Call
	for range 4 {
		calls = append(calls, busy.With("a"), busy.With("b"))
	}
	if _, err := k.Client.StartMany(k.Ctx, calls); err != nil {
		t.Fatal(err)
	}
	kit.CheckResults(t, kit.StartRuns(t, k.Client, both, 5), func(int) int { return 1 })
	ended.Store(true)
	noPlaceIsLeft(k)
}

// Two rates: no two steps begin closer than either allows, and no token is lost.
func TestTwoRatesOfAStep(t *testing.T) {
	k := kit.New(t)
	setLimit(k, admin.StepLimit{Name: "requests", Rate: admin.Rate{Starts: 40}})
	setLimit(k, admin.StepLimit{Name: "tokens", Rate: admin.Rate{Starts: 100}})
	var mu sync.Mutex
	var begun []time.Time
	wf := kagzi.Define[int, int]("wf")
	for range 2 {
		kit.ServeWith(k, kagzi.WorkerConfig{}, wf, func(ctx kagzi.Context, n int) (int, error) {
			return kagzi.Step(ctx, "s", func(context.Context) (int, error) {
				mu.Lock()
				defer mu.Unlock()
				begun = append(begun, time.Now())
				return 1, nil
			}, kagzi.Limit("requests"), kagzi.Limit("tokens", 1+n%4))
		})
	}
	kit.CheckResults(t, kit.StartRuns(t, k.Client, wf, 60), func(int) int { return 1 })
	slices.SortFunc(begun, time.Time.Compare)
	// 60 requests have 59 times 25 ms between them, and the first token of the last one may be 200 ms late
	if d := begun[59].Sub(begun[0]); d < 59*25*time.Millisecond-200*time.Millisecond {
		t.Errorf("60 requests began in %v", d)
	} else {
		t.Logf("60 requests began in %v", d)
	}
	noPlaceIsLeft(k)
}
