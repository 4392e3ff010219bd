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
	options := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(executionAttributes(&e)...)}
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
		this.steps = before.steps
	}
	begun := time.Now()
	err = next(context.WithValue(ctx, executionKey{}, this))
	outcome, reason := outcomeOf(err)
	errorKind := kind.Kind("")
	switch outcome {
	case completed:
		span.SetAttributes(attrOutcome.String(outcome), attrStatus.String(string(kagzi.StatusCompleted)))
	case cancelled:
		span.SetAttributes(attrOutcome.String(outcome), attrStatus.String(string(kagzi.StatusCancelled)))
	case failed:
		errorKind = kagzi.KindOf(err)
		span.SetAttributes(attrOutcome.String(outcome), attrStatus.String(string(kagzi.StatusFailed)))
		failSpan(span, err, errorKind)
	case retried:
		errorKind = kagzi.KindOf(err)
		span.SetAttributes(attrOutcome.String(outcome))
		failSpan(span, err, errorKind)
		t.recent.put(this)
	default:
		span.SetAttributes(attrOutcome.String(outcome), attrReason.String(reason))
		t.recent.put(this)
	}
	span.End()
	t.metrics.executed(ctx, &e, outcome, errorKind, time.Since(begun))
	return err
}

func executionAttributes(e *kagzi.Execution) []attribute.KeyValue {
	all := make([]attribute.KeyValue, 0, 16)
	all = append(all, attrMessagingSystem.String("kagzi"), attrMessagingOperation.String("execute"), attrMessagingType.String("process"),
		attrDestination.String(e.Queue), attrMessageID.String(string(e.Run)),
		attrWorkflow.String(e.Workflow), attrVersion.Int(e.Version), attrRun.String(string(e.Run)), attrAttempt.Int(e.Attempt),
		attrFirst.Bool(e.First), attrAge.Float64(e.Age.Seconds()), attrWaited.Float64(e.Waited.Seconds()))
	if e.ID != "" {
		all = append(all, attrExternalID.String(string(e.ID)))
	}
	if e.Parent != "" {
		all = append(all, attrParent.String(string(e.Parent)))
	}
	return all
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
	attributes := [4]attribute.KeyValue{attrWorkflow.String(s.Workflow), attrRun.String(string(s.Run)), attrStep.String(s.Step), attrStepTry.Int(s.Attempt)}
	options := []trace.SpanStartOption{trace.WithAttributes(attributes[:3]...)}
	if s.Attempt > 1 {
		options[0] = trace.WithAttributes(attributes[:]...)
	}
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
		switch { // each attribute costs, and nearly all attempts complete: their spans have no outcome
		case outcome == failed && err == nil: // the function has ended its goroutine
			span.SetAttributes(attrOutcome.String(outcome))
			failSpan(span, errExited, errorKind)
		case outcome == failed:
			span.SetAttributes(attrOutcome.String(outcome))
			failSpan(span, err, errorKind)
		case outcome == abandoned && ctx.Err() != nil:
			span.SetAttributes(attrOutcome.String(outcome), attrReason.String(textOf(context.Cause(ctx))))
		case outcome == abandoned:
			span.SetAttributes(attrOutcome.String(outcome))
		}
		span.End()
		t.metrics.stepped(ctx, s.Workflow, name, outcome, errorKind, time.Since(begun))
	}()
	err = next(ctx)
	finished = true
	return err
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
