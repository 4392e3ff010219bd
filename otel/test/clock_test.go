// Package test tests the spans of runs that last for long, by a clock that the tests move forward.
package test

import (
	"context"
	"testing"
	"time"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/kagzitest"
	kagziotel "github.com/kagzi/kagzi/otel"
)

func TestMain(m *testing.M) { kagzitest.Main(m) }

// A probe collects spans in memory.
type probe struct {
	t     *testing.T
	tel   *kagziotel.Telemetry
	spans *tracetest.InMemoryExporter
}

func newProbe(t *testing.T) *probe {
	t.Helper()
	p := &probe{t: t, spans: tracetest.NewInMemoryExporter()}
	var err error
	p.tel, err = kagziotel.New(kagziotel.Config{
		TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSyncer(p.spans)),
		Propagator:     propagation.TraceContext{},
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
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
		p.t.Fatalf("%d spans are named %q", len(all), name)
	}
	return all[0]
}

// attr returns an attribute of a span as text, empty if there is none.
func attr(s tracetest.SpanStub, key string) string {
	for _, a := range s.Attributes {
		if string(a.Key) == key {
			return a.Value.String()
		}
	}
	return ""
}

// A run that is executed long after its start has traces of its own, with links.
func TestLongSuspension(t *testing.T) {
	t.Parallel()
	p := newProbe(t)
	t.Cleanup(func() { // after the replay
		if n := len(p.named("step greet")); n != 1 {
			t.Errorf("the step has %d spans: a replay made one", n)
		}
		if n := len(p.spans.GetSpans()); n != 5 {
			t.Errorf("%d spans: %v", n, p.spans.GetSpans())
		}
	})
	env := kagzitest.New(t,
		kagzitest.Config{Client: kagzi.ClientConfig{Interceptors: []kagzi.Interceptor{p.tel.Interceptor()}}})
	wf := kagzi.Define[string, string]("trial")
	kagzi.Handle(env.Worker, wf, func(ctx kagzi.Context, _ string) (string, error) {
		if err := kagzi.Do(ctx, "greet", func(context.Context) error { return nil }); err != nil {
			return "", err
		}
		if err := kagzi.Sleep(ctx, "trial", 90*24*time.Hour); err != nil {
			return "", err
		}
		return "", kagzi.Do(ctx, "bill", func(context.Context) error { return nil })
	})
	run := kagzitest.Start(env, wf, "")
	env.Advance(91 * 24 * time.Hour)
	if _, err := run.Result(t.Context()); err != nil {
		t.Fatal(err)
	}
	executions := p.named("execute trial")
	if len(executions) != 2 {
		t.Fatalf("spans\n%v", p.spans.GetSpans())
	}
	start, first, second := p.one("start trial"), executions[0], executions[1]
	for _, pair := range [][2]tracetest.SpanStub{
		{start, first},
		{first, p.one("step greet")},
		{second, p.one("step bill")},
	} {
		if pair[1].Parent.SpanID() != pair[0].SpanContext.SpanID() {
			t.Errorf("the parent of %s is not %s", pair[1].Name, pair[0].Name)
		}
	}
	if attr(first, "kagzi.outcome") != "suspended" || attr(first, "kagzi.reason") != "it waits for timer trial" ||
		attr(second, "kagzi.run.status") != "COMPLETED" {
		t.Errorf("the executions have %v and %v", first.Attributes, second.Attributes)
	}
	if first.Status.Code == codes.Error {
		t.Errorf("the suspended execution is %v", first.Status)
	}
	if second.Parent.IsValid() || second.SpanContext.TraceID() == start.SpanContext.TraceID() {
		t.Errorf("the execution after 90 days is in the trace of the start")
	}
	if attr(second, "kagzi.execution.resumed") != "true" || attr(first, "kagzi.execution.resumed") != "" {
		t.Errorf("resumed: %q, then %q", attr(first, "kagzi.execution.resumed"),
			attr(second, "kagzi.execution.resumed"))
	}
	if got := second.Links; len(got) != 2 || got[0].SpanContext.SpanID() != start.SpanContext.SpanID() ||
		got[1].SpanContext.SpanID() != first.SpanContext.SpanID() {
		t.Errorf("links %v", got)
	}
	for _, s := range p.spans.GetSpans() {
		if d := s.EndTime.Sub(s.StartTime); d > time.Hour {
			t.Errorf("%s lasts %v", s.Name, d)
		}
	}
}

// A run whose first execution comes late has a trace of its own.
func TestDelayedStart(t *testing.T) {
	t.Parallel()
	p := newProbe(t)
	env := kagzitest.New(t,
		kagzitest.Config{Client: kagzi.ClientConfig{Interceptors: []kagzi.Interceptor{p.tel.Interceptor()}}})
	wf := kagzi.Define[string, string]("wf")
	kagzi.Handle(env.Worker, wf, func(kagzi.Context, string) (string, error) { return "", nil })
	kagzitest.Start(env, wf, "", kagzi.Delay(time.Hour))
	env.Advance(time.Hour)
	start, execution := p.one("start wf"), p.one("execute wf")
	if execution.Parent.IsValid() || len(execution.Links) != 1 ||
		execution.Links[0].SpanContext.SpanID() != start.SpanContext.SpanID() ||
		attr(execution, "kagzi.execution.resumed") != "" {
		t.Errorf("spans\n%v", p.spans.GetSpans())
	}
}
