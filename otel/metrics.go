package kagziotel

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/kind"
)

// metrics are the instruments, and the sets of attributes that were used with them.
type metrics struct {
	starts         metric.Int64Counter
	signals        metric.Int64Counter
	runDuration    metric.Float64Histogram
	execution      metric.Float64Histogram
	executionDelay metric.Float64Histogram
	stepDuration   metric.Float64Histogram
	flushDuration  metric.Float64Histogram
	flushWrites    metric.Int64Histogram

	workflows, queues, steps, signalNames, kinds names

	mu   sync.RWMutex
	sets map[labels]*options
}

// options are those of a measurement, made once for its labels.
type options struct {
	record  []metric.RecordOption
	add     []metric.AddOption
	observe metric.ObserveOption
}

// labels are the attributes of a measurement. Empty ones are left out.
type labels struct {
	workflow, queue, step, signal, origin, status, outcome, kind, slot string
	existed                                                            bool
}

// Boundaries of histograms, in seconds: of work within milliseconds, and of runs that may take weeks.
var (
	short = []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600}
	long  = []float64{
		0.01, 0.05, 0.1, 0.5, 1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 24 * 3600, 7 * 24 * 3600,
		30 * 24 * 3600,
	}
	sizes = []float64{1, 2, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000}
)

func (m *metrics) init(meter metric.Meter, most int) error {
	for _, n := range []*names{&m.workflows, &m.queues, &m.steps, &m.signalNames, &m.kinds} {
		n.most = int64(most)
	}
	var errs []error
	count := func(i instrument, description string) metric.Int64Counter {
		c, err := meter.Int64Counter(i.name, metric.WithUnit(i.unit), metric.WithDescription(description))
		errs = append(errs, err)
		return c
	}
	spread := func(i instrument, description string, buckets []float64) metric.Float64Histogram {
		h, err := meter.Float64Histogram(i.name, metric.WithUnit(i.unit), metric.WithDescription(description),
			metric.WithExplicitBucketBoundaries(buckets...))
		errs = append(errs, err)
		return h
	}
	m.starts = count(runStarts, "Starts of runs, by what starts them.")
	m.signals = count(signalsSent, "Messages sent to runs.")
	m.runDuration = spread(runDuration, "Time from the start of a run to its end. Its count is the number of runs "+
		"that ended.", long)
	m.execution = spread(executionDuration, "Duration of one execution of a run, between its waits.", short)
	m.executionDelay = spread(executionDelay, "How long a run was due before a worker executed it.", short)
	m.stepDuration = spread(stepDuration, "Duration of one attempt of a step. Its count is the number of attempts.",
		short)
	m.flushDuration = spread(flushDuration, "Duration of a transaction that stores what runs have recorded.", short)
	var err error
	m.flushWrites, err = meter.Int64Histogram(flushWrites.name, metric.WithUnit(flushWrites.unit),
		metric.WithDescription("Writes that share such a transaction."), metric.WithExplicitBucketBoundaries(sizes...))
	return errors.Join(append(errs, err)...)
}

// with returns the options with the labels' attributes. Names beyond the bound are one.
func (m *metrics) with(l labels) *options {
	if o := m.known(l); o != nil {
		return o
	}
	bound := func(n *names, s *string) {
		if *s != "" {
			*s = n.bounded(*s)
		}
	}
	bound(&m.workflows, &l.workflow)
	bound(&m.queues, &l.queue)
	bound(&m.steps, &l.step)
	bound(&m.signalNames, &l.signal)
	bound(&m.kinds, &l.kind)
	if o := m.known(l); o != nil { // names without a bound are not kept
		return o
	}
	set := metric.WithAttributeSet(l.set())
	o := &options{record: []metric.RecordOption{set}, add: []metric.AddOption{set}, observe: set}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.sets == nil {
		m.sets = map[labels]*options{}
	}
	m.sets[l] = o
	return o
}

func (m *metrics) known(l labels) *options {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.sets[l]
}

func (l *labels) set() attribute.Set {
	var all []attribute.KeyValue
	for _, a := range []struct {
		key   attribute.Key
		value string
	}{
		{attrWorkflow, l.workflow},
		{attrQueue, l.queue},
		{attrStep, l.step},
		{attrSignal, l.signal},
		{attrOrigin, l.origin},
		{attrStatus, l.status},
		{attrOutcome, l.outcome},
		{attrErrorType, l.kind},
		{attrSlot, l.slot},
	} {
		if a.value != "" {
			all = append(all, a.key.String(a.value))
		}
	}
	if l.existed {
		all = append(all, attrExisted.Bool(true))
	}
	return attribute.NewSet(all...)
}

func (m *metrics) started(ctx context.Context, s *kagzi.StartCall, err error) {
	m.starts.Add(ctx, 1, m.with(labels{
		workflow: s.Workflow, origin: originOf(s), kind: string(kagzi.KindOf(err)),
		existed: s.Existed,
	}).add...)
}

func (m *metrics) signalled(ctx context.Context, name string, err error) {
	m.signals.Add(ctx, 1, m.with(labels{signal: name, kind: string(kagzi.KindOf(err))}).add...)
}

func (m *metrics) executed(ctx context.Context, e *kagzi.Execution, outcome string, k kind.Kind, took time.Duration) {
	m.executionDelay.Record(ctx, e.Waited.Seconds(), m.with(labels{workflow: e.Workflow, queue: e.Queue}).record...)
	m.execution.Record(ctx, took.Seconds(),
		m.with(labels{workflow: e.Workflow, queue: e.Queue, outcome: outcome, kind: string(k)}).record...)
}

func (m *metrics) stepped(ctx context.Context, workflow, step, outcome string, k kind.Kind, took time.Duration) {
	m.stepDuration.Record(ctx, took.Seconds(),
		m.with(labels{workflow: workflow, step: step, outcome: outcome, kind: string(k)}).record...)
}

// ended is Interceptor.Ended.
func (t *Telemetry) ended(r kagzi.EndedRun) {
	k := string(r.Kind)
	if r.Status == kagzi.StatusCancelled {
		k = "" // the status says it
	}
	m := &t.metrics
	m.runDuration.Record(context.Background(), r.Age.Seconds(),
		m.with(labels{workflow: r.Workflow, queue: r.Queue, status: string(r.Status), kind: k}).record...)
}

// flushed is Interceptor.Flushed.
func (t *Telemetry) flushed(f kagzi.Flush) {
	m := &t.metrics
	with := m.with(labels{kind: string(kagzi.KindOf(f.Err))}).record
	m.flushDuration.Record(context.Background(), f.Took.Seconds(), with...)
	m.flushWrites.Record(context.Background(), int64(f.Writes), with...)
}
