package kagziotel

import (
	"context"
	"maps"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/kagzi/kagzi"
)

// headerAt says when the span began whose context the headers have, as Unix milliseconds. A run inherits headers,
// perhaps from one that was started long ago: without this its spans could be added to a trace of days ago.
const headerAt = "kagzi-traced-at"

// The limits of kagzi.Headers.
const (
	mostHeaders     = 64
	mostHeaderBytes = 16 << 10
)

// inject returns the headers with ctx's trace and baggage. Telemetry must not make a start fail: a value that does not
// fit is left out.
func (t *Telemetry) inject(ctx context.Context, h kagzi.Headers) kagzi.Headers {
	out := make(kagzi.Headers, len(h)+4)
	maps.Copy(out, h)
	t.propagator.Inject(ctx, propagation.MapCarrier(out))
	if trace.SpanContextFromContext(ctx).IsValid() {
		out[headerAt] = strconv.FormatInt(time.Now().UnixMilli(), 10)
	}
	if fits(out) {
		return out
	}
	if old, ok := h["baggage"]; ok {
		out["baggage"] = old
	} else {
		delete(out, "baggage")
	}
	if fits(out) {
		return out
	}
	return h
}

func fits(h kagzi.Headers) bool {
	size := 0
	for name, value := range h {
		size += len(name) + len(value)
	}
	return len(h) <= mostHeaders && size <= mostHeaderBytes
}

// extract returns ctx with the trace and the baggage of headers.
func (t *Telemetry) extract(ctx context.Context, h kagzi.Headers) context.Context {
	if len(h) == 0 {
		return ctx
	}
	return t.propagator.Extract(ctx, propagation.MapCarrier(h))
}

// atOnce is how soon after the start an execution is a part of the starter's trace.
const atOnce = 5 * time.Second

// clockSkew is how far the clocks of the starter and the worker may differ.
const clockSkew = time.Minute

// belongs reports whether the execution is a part of the trace in its headers: it is the run's first, soon after the
// start, and the headers were made for this start and not inherited.
func belongs(e *kagzi.Execution) bool {
	if !e.First || e.Age > atOnce {
		return false
	}
	ms, err := strconv.ParseInt(e.Headers[headerAt], 10, 64)
	return err == nil && (time.Since(time.UnixMilli(ms))-e.Age).Abs() < clockSkew
}
