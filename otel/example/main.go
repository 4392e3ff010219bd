// A program whose worker reports to a collector of OpenTelemetry. It needs DATABASE_URL.
package main

import (
	"context"
	"log"
	"log/slog"
	"os"
	"os/signal"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/trace"

	"github.com/kagzi/kagzi"
	kagziotel "github.com/kagzi/kagzi/otel"
)

var Checkout = kagzi.Define[int, string]("checkout")

func checkout(ctx kagzi.Context, euros int) (string, error) {
	return kagzi.Step(ctx, "charge", func(ctx context.Context) (string, error) {
		slog.InfoContext(ctx, "charging", "euros", euros) // with trace_id and span_id
		return "charged", nil
	})
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	spans, err := otlptracehttp.New(ctx) // to OTEL_EXPORTER_OTLP_ENDPOINT
	if err != nil {
		return err
	}
	metrics, err := otlpmetrichttp.New(ctx)
	if err != nil {
		return err
	}
	tracers := trace.NewTracerProvider(trace.WithBatcher(spans))
	defer tracers.Shutdown(context.Background())
	meters := metric.NewMeterProvider(metric.WithReader(metric.NewPeriodicReader(metrics)))
	defer meters.Shutdown(context.Background())
	otel.SetTracerProvider(tracers)
	otel.SetMeterProvider(meters)
	otel.SetTextMapPropagator(propagation.NewCompositeTextMapPropagator(propagation.TraceContext{},
		propagation.Baggage{}))
	slog.SetDefault(slog.New(kagziotel.Handler(slog.NewJSONHandler(os.Stderr, nil))))

	tel, err := kagziotel.New(kagziotel.Config{}) // with the providers set above
	if err != nil {
		return err
	}
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := kagzi.Migrate(ctx, pool); err != nil {
		return err
	}
	client, err := kagzi.NewClient(pool, kagzi.ClientConfig{Interceptors: []kagzi.Interceptor{tel.Interceptor()}})
	if err != nil {
		return err
	}
	if _, err := tel.Observe(client); err != nil { // slots and backlog
		return err
	}
	worker, err := kagzi.NewWorker(client, kagzi.WorkerConfig{})
	if err != nil {
		return err
	}
	kagzi.Handle(worker, Checkout, checkout)
	if _, err := kagzi.Start(ctx, client, Checkout, 42); err != nil { // in a service: with the ctx of the request
		return err
	}
	return worker.Run(ctx)
}
