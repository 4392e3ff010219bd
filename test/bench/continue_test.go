package bench_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/dbtest"
)

// BenchmarkContinue has runs of b.N epochs of one step each, one run and a hundred at once. last-to-first compares the
// time of the last tenth of the epochs with that of the second tenth: the first one warms the worker up.
func BenchmarkContinue(b *testing.B) {
	for _, runs := range []int{1, 100} {
		b.Run(fmt.Sprintf("runs=%d", runs), func(b *testing.B) {
			c, pool := benchClient(b, 8)
			w := benchWorker(b, c, runs)
			type turn struct{ Run, N int }
			wf := kagzi.Define[turn, int]("wf")
			last, epochs := b.N, make([]time.Time, b.N+1) // of the first run
			kagzi.Handle(w, wf, func(ctx kagzi.Context, t turn) (int, error) {
				if t.Run == 0 {
					epochs[t.N] = time.Now()
				}
				if err := kagzi.Do(ctx, "step", func(context.Context) error { return nil }); err != nil || t.N == last {
					return t.N, err
				}
				return 0, kagzi.Continue(ctx, turn{t.Run, t.N + 1})
			})
			ctx, cancel := context.WithCancel(b.Context())
			done := make(chan error, 1)
			go func() { done <- w.Run(ctx) }()
			b.ResetTimer()
			var all []*kagzi.Run[int]
			for i := range runs {
				run, err := kagzi.Start(ctx, c, wf, turn{Run: i})
				if err != nil {
					b.Fatal(err)
				}
				all = append(all, run)
			}
			for _, run := range all {
				if n, err := run.Result(ctx); err != nil || n != last {
					b.Fatal(n, err)
				}
			}
			b.StopTimer()
			b.ReportMetric(float64(b.N*runs)/b.Elapsed().Seconds(), "epochs/s")
			if tenth := b.N / 10; tenth > 0 {
				b.ReportMetric(float64(epochs[b.N].Sub(epochs[b.N-tenth]))/float64(epochs[2*tenth].Sub(epochs[tenth])),
					"last-to-first")
			}
			b.ReportMetric(float64(dbtest.QueryOne[int](b, pool, `SELECT count(*) FROM kagzi.step_runs`)), "rows")
			cancel()
			<-done
		})
	}
}
