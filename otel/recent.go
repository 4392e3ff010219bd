package kagziotel

import (
	"container/list"
	"maps"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/kagzi/kagzi"
)

// mostRecent is how many runs that go on later are remembered.
const mostRecent = 4096

// An execution has the known spans of a run in this process: for links from its later attempts and executions.
type execution struct {
	run  kagzi.RunID
	span trace.SpanContext // of the latest execution

	mu    sync.Mutex
	steps map[string]trace.SpanContext // of the latest attempt of each step that has no result yet
}

// took notes the span of an attempt, or forgets the step if done. It returns the span of the attempt before.
func (e *execution) took(step string, span trace.SpanContext, done bool) (before trace.SpanContext) {
	e.mu.Lock()
	defer e.mu.Unlock()
	before = e.steps[step]
	switch {
	case done:
		delete(e.steps, step)
	case e.steps == nil:
		e.steps = map[string]trace.SpanContext{step: span}
	default:
		e.steps[step] = span
	}
	return before
}

// known returns the spans of the attempts. An attempt of an execution that was given up may end after the next
// execution has begun, so each execution has a map of its own.
func (e *execution) known() map[string]trace.SpanContext {
	e.mu.Lock()
	defer e.mu.Unlock()
	return maps.Clone(e.steps)
}

// last returns the span of the latest attempt of the step.
func (e *execution) last(step string) trace.SpanContext {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.steps[step]
}

// recent are the runs that were executed in this process and go on later, the oldest first.
type recent struct {
	mu    sync.Mutex
	order *list.List // of *execution
	byRun map[kagzi.RunID]*list.Element
}

func (r *recent) put(e *execution) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byRun == nil {
		r.order, r.byRun = list.New(), map[kagzi.RunID]*list.Element{}
	}
	if old := r.byRun[e.run]; old != nil {
		r.order.Remove(old)
	}
	r.byRun[e.run] = r.order.PushBack(e)
	if r.order.Len() > mostRecent {
		delete(r.byRun, r.order.Remove(r.order.Front()).(*execution).run)
	}
}

// take removes the run, and returns nil if it is not there.
func (r *recent) take(run kagzi.RunID) *execution {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := r.byRun[run]
	if at == nil {
		return nil
	}
	delete(r.byRun, run)
	return r.order.Remove(at).(*execution)
}

// linkTo returns a link to a span, none if there is no such span.
func linkTo(span trace.SpanContext, as string) []trace.Link {
	if !span.IsValid() {
		return nil
	}
	return []trace.Link{{SpanContext: span, Attributes: []attribute.KeyValue{attrLink.String(as)}}}
}
