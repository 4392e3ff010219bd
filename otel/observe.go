package kagziotel

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.opentelemetry.io/otel/metric"

	"github.com/kagzi/kagzi"
)

// Observe adds the metrics that need a client: the slots of its workers in this process. They are read when the metrics are collected,
// without a query. Observe each client once. stop removes them again; a program that ends need not call it.
func (t *Telemetry) Observe(c *kagzi.Client) (stop func() error, err error) {
	if t == nil {
		return nil, errNil
	}
	if c == nil {
		return nil, errors.New("kagziotel: the client is nil: make one with kagzi.NewClient, and check its error")
	}
	slots, err := t.meter.Int64ObservableUpDownCounter("kagzi.worker.slots", metric.WithUnit("{slot}"),
		metric.WithDescription("Slots of the workers in this process, used and free. A run under way holds one."))
	if err != nil {
		return nil, fmt.Errorf("kagziotel: %w", err)
	}
	registered, err := t.meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		t.metrics.observeSlots(o, slots, c.LocalWorkers())
		return nil
	}, slots)
	if err != nil {
		return nil, fmt.Errorf("kagziotel: %w", err)
	}
	return registered.Unregister, nil
}

// observeSlots reports the sums over all workers with the same queues.
func (m *metrics) observeSlots(o metric.Observer, slots metric.Int64Observable, workers []kagzi.LocalWorker) {
	type sum struct{ used, free int }
	sums := map[string]sum{}
	for _, w := range workers {
		queues := strings.Join(slices.Sorted(slices.Values(w.Queues)), ",")
		s := sums[queues]
		sums[queues] = sum{s.used + w.Slots - w.Free, s.free + w.Free}
	}
	for queues, s := range sums {
		o.ObserveInt64(slots, int64(s.used), m.with(labels{queue: queues, slot: "used"}))
		o.ObserveInt64(slots, int64(s.free), m.with(labels{queue: queues, slot: "free"}))
	}
}
