// Package kagziotel reports what Kagzi does to OpenTelemetry: traces from a start to the steps of its run, metrics, and
// trace IDs in lines of slog.
//
//	tel, err := kagziotel.New(kagziotel.Config{})
//	…
//	client, err := kagzi.NewClient(pool, kagzi.ClientConfig{
//		Interceptors: []kagzi.Interceptor{tel.Interceptor()},
//		Logger:       slog.New(kagziotel.Handler(slog.Default().Handler())),
//	})
//
// The README lists all spans, attributes and metrics.
package kagziotel

import (
	"cmp"
	"errors"
	"fmt"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/kagzi/kagzi"
)

// scope is the name of the instrumentation scope of all spans and metrics.
const scope = "github.com/kagzi/kagzi/otel"

// Config configures [New]; the zero value works.
type Config struct {
	// TracerProvider makes the spans. Zero means otel.GetTracerProvider().
	TracerProvider trace.TracerProvider

	// MeterProvider makes the metrics. Zero means otel.GetMeterProvider().
	MeterProvider metric.MeterProvider

	// Propagator writes the context of a start into the run's headers, and reads it in the worker. Zero means
	// otel.GetTextMapPropagator(), which propagates nothing until the program calls otel.SetTextMapPropagator. Programs
	// that start runs and those that execute them need the same.
	Propagator propagation.TextMapPropagator

	// MaxNames is how many names the metrics distinguish, of workflows, queues, steps, signals and kinds each. All that
	// come later are counted as "_OTHER". It keeps metrics small if names are made from data. Zero means 200.
	MaxNames int

	// NoStats keeps Observe from reading the metrics of the whole namespace, kagzi.queue.due and those like it. They
	// cost a query with each collection (see admin.Client.Stats), and the answer is the same in every process that
	// observes a client of the namespace: with very many processes, let a few of them report it.
	NoStats bool
}

// A Telemetry makes spans and metrics of the clients that have its interceptor. It is safe for concurrent use, and
// needs no Close.
type Telemetry struct {
	tracer     trace.Tracer
	meter      metric.Meter
	propagator propagation.TextMapPropagator
	metrics    metrics
	recent     recent
	noStats    bool
}

// New returns a Telemetry. It fails if cfg is wrong, or the MeterProvider refuses a metric.
func New(cfg Config) (*Telemetry, error) {
	if cfg.MaxNames < 0 {
		return nil, fmt.Errorf("kagziotel: MaxNames is %d: give at least 1, or leave it out for 200", cfg.MaxNames)
	}
	if cfg.TracerProvider == nil {
		cfg.TracerProvider = otel.GetTracerProvider()
	}
	if cfg.MeterProvider == nil {
		cfg.MeterProvider = otel.GetMeterProvider()
	}
	if cfg.Propagator == nil {
		cfg.Propagator = otel.GetTextMapPropagator()
	}
	t := &Telemetry{
		tracer: cfg.TracerProvider.Tracer(scope), meter: cfg.MeterProvider.Meter(scope),
		propagator: cfg.Propagator, noStats: cfg.NoStats,
	}
	if err := t.metrics.init(t.meter, cmp.Or(cfg.MaxNames, 200)); err != nil {
		return nil, fmt.Errorf("kagziotel: %w", err)
	}
	return t, nil
}

var errNil = errors.New("kagziotel: the Telemetry is nil: make one with New, and check its error")

// Interceptor returns the interceptor for ClientConfig.Interceptors. Put it first: then the spans cover the other
// interceptors. That of a nil Telemetry wraps nothing.
func (t *Telemetry) Interceptor() kagzi.Interceptor {
	if t == nil {
		return kagzi.Interceptor{}
	}
	return kagzi.Interceptor{
		Start: t.start, Signal: t.signal, Execute: t.execute, Step: t.step, Ended: t.ended,
		Flushed: t.flushed,
	}
}
