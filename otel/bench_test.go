package kagziotel_test

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/localpg"
	kagziotel "github.com/kagzi/kagzi/otel"
)

// BenchmarkOverhead drains 3,000 runs of 5 steps each with 100 at once: without interceptors, with ones that do
// nothing, with the SDK's spans alone, and with OpenTelemetry, of all traces and of a tenth of them. Each round makes
// all of them, in another order, and the overhead is the median of the rounds, by the clock (%) and by the time of the
// processors (cpu-%), which other load of the machine changes less. It runs on a durable server:
//
//	go test -run '^$' -bench Overhead -benchtime 12x .
func BenchmarkOverhead(b *testing.B) {
	server, err := localpg.Config{Durable: true, Settings: map[string]string{
		"shared_buffers": "512MB",
		"max_wal_size":   "4GB",
	}}.Start(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = server.Stop() })
	cfg, err := pgxpool.ParseConfig(server.SocketDSN())
	if err != nil {
		b.Fatal(err)
	}
	cfg.MaxConns = 8
	pool, err := pgxpool.NewWithConfig(b.Context(), cfg)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(pool.Close)
	if err := kagzi.Migrate(b.Context(), pool); err != nil {
		b.Fatal(err)
	}
	var providers []*sdktrace.TracerProvider
	settle := func() { // what one variant leaves to do must not be done in the time of the next
		for _, p := range providers {
			_ = p.ForceFlush(b.Context())
		}
		runtime.GC()
	}
	tracers := func(s sdktrace.Sampler) trace.TracerProvider {
		p := sdktrace.NewTracerProvider(sdktrace.WithBatcher(tracetest.NewNoopExporter()), sdktrace.WithSampler(s))
		b.Cleanup(func() { _ = p.Shutdown(context.Background()) })
		providers = append(providers, p)
		return p
	}
	telemetry := func(s sdktrace.Sampler) kagzi.Interceptor {
		tel, err := kagziotel.New(kagziotel.Config{
			TracerProvider: tracers(s),
			MeterProvider:  sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader())),
			Propagator:     propagator,
		})
		if err != nil {
			b.Fatal(err)
		}
		return tel.Interceptor()
	}
	variants := []struct {
		name         string
		interceptors []kagzi.Interceptor
		took         []time.Duration
		cpu          []float64 // seconds
	}{
		{name: "none"},
		{name: "empty", interceptors: []kagzi.Interceptor{nothing}},
		{name: "spans", interceptors: []kagzi.Interceptor{onlySpans(tracers(sdktrace.AlwaysSample()))}},
		{name: "otel", interceptors: []kagzi.Interceptor{telemetry(sdktrace.AlwaysSample())}},
		{
			name:         "tenth",
			interceptors: []kagzi.Interceptor{telemetry(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(0.1)))},
		},
	}
	const runs = 3000
	round := func(n int) {
		for _, i := range rand.Perm(len(variants)) {
			v := &variants[i]
			settle()
			took, cpu := drain(b, pool, fmt.Sprint(v.name, n), runs, v.interceptors)
			v.took, v.cpu = append(v.took, took), append(v.cpu, cpu)
		}
	}
	round(0) // warms up
	for i := range variants {
		variants[i].took, variants[i].cpu = nil, nil
	}
	b.ResetTimer()
	for n := range b.N {
		round(n)
	}
	b.StopTimer()
	for _, v := range variants {
		var times, cpu []float64
		for i := range v.took {
			times = append(times, v.took[i].Seconds()/variants[0].took[i].Seconds())
			cpu = append(cpu, v.cpu[i]/variants[0].cpu[i])
		}
		b.ReportMetric(runs/median(v.took).Seconds(), v.name+"-runs/s")
		b.ReportMetric(100*(median(times)-1), v.name+"-%")
		b.ReportMetric(median(v.cpu)*1e6/runs, v.name+"-cpu-us/run")
		b.ReportMetric(100*(median(cpu)-1), v.name+"-cpu-%")
	}
}

// nothing is an interceptor that only calls next.
var nothing = kagzi.Interceptor{
	Start: func(ctx context.Context, _ []*kagzi.StartCall, next func(context.Context) error) error {
		return next(ctx)
	},
	Execute: func(ctx context.Context, _ kagzi.Execution, next func(context.Context) error) error { return next(ctx) },
	Step:    func(ctx context.Context, _ kagzi.StepInfo, next func(context.Context) error) error { return next(ctx) },
	Ended:   func(kagzi.EndedRun) {},
	Flushed: func(kagzi.Flush) {},
}

// onlySpans makes a span for each execution and step, and nothing else.
func onlySpans(p trace.TracerProvider) kagzi.Interceptor {
	tracer := p.Tracer("spans")
	return kagzi.Interceptor{
		Execute: func(ctx context.Context, _ kagzi.Execution, next func(context.Context) error) error {
			ctx, span := tracer.Start(ctx, "execute")
			defer span.End()
			return next(ctx)
		},
		Step: func(ctx context.Context, _ kagzi.StepInfo, next func(context.Context) error) error {
			ctx, span := tracer.Start(ctx, "step")
			defer span.End()
			return next(ctx)
		},
	}
}

func median[T cmp.Ordered](all []T) T {
	all = slices.Clone(all)
	slices.Sort(all)
	return all[len(all)/2]
}

// drain starts the runs, and returns how long a worker takes for all of them, and how many seconds of the processors it
// and the server take.
func drain(b *testing.B, pool *pgxpool.Pool, name string, runs int,
	interceptors []kagzi.Interceptor,
) (took time.Duration, cpu float64) {
	b.Helper()
	c := kit.NewClientWith(b, pool, kagzi.ClientConfig{Interceptors: interceptors})
	wf := kagzi.Define[int, int](name)
	calls := make([]kagzi.Call, runs)
	for i := range calls {
		calls[i] = wf.With(i)
	}
	if _, err := c.StartMany(b.Context(), calls); err != nil {
		b.Fatal(err)
	}
	if _, err := pool.Exec(b.Context(), "CHECKPOINT"); err != nil {
		b.Fatal(err)
	}
	w := kit.NewWorker(b, c, kagzi.WorkerConfig{MaxConcurrent: 100})
	ctx, end := context.WithCancel(b.Context())
	var left atomic.Int64
	left.Store(int64(runs))
	kagzi.Handle(w, wf, func(ctx kagzi.Context, n int) (int, error) {
		for i := range 5 {
			if _, err := kagzi.Step(ctx, "step-"+strconv.Itoa(i), func(context.Context) (int, error) {
				return n, nil
			}); err != nil {
				return 0, err
			}
		}
		if left.Add(-1) == 0 {
			end()
		}
		return n, nil
	})
	begun, meter := time.Now(), kit.NewCPUMeter(b, pool)
	if err := w.Run(ctx); err != nil {
		b.Fatal(err)
	}
	return time.Since(begun), meter.Seconds()
}
