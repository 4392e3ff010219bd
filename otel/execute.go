package kagziotel

import (
	"context"
	"errors"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/kind"
)

// executionKey is the key of the *execution in the contexts of a run's steps.
type executionKey struct{}

// execute is Interceptor.Execute.
func (t *Telemetry) execute(ctx context.Context, e kagzi.Execution, next func(context.Context) error) (err error) {
	ctx = t.extract(ctx, e.Headers)
	options := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindConsumer)}
	before := t.recent.take(e.Run)
	if !belongs(&e) {
		links := linkTo(trace.SpanContextFromContext(ctx), "start")
		if before != nil {
			links = append(links, linkTo(before.span, "previous execution")...)
		}
		options = append(options, trace.WithNewRoot(), trace.WithLinks(links...))
	}
	ctx, span := t.tracer.Start(ctx, "execute "+e.Workflow, options...)
	this := &execution{run: e.Run, span: span.SpanContext()}
	if before != nil {
		this.steps = before.known()
	}
	begun := time.Now()
	err = next(context.WithValue(ctx, executionKey{}, this))
	outcome, reason := outcomeOf(err)
	errorKind := kind.Kind("")
	if outcome == failed || outcome == retried {
		errorKind = kagzi.KindOf(err)
		failSpan(span, err, errorKind)
	}
	if outcome != completed && outcome != cancelled && outcome != failed { // the run goes on later
		t.recent.put(this)
	}
	if span.IsRecording() {
		setExecution(span, &e, outcome, reason)
	}
	span.End()
	t.metrics.executed(ctx, &e, outcome, errorKind, time.Since(begun))
	return err
}

// statuses are the statuses of runs that end with an outcome.
var statuses = map[string]kagzi.Status{completed: kagzi.StatusCompleted, cancelled: kagzi.StatusCancelled, failed: kagzi.StatusFailed}

// setExecution sets the attributes of an execution's span, all at once and not before its end: that takes a third of the time.
func setExecution(span trace.Span, e *kagzi.Execution, outcome, reason string) {
	array := [16]attribute.KeyValue{
		attrMessagingSystem.String("kagzi"), attrMessagingOperation.String("execute"), attrMessagingType.String("process"), attrDestination.String(e.Queue),
		attrWorkflow.String(e.Workflow), attrVersion.Int(e.Version), attrRun.String(string(e.Run)), attrAge.Float64(e.Age.Seconds()), attrWaited.Float64(e.Waited.Seconds()),
	}
	all := array[:9]
	for _, a := range []struct {
		key   attribute.Key
		value string
	}{
		{attrExternalID, string(e.ID)},
		{attrParent, string(e.Parent)},
		{attrStatus, string(statuses[outcome])},
		{attrReason, reason},
	} {
		if a.value != "" {
			all = append(all, a.key.String(a.value))
		}
	}
	if e.Attempt > 1 {
		all = append(all, attrAttempt.Int(e.Attempt))
	}
	if e.First {
		all = append(all, attrFirst.Bool(true))
	}
	if outcome != completed {
		all = append(all, attrOutcome.String(outcome))
	}
	span.SetAttributes(all...)
}

// outcomeOf says how an execution ended. reason says why the run goes on later.
func outcomeOf(err error) (outcome, reason string) {
	switch {
	case err == nil:
		return completed, ""
	case errors.Is(err, kagzi.ErrSuspended):
		reason = strings.TrimPrefix(err.Error(), kagzi.ErrSuspended.Error()+": ")
		switch {
		case errors.Is(err, kagzi.ErrLeaseLost):
			return lost, reason
		case errors.Is(err, kagzi.ErrShutdown):
			return returned, reason
		}
		return suspended, reason
	case errors.Is(err, kagzi.ErrRetried):
		return retried, ""
	case errors.Is(err, kind.Cancelled):
		return cancelled, ""
	}
	return failed, ""
}

// step is Interceptor.Step.
func (t *Telemetry) step(ctx context.Context, s kagzi.StepInfo, next func(context.Context) error) (err error) {
	this, _ := ctx.Value(executionKey{}).(*execution)
	var options []trace.SpanStartOption
	if this != nil {
		if links := linkTo(this.last(s.Step), "previous attempt"); links != nil { // it may have the same number
			options = append(options, trace.WithLinks(links...))
		}
	}
	name := general(s.Step)
	ctx, span := t.tracer.Start(ctx, "step "+name, options...)
	begun, finished := time.Now(), false
	defer func() {
		outcome, errorKind := outcomeOfStep(ctx, err, finished)
		if this != nil {
			this.took(s.Step, span.SpanContext(), outcome == completed)
		}
		switch {
		case outcome == failed && err == nil: // the function has ended its goroutine
			failSpan(span, errExited, errorKind)
		case outcome == failed:
			failSpan(span, err, errorKind)
		}
		if span.IsRecording() {
			setStep(ctx, span, &s, outcome)
		}
		span.End()
		t.metrics.stepped(ctx, s.Workflow, name, outcome, errorKind, time.Since(begun))
	}()
	err = next(ctx)
	finished = true
	return err
}

// setStep sets the attributes of a step's span, as setExecution does.
func setStep(ctx context.Context, span trace.Span, s *kagzi.StepInfo, outcome string) {
	array := [6]attribute.KeyValue{attrWorkflow.String(s.Workflow), attrRun.String(string(s.Run)), attrStep.String(s.Step)}
	all := array[:3]
	if s.Attempt > 1 {
		all = append(all, attrStepTry.Int(s.Attempt))
	}
	if outcome != completed {
		all = append(all, attrOutcome.String(outcome))
	}
	if outcome == abandoned && ctx.Err() != nil {
		all = append(all, attrReason.String(textOf(context.Cause(ctx))))
	}
	span.SetAttributes(all...)
}

var errExited = errors.New("the function ended its goroutine with runtime.Goexit")

// outcomeOfStep says how an attempt ended whose context is ctx. The end of a context for another reason than the step's own timeout
// says nothing of the step, and its error is not recorded.
func outcomeOfStep(ctx context.Context, err error, finished bool) (string, kind.Kind) {
	ended := ctx.Err() != nil && !errors.Is(context.Cause(ctx), kind.Timeout)
	switch {
	case finished && err == nil:
		return completed, ""
	case ended:
		return abandoned, ""
	case !finished:
		return failed, kind.Panic
	}
	return failed, kagzi.KindOf(err)
}
