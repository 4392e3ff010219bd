package kagziotel_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/testlog"
	kagziotel "github.com/kagzi/kagzi/otel"
)

// Lines of a workflow have the IDs of its execution, and lines of a step those of its attempt.
func TestLinesHaveTraceAndSpan(t *testing.T) {
	t.Parallel()
	p := newProbe(t, kagziotel.Config{})
	var logged testlog.Buffer
	log := slog.New(kagziotel.Handler(logged.Logger().Handler()))
	k := kit.NewWith(t, kagzi.ClientConfig{Logger: log, Interceptors: []kagzi.Interceptor{p.tel.Interceptor()}})
	kit.Complete(k, func(ctx kagzi.Context) (int, error) {
		ctx.Logger().Info("from the workflow")
		return kagzi.Step(ctx, "step", func(ctx context.Context) (int, error) {
			log.InfoContext(ctx, "from the step")
			return 1, nil
		})
	})
	for _, tt := range []struct {
		line, span string
	}{{"from the workflow", "execute wf"}, {"from the step", "step step"}} {
		s := p.one(tt.span).SpanContext
		logged.WantLine(t, "INFO", tt.line, "trace_id="+s.TraceID().String(), "span_id="+s.SpanID().String())
	}
}

// Kagzi's own lines about a run have the IDs of its execution, also when it has ended.
func TestLinesOfTheWorkerHaveTraceAndSpan(t *testing.T) {
	t.Parallel()
	p := newProbe(t, kagziotel.Config{})
	var logged testlog.Buffer
	k := kit.NewWith(t, kagzi.ClientConfig{
		Logger:       slog.New(kagziotel.Handler(logged.Logger().Handler())),
		Interceptors: []kagzi.Interceptor{p.tel.Interceptor()},
	})
	wf := kagzi.Define[int, int]("wf", kit.NoRetry)
	kit.Serve(k, wf, func(ctx kagzi.Context, _ int) (int, error) {
		return 0, kagzi.Do(ctx, "step", func(context.Context) error { return errors.New("declined") },
			kagzi.RetryPolicy{MaxAttempts: 1})
	})
	kit.FailureOf(k, kit.Begin(k, wf, 1), kagzi.StatusFailed)
	s := p.one("execute wf").SpanContext
	for _, line := range []string{"kagzi: step failed", "kagzi: run failed"} {
		logged.WantLine(t, "WARN", line, "trace_id="+s.TraceID().String(), "span_id="+s.SpanID().String())
	}
}

// The IDs are outside of groups, and lines without a span stay as they are.
func TestHandlerAndGroups(t *testing.T) {
	t.Parallel()
	p := newProbe(t, kagziotel.Config{})
	ctx, span := p.tracer.Start(t.Context(), "span")
	defer span.End()
	ids := `,"trace_id":"` + span.SpanContext().TraceID().String() + `","span_id":"` +
		span.SpanContext().SpanID().String() + `"`
	plain := func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == slog.LevelKey {
			return slog.Attr{}
		}
		return a
	}
	for _, tt := range []struct {
		with func(*slog.Logger) *slog.Logger
		want string // with ID for the IDs
	}{
		{func(l *slog.Logger) *slog.Logger { return l }, `{"msg":"m","n":1ID}`},
		{func(l *slog.Logger) *slog.Logger { return l.With("a", 1) }, `{"msg":"m","a":1,"n":1ID}`},
		{
			func(l *slog.Logger) *slog.Logger { return l.With("a", 1).WithGroup("g").With("b", 2) },
			`{"msg":"m","a":1ID,"g":{"b":2,"n":1}}`,
		},
		{
			func(l *slog.Logger) *slog.Logger { return l.WithGroup("g").WithGroup("h") },
			`{"msg":"m"ID,"g":{"h":{"n":1}}}`,
		},
	} {
		var out bytes.Buffer
		l := tt.with(slog.New(kagziotel.Handler(slog.NewJSONHandler(&out, &slog.HandlerOptions{ReplaceAttr: plain}))))
		l.InfoContext(ctx, "m", "n", 1)
		if got, want := strings.TrimSpace(out.String()), strings.Replace(tt.want, "ID", ids, 1); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		out.Reset()
		l.Info("m", "n", 1)
		if got, want := strings.TrimSpace(out.String()), strings.Replace(tt.want, "ID", "", 1); got != want {
			t.Errorf("without a span: got %s\nwant %s", got, want)
		}
	}
	if kagziotel.Handler(nil) == nil {
		t.Error("no handler for nil")
	}
}
