package kagziotel

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/kagzi/kagzi"
)

// start is Interceptor.Start.
func (t *Telemetry) start(ctx context.Context, starts []*kagzi.StartCall, next func(context.Context) error) error {
	ctx, span := t.tracer.Start(ctx, startName(starts), trace.WithSpanKind(trace.SpanKindProducer),
		trace.WithAttributes(startAttributes(starts)...))
	defer span.End()
	for _, s := range starts {
		s.Headers = t.inject(ctx, s.Headers)
	}
	err := next(ctx)
	if err != nil {
		failSpan(span, err, kagzi.KindOf(err))
	} else if len(starts) == 1 && starts[0].Existed {
		span.SetAttributes(attrExisted.Bool(true), attrRun.String(string(starts[0].Run)),
			attrMessageID.String(string(starts[0].Run)))
	}
	for _, s := range starts {
		t.metrics.started(ctx, s, err)
	}
	return err
}

// startName names the workflow, if it is one.
func startName(starts []*kagzi.StartCall) string {
	for _, s := range starts {
		if s.Workflow == "" || s.Workflow != starts[0].Workflow {
			return "start"
		}
	}
	if len(starts) == 0 {
		return "start"
	}
	return "start " + starts[0].Workflow
}

func startAttributes(starts []*kagzi.StartCall) []attribute.KeyValue {
	all := make([]attribute.KeyValue, 0, 12)
	all = append(all, attrMessagingSystem.String("kagzi"), attrMessagingOperation.String("start"),
		attrMessagingType.String("send"))
	if len(starts) != 1 {
		return append(all, attrMessages.Int(len(starts)))
	}
	s := starts[0]
	all = append(all, attrOrigin.String(originOf(s)))
	for _, a := range []struct {
		key   attribute.Key
		value string
	}{
		{attrWorkflow, s.Workflow},
		{attrDestination, s.Queue},
		{attrRun, string(s.Run)},
		{attrMessageID, string(s.Run)},
		{attrExternalID, string(s.ID)},
		{attrSchedule, s.Schedule},
		{attrParent, string(s.Parent)},
		{attrParentStep, s.ParentStep},
		{attrOriginRun, string(s.Origin)},
	} {
		if a.value != "" {
			all = append(all, a.key.String(a.value))
		}
	}
	return all
}

// originOf says which caller starts the run.
func originOf(s *kagzi.StartCall) string {
	switch {
	case s.Schedule != "":
		return "schedule"
	case s.Parent != "":
		return "child"
	case s.Origin != "":
		return "restart"
	}
	return "call"
}

// signal is Interceptor.Signal.
func (t *Telemetry) signal(ctx context.Context, m *kagzi.SignalCall, next func(context.Context) error) error {
	name := signalName(m.Signal)
	attributes := []attribute.KeyValue{
		attrMessagingSystem.String("kagzi"), attrMessagingOperation.String("signal"), attrMessagingType.String("send"),
		attrMessageID.String(string(m.ID)), attrSignal.String(m.Signal),
	}
	switch ref := m.Run.(type) {
	case kagzi.RunID:
		attributes = append(attributes, attrRun.String(string(ref)))
	case kagzi.ID:
		attributes = append(attributes, attrExternalID.String(string(ref)))
	}
	ctx, span := t.tracer.Start(ctx, "signal "+name, trace.WithSpanKind(trace.SpanKindProducer),
		trace.WithAttributes(attributes...))
	defer span.End()
	m.Headers = t.inject(ctx, m.Headers)
	err := next(ctx)
	if err != nil {
		failSpan(span, err, kagzi.KindOf(err))
	}
	t.metrics.signalled(ctx, name, err)
	return err
}

// mostText is how many bytes of an error's text a span has.
const mostText = 8 << 10

// failSpan marks the span as failed with err, which is of that kind.
func failSpan(span trace.Span, err error, kind error) {
	if !span.IsRecording() {
		return
	}
	message := textOf(err)
	span.SetStatus(codes.Error, message)
	exception := []attribute.KeyValue{attrExceptionType.String(typeOf(err)), attrExceptionMessage.String(message)}
	if stack := stackOf(err); stack != "" {
		exception = append(exception, attrExceptionStack.String(stack))
	}
	span.SetAttributes(attrErrorType.String(kind.Error()))
	span.AddEvent("exception", trace.WithAttributes(exception...))
}
