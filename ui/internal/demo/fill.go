package demo

import (
	"context"
	"fmt"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/topic"
)

// limits sets limits of queues, keys and steps.
func (d *Demo) limits(ctx context.Context) error {
	if err := admin.New(d.Client).Queues.Set(ctx, admin.QueueLimits{
		Queue: "imports", MaxRunning: 4,
		EachKey: admin.KeyLimits{MaxRunning: 1},
	}); err != nil {
		return err
	}
	if err := admin.New(d.Client).Keys.Set(ctx, "imports", "tenant-1",
		admin.KeyLimits{MaxRunning: 2, Weight: 3}); err != nil {
		return err
	}
	return admin.New(d.Client).Limits.Set(ctx, admin.StepLimit{
		Name: "openai", MaxRunning: 3,
		Rate: admin.Rate{Starts: 50, Per: time.Second},
	})
}

// orders starts checkouts that complete, sleep and fail.
func (d *Demo) orders(ctx context.Context) error {
	for n := range 24 {
		o := Order{
			ID: fmt.Sprint(40 + n), Customer: customers[n%len(customers)], Euros: 12 + 7*n,
			Items:    []string{"tea", "paper", "ink"}[:1+n%3],
			Declined: n%8 == 7, Away: n%6 == 1, Quick: n%4 != 0,
		}
		run, err := kagzi.Start(ctx, d.Client, Checkout, o, kagzi.ID("order-"+o.ID),
			kagzi.Metadata{"customer": o.Customer, "plan": "pro"},
			kagzi.Headers{"traceparent": fmt.Sprintf("00-%032x-%016x-01", n+1, n+1)})
		if err != nil {
			return err
		}
		want := kagzi.StatusCompleted
		switch {
		case o.Declined:
			want = kagzi.StatusFailed
		case !o.Quick:
			want = kagzi.StatusSleeping
		}
		if err := d.await(ctx, run, want); err != nil {
			return err
		}
	}
	return nil
}

// failures starts runs that fail, in several ways, and one whose compensations run.
func (d *Demo) failures(ctx context.Context) error {
	for n, how := range []string{"panic", "unavailable", "unavailable", "bill.html", "unavailable"} {
		run, err := kagzi.Start(ctx, d.Client, Broken, how, kagzi.ID(fmt.Sprintf("invoice-%d", 7000+n)))
		if err != nil {
			return err
		}
		if err := d.await(ctx, run, kagzi.StatusFailed); err != nil {
			return err
		}
	}
	run, err := kagzi.Start(ctx, d.Client, Travel, Trip{Traveller: "Ada", To: "Lisbon", SoldOut: true},
		kagzi.ID("trip-ada"))
	if err != nil {
		return err
	}
	if err := d.await(ctx, run, kagzi.StatusFailed); err != nil {
		return err
	}
	_, err = kagzi.Start(ctx, d.Client, Travel, Trip{Traveller: "Bob", To: "Oslo"}, kagzi.ID("trip-bob"))
	return err
}

// waits starts runs that wait for a signal, a time, a worker that does not exist, and one that its worker executes.
func (d *Demo) waits(ctx context.Context) error {
	for n := range 3 {
		run, err := kagzi.Start(ctx, d.Client, Approval, Order{ID: fmt.Sprint(n), Customer: customers[n], Euros: 900},
			kagzi.ID(fmt.Sprintf("approval-%d", n)))
		if err != nil {
			return err
		}
		if err := d.await(ctx, run, kagzi.StatusSleeping); err != nil {
			return err
		}
	}
	if err := d.Client.Signal(ctx, kagzi.ID("approval-0"), Approved.With(true).WithID("click-1")); err != nil {
		return err
	}
	if _, err := kagzi.Start(ctx, d.Client, Approval, Order{ID: "later"}, kagzi.ID("approval-later"),
		kagzi.Delay(36*time.Hour)); err != nil {
		return err
	}
	if _, err := kagzi.Start(ctx, d.Client, Legacy, "crm", kagzi.ID("legacy-crm")); err != nil {
		return err
	}
	run, err := kagzi.Start(ctx, d.Client, Summary, "a long text", kagzi.ID("summary-1"))
	if err != nil {
		return err
	}
	return d.await(ctx, run, kagzi.StatusCompleted)
}

// keys starts imports, of which each tenant has one slot, and more work than that.
func (d *Demo) keys(ctx context.Context) error {
	for n := range 7 {
		if _, err := kagzi.Start(ctx, d.Client, Import, 100+n, kagzi.Key(fmt.Sprintf("tenant-%d", n%3)),
			kagzi.ID(fmt.Sprintf("import-%d", n))); err != nil {
			return err
		}
	}
	return d.await(ctx, kagzi.ID("import-0"), kagzi.StatusRunning)
}

// topics publishes events, which a consumer sorts.
func (d *Demo) topics(ctx context.Context) error {
	for n := range 12 {
		e := Mailed.With(Mail{customers[n%len(customers)] + "@example.com", fmt.Sprintf("Question %d", n)}).
			Title(fmt.Sprintf("Question %d", n)).WithID(kagzi.ID(fmt.Sprintf("mail-%d", n)))
		if err := topic.New(d.Client).Publish(ctx, e); err != nil {
			return err
		}
	}
	return nil
}

// schedules creates schedules, and fires one.
func (d *Demo) schedules(ctx context.Context) error {
	for _, s := range []kagzi.Schedule{
		{
			Name: "daily-report", Run: Report.With("daily"), Cron: "0 7 * * mon-fri", TimeZone: "Europe/Berlin",
			FireNew: true,
		},
		{Name: "hourly-import", Run: Import.With(3, kagzi.Key("tenant-9")), Every: time.Hour},
		{Name: "old-report", Run: Report.With("old"), Cron: "@weekly"},
	} {
		if err := d.Client.Schedule(ctx, s); err != nil {
			return err
		}
	}
	if _, err := admin.New(d.Client).Schedules.Trigger(ctx, "daily-report"); err != nil {
		return err
	}
	return admin.New(d.Client).Schedules.Pause(ctx, "old-report", kagzi.Reason("nobody reads it"))
}

// changes makes changes by hand, with actors and reasons.
func (d *Demo) changes(ctx context.Context) error {
	by := kagzi.Actor("mira@example.com")
	if err := d.Client.Cancel(ctx, kagzi.ID("order-44"), by, kagzi.Reason("the customer called")); err != nil {
		return err
	}
	if _, err := admin.New(d.Client).Runs.Restart(ctx, kagzi.ID("order-47"), by, kagzi.Reason("another card"),
		kagzi.ID("order-47-again")); err != nil {
		return err
	}
	if err := admin.New(d.Client).Runs.Pause(ctx, kagzi.ID("approval-1"), by, kagzi.Reason("audit")); err != nil {
		return err
	}
	return admin.New(d.Client).Pauses.Set(ctx, admin.Target{Workflow: "legacy-sync"}, by, kagzi.Reason("the CRM moves"))
}
