// Cron starts a run every second. Each tick starts exactly one run, however many processes have the schedule.
//
//	go run ./examples/cron
package main

import (
	"context"
	"fmt"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/examples/internal/demo"
)

var Report = kagzi.Define[string, string]("report")

// report is called once for each tick. FireTime is the time of the tick, even if the run starts late.
func report(ctx kagzi.Context, shop string) (string, error) {
	tick := ctx.FireTime()
	return kagzi.Step(ctx, "write", func(ctx context.Context) (string, error) {
		return fmt.Sprintf("sales of %s before %s", shop, tick.Format(time.TimeOnly)), nil
	})
}

func main() {
	handle := func(w *kagzi.Worker) { kagzi.Handle(w, Report, report) }
	demo.Main("cron", handle, func(ctx context.Context, client *kagzi.Client) error {
		// A program calls Schedule each time it starts: it creates the schedule, or changes it to this.
		err := client.Schedule(ctx, kagzi.Schedule{
			Name: "report", Cron: "* * * * * *", // every second; the usual five fields work too
			Run: Report.With("Berlin"), Overlap: kagzi.OverlapSkip,
		})
		if err != nil {
			return err
		}
		if err := wait(ctx, client, 3); err != nil {
			return err
		}
		fmt.Println("three ticks, three reports")
		return client.DeleteSchedule(ctx, "report")
	})
}

// wait waits until n runs of the schedule have completed.
func wait(ctx context.Context, client *kagzi.Client, n int) error {
	since := time.Now()
	for {
		runs, err := client.List(ctx, kagzi.RunFilter{
			Schedule: "report", Status: []kagzi.Status{kagzi.StatusCompleted},
			Since: since, Limit: n,
		})
		if err != nil || len(runs) == n {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(100 * time.Millisecond):
		}
	}
}
