package bench_test

import (
	"context"
	"testing"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/kit"
)

// BenchmarkInterceptors executes b.N runs of five steps, without interceptors, and with one of each kind that does
// nothing: go test -run '^$' -bench Interceptors -benchtime 5000x -count 5 ./test/bench
func BenchmarkInterceptors(b *testing.B) {
	pass := kagzi.Interceptor{
		Start: func(ctx context.Context, _ []*kagzi.StartCall, next func(context.Context) error) error {
			return next(ctx)
		},
		Execute: func(ctx context.Context, _ kagzi.Execution, next func(context.Context) error) error {
			return next(ctx)
		},
		Step: func(ctx context.Context, _ kagzi.StepInfo, next func(context.Context) error) error { return next(ctx) },
	}
	for _, v := range []struct {
		name         string
		interceptors []kagzi.Interceptor
	}{{"none", nil}, {"one of each", []kagzi.Interceptor{pass}}} {
		b.Run(v.name, func(b *testing.B) {
			pool := benchPool(b, 8)
			c := kit.NewClientWith(b, pool, kagzi.ClientConfig{Interceptors: v.interceptors})
			wf := kagzi.Define[int, int]("drained")
			startAll(b, c, wf)
			w := benchWorker(b, c, 100)
			ctx, cancel := context.WithCancel(b.Context())
			handleDrained(b, w, wf, 5, cancel)
			cpu := kit.NewCPUMeter(b, pool)
			b.ResetTimer()
			if err := w.Run(ctx); err != nil {
				b.Fatal(err)
			}
			cpu.Report(b, 5*b.N)
			b.ReportMetric(float64(5*b.N)/b.Elapsed().Seconds(), "steps/s")
		})
	}
}
