package kagziotel_test

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	collectmetrics "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	collecttrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/kit"
	kagziotel "github.com/kagzi/kagzi/otel"
)

// A collector receives spans and metrics by OTLP over HTTP.
type collector struct {
	mu      sync.Mutex
	spans   []*tracepb.Span
	metrics []string
	bad     []error
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.receive(r); err != nil {
		c.bad = append(c.bad, err)
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/x-protobuf") // an empty answer: all was accepted
}

func (c *collector) receive(r *http.Request) error {
	body := io.Reader(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		unzipped, err := gzip.NewReader(r.Body)
		if err != nil {
			return err
		}
		body = unzipped
	}
	data, err := io.ReadAll(body)
	if err != nil {
		return err
	}
	switch r.URL.Path {
	case "/v1/traces":
		var req collecttrace.ExportTraceServiceRequest
		if err := proto.Unmarshal(data, &req); err != nil {
			return err
		}
		for _, of := range req.ResourceSpans {
			for _, scope := range of.ScopeSpans {
				c.spans = append(c.spans, scope.Spans...)
			}
		}
	case "/v1/metrics":
		var req collectmetrics.ExportMetricsServiceRequest
		if err := proto.Unmarshal(data, &req); err != nil {
			return err
		}
		for _, of := range req.ResourceMetrics {
			for _, scope := range of.ScopeMetrics {
				for _, m := range scope.Metrics {
					c.metrics = append(c.metrics, m.Name)
				}
			}
		}
	default:
		return fmt.Errorf("a request for %s", r.URL.Path)
	}
	return nil
}

// one returns the only span of that name.
func (c *collector) one(t *testing.T, name string) *tracepb.Span {
	t.Helper()
	var found []*tracepb.Span
	for _, s := range c.spans {
		if s.Name == name {
			found = append(found, s)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d spans of %d are named %q", len(found), len(c.spans), name)
	}
	return found[0]
}

// A request to one program starts a run that another one executes, with a child. Their collector gets one trace.
func TestOneTraceByOTLP(t *testing.T) {
	t.Parallel()
	received := &collector{}
	server := httptest.NewServer(received)
	t.Cleanup(server.Close) // after the exporters' cleanup
	shop, flush := exporting(t, server.URL, "shop")
	warehouse, flushWarehouse := exporting(t, server.URL, "warehouse")

	k := kit.NewWith(t, kagzi.ClientConfig{Interceptors: []kagzi.Interceptor{warehouse.tel.Interceptor()}})
	front := kit.NewClientWith(t, k.Pool, kagzi.ClientConfig{Interceptors: []kagzi.Interceptor{shop.tel.Interceptor()}})
	order := kagzi.Define[string, string]("order")
	parcel := kagzi.Define[string, string]("parcel")
	w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{})
	kagzi.Handle(w, parcel, func(ctx kagzi.Context, _ string) (string, error) {
		return kagzi.Step(ctx, "pack", func(context.Context) (string, error) { return "packed", nil })
	})
	kagzi.Handle(w, order, func(ctx kagzi.Context, _ string) (string, error) {
		if err := kagzi.Do(ctx, "charge", func(context.Context) error { return nil }); err != nil {
			return "", err
		}
		return kagzi.RunChild(ctx, "parcel", parcel, "")
	})
	kit.StartWorker(t, w)

	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, span := shop.tracer.Start(propagator.Extract(r.Context(), propagation.HeaderCarrier(r.Header)),
			"POST /orders")
		defer span.End()
		run, err := kagzi.Start(ctx, front, order, "")
		if err == nil {
			_, err = run.Result(ctx)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	}))
	defer api.Close()
	request, err := http.NewRequestWithContext(k.Ctx, http.MethodPost, api.URL+"/orders", nil)
	if err != nil {
		t.Fatal(err)
	}
	const traceID, browser = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	request.Header.Set("traceparent", "00-"+traceID+"-"+browser+"-01")
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		t.Fatalf("the request: %s", answer.Status)
	}
	flush()
	flushWarehouse()

	received.mu.Lock()
	defer received.mu.Unlock()
	if len(received.bad) > 0 {
		t.Errorf("the collector refused %v", received.bad)
	}
	parent := browser
	for _, name := range []string{"POST /orders", "start order", "", "start parcel", "execute parcel", "step pack"} {
		var s *tracepb.Span
		if name != "" {
			s = received.one(t, name)
		} else { // an execution that waits for its child for long ends, and another follows
			i := slices.IndexFunc(received.spans, func(s *tracepb.Span) bool {
				return s.Name == "execute order" && len(s.Links) == 0
			})
			if i < 0 {
				t.Fatal("there is no first execution")
			}
			s = received.spans[i]
		}
		if got := fmt.Sprintf("%x %x", s.TraceId, s.ParentSpanId); got != traceID+" "+parent {
			t.Errorf("%s has trace and parent %s, want %s %s", s.Name, got, traceID, parent)
		}
		parent = fmt.Sprintf("%x", s.SpanId)
	}
	for _, want := range []string{
		"kagzi.run.starts", "kagzi.run.duration", "kagzi.execution.duration",
		"kagzi.execution.delay", "kagzi.step.duration", "kagzi.flush.duration", "kagzi.flush.writes",
	} {
		if !slices.Contains(received.metrics, want) {
			t.Errorf("the collector has no %s among %s", want, strings.Join(received.metrics, " "))
		}
	}
}

// exporting returns a probe without a reader that exports to the URL. flush exports all that there is.
func exporting(t *testing.T, url, service string) (p *probe, flush func()) {
	t.Helper()
	spans, err := otlptracehttp.New(t.Context(), otlptracehttp.WithEndpointURL(url+"/v1/traces"))
	if err != nil {
		t.Fatal(err)
	}
	metrics, err := otlpmetrichttp.New(t.Context(), otlpmetrichttp.WithEndpointURL(url+"/v1/metrics"))
	if err != nil {
		t.Fatal(err)
	}
	of := resource.NewSchemaless()
	tracers := sdktrace.NewTracerProvider(sdktrace.WithBatcher(spans), sdktrace.WithResource(of))
	meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewPeriodicReader(metrics,
		sdkmetric.WithInterval(time.Hour))), sdkmetric.WithResource(of))
	p = &probe{t: t, tracer: tracers.Tracer(service)}
	if p.tel, err = kagziotel.New(kagziotel.Config{
		TracerProvider: tracers, MeterProvider: meters,
		Propagator: propagator,
	}); err != nil {
		t.Fatal(err)
	}
	shutdown := func() {
		for _, stop := range []func(context.Context) error{tracers.Shutdown, meters.Shutdown} {
			if err := stop(context.Background()); err != nil && !strings.Contains(err.Error(), "shutdown") {
				t.Error(err)
			}
		}
	}
	t.Cleanup(shutdown)
	return p, func() {
		for _, export := range []func(context.Context) error{tracers.ForceFlush, meters.ForceFlush} {
			if err := export(t.Context()); err != nil {
				t.Error(err)
			}
		}
	}
}
