// Package demo fills a database with sample data, so that each page of the dashboard has something to show: for tests,
// screenshots, and the example program.
package demo

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi"
)

// A Demo is an imaginary shop. Start one with Start.
type Demo struct {
	Client *kagzi.Client

	ctx  context.Context // of the workers; ended by stop
	pool *pgxpool.Pool
	stop context.CancelFunc
	wait sync.WaitGroup
	mu   sync.Mutex
	errs []error // of workers and the coordinator
}

// Start starts the shop's workers and its coordinator. The database must be migrated. The caller calls Stop.
func Start(ctx context.Context, pool *pgxpool.Pool, cfg kagzi.ClientConfig) (*Demo, error) {
	client, err := kagzi.NewClient(pool, cfg)
	if err != nil {
		return nil, err
	}
	shop, err := kagzi.NewWorker(client, kagzi.WorkerConfig{Queue: "shop", MaxConcurrent: 20})
	if err != nil {
		return nil, err
	}
	office, err := kagzi.NewWorker(client, kagzi.WorkerConfig{
		Queues:        map[string]int{"office": 1, "imports": 1},
		MaxConcurrent: 8,
	})
	if err != nil {
		return nil, err
	}
	handle(shop, office)
	handleMore(office)
	handleHistories(office)
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	d := &Demo{Client: client, ctx: ctx, pool: pool, stop: stop}
	d.run(shop.Run)
	d.run(office.Run)
	return d, nil
}

// run runs a worker until Stop.
func (d *Demo) run(worker func(context.Context) error) {
	d.wait.Go(func() {
		if err := worker(d.ctx); err != nil {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.errs = append(d.errs, err)
		}
	})
}

// Stop ends the workers, and returns when they have drained.
func (d *Demo) Stop() error {
	d.stop()
	d.wait.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	return errors.Join(d.errs...)
}

// Fill starts runs of every kind, schedules, topics, limits and pauses, and returns once each is in the state that it
// is meant to show.
func (d *Demo) Fill(ctx context.Context) error {
	for _, fill := range []func(context.Context) error{
		d.limits, d.orders, d.failures, d.waits, d.keys, d.topics,
		d.schedules, d.changes, d.timetables, d.streams, d.fleet, d.holds, d.histories,
	} {
		if err := fill(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Trade starts an order every so often until ctx ends.
func (d *Demo) Trade(ctx context.Context, every time.Duration) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for n := 1000; ; n++ {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		o := Order{
			ID: fmt.Sprint(n), Customer: customers[n%len(customers)], Euros: 5 + n%90, Declined: n%17 == 0,
			Away: n%23 == 0, Quick: n%11 != 0,
		}
		if _, err := kagzi.Start(ctx, d.Client, Checkout, o, kagzi.ID("order-"+o.ID),
			kagzi.Metadata{"customer": o.Customer}); err != nil && ctx.Err() == nil {
			return err
		}
	}
}

// await returns when the run has the status.
func (d *Demo) await(ctx context.Context, ref kagzi.Ref, want kagzi.Status) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		info, err := d.Client.Get(ctx, ref)
		if err != nil {
			return err
		}
		if info.Status == want {
			return nil
		}
		if info.Status.Ended() {
			return fmt.Errorf("run %s of %s is %s, not %s: %s", info.ID, info.Workflow, info.Status, want, info.Error)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("run %s of %s is %s, waiting on %q, not %s: %w", info.ID, info.Workflow, info.Status,
				info.WaitingOn, want, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}
