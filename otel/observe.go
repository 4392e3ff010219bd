package kagziotel

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.opentelemetry.io/otel/metric"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
)

// Observe adds the metrics that need a client: the slots of its workers in this process, which are read without a
// query, and, unless Config.NoStats is set, what is due and asleep in the client's namespace, which costs a query. They
// are read when the metrics are collected. Observe each client once. stop removes them again; a program that ends need
// not call it.
func (t *Telemetry) Observe(c *kagzi.Client) (stop func() error, err error) {
	if t == nil {
		return nil, errNil
	}
	if c == nil {
		return nil, errors.New("kagziotel: the client is nil: make one with kagzi.NewClient, and check its error")
	}
	stopSlots, err := t.observeSlots(c)
	if err != nil {
		return nil, fmt.Errorf("kagziotel: %w", err)
	}
	if t.noStats {
		return stopSlots, nil
	}
	stopStats, err := t.observeStats(c)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("kagziotel: %w", err), stopSlots())
	}
	return func() error { return errors.Join(stopSlots(), stopStats()) }, nil
}

func (t *Telemetry) observeSlots(c *kagzi.Client) (stop func() error, err error) {
	slots, err := t.meter.Int64ObservableUpDownCounter(workerSlots.name, metric.WithUnit(workerSlots.unit),
		metric.WithDescription("Slots of the workers in this process, used and free. A run under way holds one."))
	if err != nil {
		return nil, err
	}
	registered, err := t.meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		t.metrics.observeSlots(o, slots, admin.New(c).Workers.Local())
		return nil
	}, slots)
	if err != nil {
		return nil, err
	}
	return registered.Unregister, nil
}

// observeSlots reports the sums over all workers with the same queues.
func (m *metrics) observeSlots(o metric.Observer, slots metric.Int64Observable, workers []admin.LocalWorker) {
	type sum struct{ used, free int }
	sums := map[string]sum{}
	for _, w := range workers {
		queues := strings.Join(slices.Sorted(slices.Values(w.Queues)), ",")
		s := sums[queues]
		sums[queues] = sum{s.used + w.Slots - w.Free, s.free + w.Free}
	}
	for queues, s := range sums {
		o.ObserveInt64(slots, int64(s.used), m.with(labels{queue: queues, slot: "used"}).observe)
		o.ObserveInt64(slots, int64(s.free), m.with(labels{queue: queues, slot: "free"}).observe)
	}
}

// A backlog has the instruments for the numbers of a namespace.
type backlog struct {
	due, sleeping, paused metric.Int64ObservableGauge
	age                   metric.Float64ObservableGauge
}

func (t *Telemetry) observeStats(c *kagzi.Client) (stop func() error, err error) {
	var b backlog
	var errs []error
	level := func(i instrument, description string) metric.Int64ObservableGauge {
		g, err := t.meter.Int64ObservableGauge(i.name, metric.WithUnit(i.unit), metric.WithDescription(description))
		errs = append(errs, err)
		return g
	}
	b.due = level(queueDue, "Runs of the namespace that no worker executes although their time has come. "+
		"The same in each process.")
	b.sleeping = level(queueSleeping, "Runs of the namespace that sleep or wait. The same in each process.")
	b.paused = level(queuePaused, "Runs of the namespace that are paused, or would be due without a pause. "+
		"The same in each process.")
	b.age, err = t.meter.Float64ObservableGauge(queueDueAge.name, metric.WithUnit(queueDueAge.unit),
		metric.WithDescription("How long the first due run has been due; zero if none is. The same in each process."))
	if err := errors.Join(append(errs, err)...); err != nil {
		return nil, err
	}
	registered, err := t.meter.RegisterCallback(func(ctx context.Context, o metric.Observer) error {
		stats, err := admin.New(c).Stats(ctx)
		if err == nil {
			t.metrics.observeStats(o, b, stats)
		}
		return err
	}, b.due, b.sleeping, b.paused, b.age)
	if err != nil {
		return nil, err
	}
	return registered.Unregister, nil
}

// observeStats reports the sums over all queues and workflows that the metrics do not distinguish, and their greatest
// age.
func (m *metrics) observeStats(o metric.Observer, b backlog, stats admin.Stats) {
	type sum struct {
		due, sleeping, paused int
		age                   float64
	}
	sums := map[labels]sum{}
	for _, w := range stats.Workflows {
		l := labels{queue: m.queues.bounded(w.Queue), workflow: m.workflows.bounded(w.Workflow)}
		s := sums[l]
		if !w.DueSince.IsZero() {
			s.age = max(s.age, stats.At.Sub(w.DueSince).Seconds())
		}
		sums[l] = sum{s.due + w.Due, s.sleeping + w.Sleeping, s.paused + w.Paused, s.age}
	}
	for l, s := range sums {
		with := m.with(l).observe
		o.ObserveInt64(b.due, int64(s.due), with)
		o.ObserveInt64(b.sleeping, int64(s.sleeping), with)
		o.ObserveInt64(b.paused, int64(s.paused), with)
		o.ObserveFloat64(b.age, s.age, with)
	}
}
