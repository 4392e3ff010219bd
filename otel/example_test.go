package kagziotel_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"

	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/dbtest"
	kagziotel "github.com/kagzi/kagzi/otel"
)

// A request's span, the start of a run, its execution and its steps are one trace.
func Example() {
	ctx := context.Background()
	db, done, err := dbtest.Example(ctx) // a database with Kagzi's tables
	if err != nil {
		panic(err)
	}
	defer done()

	spans := tracetest.NewInMemoryExporter() // in a program: an exporter of OTLP
	tracers := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	tel, err := kagziotel.New(kagziotel.Config{TracerProvider: tracers, Propagator: propagation.TraceContext{}})
	if err != nil {
		panic(err)
	}
	client, _ := kagzi.NewClient(db.Pool, kagzi.ClientConfig{
		Interceptors: []kagzi.Interceptor{tel.Interceptor()},
		Logger:       slog.New(kagziotel.Handler(slog.DiscardHandler)),
	})
	worker, _ := kagzi.NewWorker(client, kagzi.WorkerConfig{})
	checkout := kagzi.Define[int, string]("checkout")
	kagzi.Handle(worker, checkout, func(ctx kagzi.Context, euros int) (string, error) {
		return kagzi.Step(ctx, "charge", func(context.Context) (string, error) {
			return fmt.Sprint("charged ", euros), nil
		})
	})
	ctx, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { _ = worker.Run(ctx) })
	defer running.Wait()
	defer stop()

	request, span := tracers.Tracer("shop").Start(ctx, "POST /orders")
	run, _ := kagzi.Start(request, client, checkout, 42)
	span.End()
	fmt.Println(run.Result(ctx))

	trace := span.SpanContext().TraceID()
	for _, name := range []string{"POST /orders", "start checkout", "execute checkout", "step charge"} {
		for _, s := range spans.GetSpans() {
			if s.Name == name {
				fmt.Println(name, s.SpanKind, s.SpanContext.TraceID() == trace)
			}
		}
	}
	// Output:
	// charged 42 <nil>
	// POST /orders internal true
	// start checkout producer true
	// execute checkout consumer true
	// step charge internal true
}

// The metrics of a client's workers, beside those of its interceptor.
func ExampleTelemetry_Observe() {
	ctx := context.Background()
	db, done, err := dbtest.Example(ctx)
	if err != nil {
		panic(err)
	}
	defer done()

	tel, _ := kagziotel.New(kagziotel.Config{})
	client, _ := kagzi.NewClient(db.Pool, kagzi.ClientConfig{Interceptors: []kagzi.Interceptor{tel.Interceptor()}})
	stop, err := tel.Observe(client)
	fmt.Println(err)
	fmt.Println(stop()) // a program that ends need not call it
	// Output:
	// <nil>
	// <nil>
}

func ExampleHandler() {
	log := slog.New(kagziotel.Handler(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			switch a.Key {
			case slog.TimeKey, slog.LevelKey:
				return slog.Attr{}
			case "trace_id", "span_id":
				return slog.String(a.Key, fmt.Sprintf("%d digits", len(a.Value.String())))
			}
			return a
		},
	})))
	ctx, span := sdktrace.NewTracerProvider().Tracer("shop").Start(context.Background(), "step")
	defer span.End()
	log.InfoContext(ctx, "charged", "euros", 42)
	log.Info("no span here")
	// Output:
	// msg=charged euros=42 trace_id="32 digits" span_id="16 digits"
	// msg="no span here"
}
