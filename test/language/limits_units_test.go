package language_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
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

// A wrong Limit fails the run before any SQL, and says what to give.
func TestWrongLimits(t *testing.T) {
	t.Parallel()
	var eleven []kagzi.StepOption
	for i := range 11 {
		eleven = append(eleven, kagzi.Limit(fmt.Sprint("api", i)), kagzi.Limit("api0", 2))
	}
	for want, limits := range map[string][]kagzi.StepOption{
		"0 units: give 1 to 1000000": {kagzi.Limit("api", 0)},
		"1000001 units":              {kagzi.Limit("api", 1_000_001)},
		"2 numbers of units":         {kagzi.Limit("api", 1, 2)},
		"more than 10 limits":        eleven,
	} {
		t.Run(want, func(t *testing.T) {
			failed := kit.Refused(kit.New(t), func(ctx kagzi.Context) (int, error) {
				return kagzi.Step(ctx, "s", just1, limits...)
			})
			if !strings.Contains(failed.Error(), want) {
				t.Error(failed)
			}
		})
	}
}
