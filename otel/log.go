package kagziotel

import (
	"context"
	"log/slog"
	"slices"

	"go.opentelemetry.io/otel/trace"
)

// Handler returns a handler that adds trace_id and span_id to each line whose context has a span, and passes it to
// next. With it as the handler of ClientConfig.Logger, the lines of a workflow's ctx.Logger() have them; lines of steps
// do if they are logged with the step's context, as by slog.InfoContext. The two stand beside the message, not in a
// group that the logger has opened.
//
// A nil next is that of slog.Default().
func Handler(next slog.Handler) slog.Handler {
	if next == nil {
		next = slog.Default().Handler()
	}
	return &handler{next: next, outer: next}
}

type handler struct {
	next  slog.Handler                      // with everything that was added
	outer slog.Handler                      // as it was before the first group was opened
	inner []func(slog.Handler) slog.Handler // added since
}

func (h *handler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.next.Enabled(ctx, level)
}

func (h *handler) Handle(ctx context.Context, r slog.Record) error {
	span := trace.SpanContextFromContext(ctx)
	if !span.IsValid() {
		return h.next.Handle(ctx, r)
	}
	ids := []slog.Attr{slog.String("trace_id", span.TraceID().String()), slog.String("span_id", span.SpanID().String())}
	if len(h.inner) == 0 {
		r = r.Clone()
		r.AddAttrs(ids...)
		return h.next.Handle(ctx, r)
	}
	next := h.outer.WithAttrs(ids)
	for _, add := range h.inner {
		next = add(next)
	}
	return next.Handle(ctx, r)
}

func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	if len(attrs) == 0 {
		return h
	}
	if len(h.inner) == 0 {
		next := h.next.WithAttrs(attrs)
		return &handler{next: next, outer: next}
	}
	return h.add(func(next slog.Handler) slog.Handler { return next.WithAttrs(attrs) })
}

func (h *handler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	return h.add(func(next slog.Handler) slog.Handler { return next.WithGroup(name) })
}

// add returns h with another addition inside of a group.
func (h *handler) add(f func(slog.Handler) slog.Handler) *handler {
	return &handler{next: f(h.next), outer: h.outer, inner: append(slices.Clip(h.inner), f)}
}
