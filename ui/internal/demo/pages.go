package demo

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/topic"
)

// More of the shop, for the pages of schedules, consumers, limits and workers.
var (
	Invoiced = topic.Define[Order]("invoice.created")
	Archive  = topic.Define[string]("archive.batches")
	Auditor  = topic.DefineConsumer("auditor", topic.ConsumerConfig{
		Topics: []topic.AnyTopic{Invoiced, Mailed},
		Queue:  "office",
	})
	Nightly = topic.DefineConsumer("nightly-digest", topic.ConsumerConfig{
		Topics: []topic.AnyTopic{Mailed},
		Queue:  "office",
	})
)

// handleMore gives a worker the code of the consumers.
func handleMore(office *kagzi.Worker) {
	topic.Consume(office, Auditor, func(ctx kagzi.Context, seen int) (int, error) {
		orders, err := topic.Peek(ctx, "new", Invoiced, 10)
		if err != nil || len(orders) == 0 {
			return seen, err
		}
		return seen, kagzi.Permanent(fmt.Errorf("ledger refuses order %s: %w", orders[0].Payload.ID, kind.Validation))
	})
	topic.Consume(office, Nightly, func(ctx kagzi.Context, sent int) (int, error) {
		mails, err := topic.Peek(ctx, "new", Mailed, 100)
		if err != nil {
			return sent, err
		}
		if err := topic.Reserve(ctx, "new", mails...); err != nil {
			return sent, err
		}
		return sent + len(mails), topic.WakeAt(ctx, ctx.Now().Add(11*time.Hour))
	})
}

// timetables creates schedules of all sorts.
func (d *Demo) timetables(ctx context.Context) error {
	for _, s := range []kagzi.Schedule{
		{
			Name: "lunch-menu", Run: Report.With("lunch"), Cron: "30 11 * * mon-fri", TimeZone: "Asia/Kolkata",
			Overlap: kagzi.OverlapSkip,
		},
		{
			Name: "weekly-invoices", Run: Report.With("invoices", kagzi.Metadata{"team": "billing"}),
			Cron:     "0 6 * * mon",
			TimeZone: "America/New_York", Overlap: kagzi.OverlapQueueOne,
		},
		{Name: "month-end", Run: Report.With("month"), Cron: "0 22 L * *", CatchUp: 1},
		{
			Name: "rates", Run: Summary.With("rates"), Every: 8 * time.Hour, Overlap: kagzi.OverlapCancelPrevious,
			Jitter: time.Minute,
		},
		{
			Name: "heartbeat", Run: Summary.With("ok"), Cron: "*/10 * * * * *", Overlap: kagzi.OverlapSkip,
			SkipPaused: true,
		},
	} {
		if err := d.Client.Schedule(ctx, s); err != nil {
			return err
		}
	}
	return admin.New(d.Client).Schedules.Pause(ctx, "heartbeat")
}

// streams publishes events of which one is large, and some fail their consumer.
func (d *Demo) streams(ctx context.Context) error {
	for n := range 3 {
		o := Order{ID: fmt.Sprint(900 + n), Customer: customers[n], Euros: 40 * n}
		if err := topic.New(d.Client).Publish(ctx, Invoiced.With(o).WithID(kagzi.ID("invoice-"+o.ID))); err != nil {
			return err
		}
	}
	var many []topic.NewEvent
	for n := range 120 {
		many = append(many, Archive.With(strings.Repeat("page ", 20+n*40)).Title(fmt.Sprintf("Batch %d", n)))
	}
	if err := topic.New(d.Client).PublishMany(ctx, many); err != nil {
		return err
	}
	for range 600 { // until the auditor has failed
		all, err := admin.New(d.Client).Consumers.List(ctx)
		if err != nil {
			return err
		}
		for _, c := range all {
			if c.Name == "auditor" && c.RunStatus == kagzi.StatusFailed {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
	return errors.New("the auditor has not failed")
}

// fleet starts workers of another build: one that lives beside the others, and one that has stopped.
func (d *Demo) fleet(ctx context.Context) error {
	for _, lives := range []bool{false, true} {
		w, err := kagzi.NewWorker(d.Client, kagzi.WorkerConfig{
			Queue: "shop", MaxConcurrent: 12, Build: "v1.4.1",
			Labels: map[string]string{"region": "eu", "deploy": "canary"}, NoCoordinator: true,
		})
		if err != nil {
			return err
		}
		kagzi.Handle(w, Checkout, checkout, kagzi.Version(1))
		kagzi.Handle(w, Ship, ship)
		if lives {
			d.run(w.Run)
			return nil
		}
		if err := d.stopOne(ctx, w); err != nil {
			return err
		}
	}
	return nil
}

// stopOne runs a worker until it is registered, and returns when it has stopped.
func (d *Demo) stopOne(ctx context.Context, w *kagzi.Worker) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	for {
		_, n, err := admin.New(d.Client).Workers.List(ctx, admin.WorkerFilter{
			Status: []string{"ONLINE"},
			Labels: map[string]string{"deploy": "canary"},
		})
		if err != nil || n > 0 {
			stop()
			return errors.Join(err, <-done)
		}
		select {
		case err := <-done:
			return err
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// holds pauses a key.
func (d *Demo) holds(ctx context.Context) error {
	by := kagzi.Actor("ops@example.com")
	for n := range 3 {
		if _, err := kagzi.Start(ctx, d.Client, Import, 500+n, kagzi.Key("tenant-8"),
			kagzi.ID(fmt.Sprintf("import-of-8-%d", n)), kagzi.Delay(0)); err != nil {
			return err
		}
	}
	return admin.New(d.Client).Pauses.Set(ctx, admin.Target{Queue: "imports", Key: "tenant-8"}, by,
		kagzi.Reason("contract ended, see ticket 4711"), admin.Park())
}
