package bench_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/topic"
)

// BenchmarkWaitEvent has 10,000 runs that wait for an event each, and publishes b.N events for which none waits, from
// 16 goroutines. It reports what an event costs, how many claims of runs there were meanwhile, and how long an awaited
// event takes to the end of its run: go test -run '^$' -bench WaitEvent -benchtime 20000x ./test/bench
func BenchmarkWaitEvent(b *testing.B) {
	paid := topic.Define[int]("paid")
	order := kagzi.Define[kagzi.ID, int]("order")
	for _, waiting := range []int{0, 10_000} {
		b.Run(fmt.Sprintf("waiting=%d", waiting), func(b *testing.B) {
			c, pool := benchClient(b, 20)
			w := benchWorker(b, c, 100)
			kagzi.Handle(w, order, func(ctx kagzi.Context, id kagzi.ID) (int, error) {
				e, err := topic.WaitEvent(ctx, "paid", paid, id)
				return e.Payload, err
			})
			ctx, cancel := context.WithCancel(b.Context())
			defer cancel()
			done := make(chan error, 1)
			go func() { done <- w.Run(ctx) }()
			var runs []kagzi.Started
			for i := 0; i < waiting; i += 1000 {
				calls := make([]kagzi.Call, 1000)
				for j := range calls {
					calls[j] = order.With(kagzi.ID("order-" + strconv.Itoa(i+j)))
				}
				some, err := c.StartMany(ctx, calls)
				if err != nil {
					b.Fatal(err)
				}
				runs = append(runs, some...)
			}
			count := func(sql string) (n int) {
				if err := pool.QueryRow(ctx, sql).Scan(&n); err != nil {
					b.Fatal(err)
				}
				return n
			}
			await.True(b, "all runs wait", func() bool {
				return count(`SELECT count(*) FROM kagzi.workflow_runs WHERE status = 'SLEEPING'`) == waiting
			})
			publish := func(id string) {
				if err := topic.New(c).Publish(ctx, paid.With(1).WithID(kagzi.ID(id))); err != nil {
					b.Error(err)
				}
			}
			leases := `SELECT count(DISTINCT lease) FROM kagzi.workflow_runs`
			before := count(leases)
			cpu := kit.NewCPUMeter(b, pool)
			b.ResetTimer()
			var left atomic.Int64
			left.Store(int64(b.N))
			var all sync.WaitGroup
			for range 16 {
				all.Go(func() {
					for n := left.Add(-1); n >= 0; n = left.Add(-1) {
						publish("other-" + strconv.FormatInt(n, 10))
					}
				})
			}
			all.Wait()
			b.StopTimer()
			cpu.Report(b, b.N)
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
			b.ReportMetric(float64(count(leases)-before), "claims")
			var took []time.Duration
			for i := range min(waiting, 200) {
				run, err := kagzi.Find(ctx, c, order, runs[i].ID)
				if err != nil {
					b.Fatal(err)
				}
				begun := time.Now()
				publish("order-" + strconv.Itoa(i))
				if _, err := run.Result(ctx); err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(begun))
			}
			if took != nil {
				slices.Sort(took)
				b.ReportMetric(took[len(took)/2].Seconds()*1000, "ms-p50")
				b.ReportMetric(took[len(took)*95/100].Seconds()*1000, "ms-p95")
			}
			cancel()
			if err := <-done; err != nil {
				b.Fatal(err)
			}
		})
	}
}
