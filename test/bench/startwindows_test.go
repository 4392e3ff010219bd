package bench_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
)

// BenchmarkStartItem starts items from 16 goroutines: in one batch at a time, in one for each goroutine, and a hundred
// in a call.
func BenchmarkStartItem(b *testing.B) {
	for _, mode := range []string{"OneKey", "ManyKeys", "StartMany"} {
		b.Run(mode, func(b *testing.B) {
			client, _ := benchClient(b, 16)
			write := kagzi.Define[[]int, int]("write", kagzi.Batch{Most: 1000, Within: time.Hour})
			var keys atomic.Int64
			b.SetParallelism(8)
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				batch := kagzi.Batch{Most: 1000, Within: time.Hour}
				if mode == "ManyKeys" {
					batch.Key = fmt.Sprint(keys.Add(1))
				}
				var calls []kagzi.Call
				for pb.Next() {
					if calls = append(calls, kagzi.ItemOf(write, 1, batch)); mode == "StartMany" && len(calls) < 100 {
						continue
					}
					if _, err := client.StartMany(b.Context(), calls); err != nil {
						b.Error(err)
						return
					}
					calls = calls[:0]
				}
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "items/s")
		})
	}
}
