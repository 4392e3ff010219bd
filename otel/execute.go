package kagziotel

import (
	"context"
	"errors"
	"strings"
	"sync"
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
var statuses = map[string]kagzi.Status{
	completed: kagzi.StatusCompleted, cancelled: kagzi.StatusCancelled,
	failed: kagzi.StatusFailed,
}

// An attributes is a buffer, which spans copy.
type attributes struct{ all []attribute.KeyValue }

var buffers = sync.Pool{New: func() any { return &attributes{make([]attribute.KeyValue, 0, 16)} }}

// add adds an attribute unless it is empty.
func (a *attributes) add(key attribute.Key, value string) {
	if value != "" {
		a.all = append(a.all, key.String(value))
	}
}

// set sets the attributes that f adds, all at once: that takes a third of the time.
func set(span trace.Span, f func(*attributes)) {
	a := buffers.Get().(*attributes)
	f(a)
	span.SetAttributes(a.all...)
	clear(a.all)
	a.all = a.all[:0]
	buffers.Put(a)
}

// setExecution sets the attributes of an execution's span. The SDK takes twice the time if they are more than eight.
func setExecution(span trace.Span, e *kagzi.Execution, outcome, reason string) {
	set(span, func(a *attributes) {
		a.add(attrMessagingSystem, "kagzi")
		a.add(attrMessagingOperation, "execute")
		a.add(attrMessagingType, "process")
		a.add(attrDestination, e.Queue)
		a.add(attrWorkflow, e.Workflow)
		a.add(attrRun, string(e.Run))
		a.all = append(a.all, attrWaited.Float64(e.Waited.Seconds()))
		a.add(attrStatus, string(statuses[outcome]))
		a.add(attrExternalID, string(e.ID))
		a.add(attrParent, string(e.Parent))
		a.add(attrReason, reason)
		if e.Version > 1 {
			a.all = append(a.all, attrVersion.Int(e.Version))
		}
		if e.Attempt > 1 {
			a.all = append(a.all, attrAttempt.Int(e.Attempt))
		}
		if !e.First {
			a.all = append(a.all, attrResumed.Bool(true), attrAge.Float64(e.Age.Seconds()))
		}
		if outcome != completed {
			a.add(attrOutcome, outcome)
		}
	})
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

// setStep sets the attributes of a step's span.
func setStep(ctx context.Context, span trace.Span, s *kagzi.StepInfo, outcome string) {
	set(span, func(a *attributes) {
		a.add(attrWorkflow, s.Workflow)
		a.add(attrRun, string(s.Run))
		a.add(attrStep, s.Step)
		if s.Attempt > 1 {
			a.all = append(a.all, attrStepTry.Int(s.Attempt))
		}
		if outcome != completed {
			a.add(attrOutcome, outcome)
		}
		if outcome == abandoned && ctx.Err() != nil {
			a.add(attrReason, textOf(context.Cause(ctx)))
		}
	})
}

var errExited = errors.New("the function ended its goroutine with runtime.Goexit")

// outcomeOfStep says how an attempt ended whose context is ctx. The end of a context for another reason than the step's
// own timeout says nothing of the step, and its error is not recorded.
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
