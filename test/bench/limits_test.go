package bench_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/kit"
)

// BenchmarkRate has three workers with clients of their own, one limit, and runs of one step. It reports the steps per
// second, and the most that began in any second: go test -run '^$' -bench Rate -benchtime 300x ./test/bench
func BenchmarkRate(b *testing.B) {
	for _, rate := range []admin.Rate{{Starts: 10}, {Starts: 50, Burst: 5}} {
		b.Run(fmt.Sprintf("starts=%d/burst=%d", rate.Starts, max(rate.Burst, 1)), func(b *testing.B) {
			begun := benchLimit(b, admin.StepLimit{Name: "api", Rate: rate}, 0)
			reportRate(b, begun, "steps/s")
		})
	}
}

// BenchmarkMostRunning is BenchmarkRate with slots: steps of 2 ms and ten slots, which would allow 5,000 steps per
// second.
func BenchmarkMostRunning(b *testing.B) {
	begun := benchLimit(b, admin.StepLimit{Name: "api", MaxRunning: 10}, 2*time.Millisecond)
	b.ReportMetric(float64(len(begun)-1)/begun[len(begun)-1].Sub(begun[0]).Seconds(), "steps/s")
}

// benchLimit executes b.N runs of one limited step on three workers, and returns when each step began.
func benchLimit(b *testing.B, l admin.StepLimit, takes time.Duration) (begun []time.Time) {
	b.Helper()
	c, pool := benchClient(b, 30)
	if err := admin.New(c).Limits.Set(b.Context(), l); err != nil {
		b.Fatal(err)
	}
	var mu sync.Mutex
	wf := kagzi.Define[int, int]("wf")
	runs := kit.StartRuns(b, c, wf, b.N)
	for range 3 {
		w := benchWorker(b, kit.NewClient(b, pool), 100)
		kagzi.Handle(w, wf, func(ctx kagzi.Context, _ int) (int, error) {
			return kagzi.Step(ctx, "s", func(context.Context) (int, error) {
				now := time.Now()
				mu.Lock()
				begun = append(begun, now)
				mu.Unlock()
				time.Sleep(takes)
				return 1, nil
			}, kagzi.Limit("api"))
		})
		kit.StartLocal(b, w)
	}
	b.ResetTimer()
	kit.CheckResults(b, runs, func(int) int { return 1 })
	b.StopTimer()
	printStatements(b, pool)
	slices.SortFunc(begun, time.Time.Compare)
	return begun
}
