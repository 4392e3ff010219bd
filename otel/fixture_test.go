package kagziotel_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/propagation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/kit"
	kagziotel "github.com/kagzi/kagzi/otel"
)

// A probe collects in memory what a Telemetry reports.
type probe struct {
	t      *testing.T
	tel    *kagziotel.Telemetry
	spans  *tracetest.InMemoryExporter
	tracer trace.Tracer
	reader *sdkmetric.ManualReader
}

var propagator = propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{})

func newProbe(t *testing.T, cfg kagziotel.Config) *probe {
	t.Helper()
	p := &probe{t: t, spans: tracetest.NewInMemoryExporter(), reader: sdkmetric.NewManualReader()}
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(p.spans))
	cfg.TracerProvider, cfg.MeterProvider = provider, sdkmetric.NewMeterProvider(sdkmetric.WithReader(p.reader))
	cfg.Propagator = propagator
	p.tracer = provider.Tracer("test")
	var err error
	if p.tel, err = kagziotel.New(cfg); err != nil {
		t.Fatal(err)
	}
	return p
}

// newKit returns a kit whose client has the interceptor of a probe.
func newKit(t *testing.T) (*kit.Kit, *probe) {
	t.Helper()
	t.Parallel()
	p := newProbe(t, kagziotel.Config{})
	return kit.NewWith(t, kagzi.ClientConfig{Interceptors: []kagzi.Interceptor{p.tel.Interceptor()}}), p
}

// serve runs a worker of the kit's client.
func serve[In, Out any](k *kit.Kit, cfg kagzi.WorkerConfig, wf kagzi.Workflow[In, Out],
	fn func(kagzi.Context, In) (Out, error),
) (stop func() error) {
	k.T.Helper()
	w := kit.NewWorker(k.T, k.Client, cfg)
	kagzi.Handle(w, wf, fn)
	return kit.StartWorker(k.T, w)
}

// named returns the ended spans of that name, in the order of their ends.
func (p *probe) named(name string) (out []tracetest.SpanStub) {
	for _, s := range p.spans.GetSpans() {
		if s.Name == name {
			out = append(out, s)
		}
	}
	return out
}

// one returns the only span of that name.
func (p *probe) one(name string) tracetest.SpanStub {
	p.t.Helper()
	all := p.named(name)
	if len(all) != 1 {
		p.t.Fatalf("%d spans are named %q; all are\n%s", len(all), name, p.list())
	}
	return all[0]
}

// list is all spans, for people.
func (p *probe) list() string {
	var b strings.Builder
	for _, s := range p.spans.GetSpans() {
		fmt.Fprintf(&b, "%s %s %s parent %s %v %v\n", s.Name, s.SpanContext.TraceID(), s.SpanContext.SpanID(),
			s.Parent.SpanID(), s.Status, s.Attributes)
	}
	return b.String()
}

// attr returns an attribute of a span as text, empty if there is none.
func attr(s tracetest.SpanStub, key string) string { return attrOf(s.Attributes, key) }

func attrOf(all []attribute.KeyValue, key string) string {
	for _, a := range all {
		if string(a.Key) == key {
			return a.Value.String()
		}
	}
	return ""
}

// links returns the links of a span, by what they are.
func links(s tracetest.SpanStub) map[string]trace.SpanID {
	out := map[string]trace.SpanID{}
	for _, l := range s.Links {
		out[attrOf(l.Attributes, "kagzi.link")] = l.SpanContext.SpanID()
	}
	return out
}

// wantAttrs fails the test unless the span has these attributes: pairs of key and text.
func wantAttrs(t *testing.T, s tracetest.SpanStub, pairs ...string) {
	t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		if got := attr(s, pairs[i]); got != pairs[i+1] {
			t.Errorf("%s: %s is %q, want %q", s.Name, pairs[i], got, pairs[i+1])
		}
	}
}

// wantParent fails the test unless parent is the parent of each child.
func wantParent(t *testing.T, parent tracetest.SpanStub, children ...tracetest.SpanStub) {
	t.Helper()
	for _, c := range children {
		if c.Parent.SpanID() != parent.SpanContext.SpanID() || c.SpanContext.TraceID() != parent.SpanContext.TraceID() {
			t.Errorf("the parent of %s is not %s", c.Name, parent.Name)
		}
	}
}

// points returns, for each set of attributes of a metric, its count or value. It fails the test if there is no such
// metric.
func (p *probe) points(name string) map[string]float64 {
	p.t.Helper()
	var all metricdata.ResourceMetrics
	if err := p.reader.Collect(p.t.Context(), &all); err != nil {
		p.t.Fatal(err)
	}
	out := map[string]float64{}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if m.Name != name {
				continue
			}
			switch d := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, point := range d.DataPoints {
					out[labelsOf(point.Attributes)] = float64(point.Value)
				}
			case metricdata.Gauge[int64]:
				for _, point := range d.DataPoints {
					out[labelsOf(point.Attributes)] = float64(point.Value)
				}
			case metricdata.Gauge[float64]:
				for _, point := range d.DataPoints {
					out[labelsOf(point.Attributes)] = point.Value
				}
			case metricdata.Histogram[float64]:
				for _, point := range d.DataPoints {
					out[labelsOf(point.Attributes)] = float64(point.Count)
				}
			case metricdata.Histogram[int64]:
				for _, point := range d.DataPoints {
					out[labelsOf(point.Attributes)] = float64(point.Count)
				}
			default:
				p.t.Errorf("%s is a %T", name, d)
			}
		}
	}
	return out
}

// labelsOf returns a set's values in the order of their keys.
func labelsOf(set attribute.Set) string {
	var parts []string
	for _, a := range set.ToSlice() {
		parts = append(parts, fmt.Sprintf("%s=%s", strings.TrimPrefix(string(a.Key), "kagzi."), a.Value.String()))
	}
	slices.Sort(parts)
	return strings.Join(parts, " ")
}

// wantPoints fails the test unless the metric has exactly these points.
func (p *probe) wantPoints(name string, want map[string]float64) {
	p.t.Helper()
	if got := p.points(name); fmt.Sprint(got) != fmt.Sprint(want) {
		p.t.Errorf("%s is\n%v, want\n%v", name, got, want)
	}
}

// withBaggage returns ctx with a member of baggage.
func withBaggage(t *testing.T, ctx context.Context, key, value string) context.Context {
	t.Helper()
	member, err := baggage.NewMember(key, value)
	if err != nil {
		t.Fatal(err)
	}
	all, err := baggage.New(member)
	if err != nil {
		t.Fatal(err)
	}
	return baggage.ContextWithBaggage(ctx, all)
}
