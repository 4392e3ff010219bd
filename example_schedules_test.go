package kagzi_test

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
)

// A report every Monday at seven, in Berlin.
func ExampleClient_Schedule() {
	ctx, _, client, _ := setup()
	defer teardown()

	report := kagzi.Define[string, string]("report")
	err := client.Schedule(ctx, kagzi.Schedule{
		Name: "weekly-report", Cron: "0 7 * * mon", TimeZone: "Europe/Berlin",
		Start: time.Date(2036, 3, 20, 0, 0, 0, 0, time.UTC),
		Run:   report.With("sales", kagzi.Queue("reports")),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	next, err := admin.New(client).Schedules.NextFires(ctx, "weekly-report", 3)
	for _, at := range next {
		fmt.Println(at) // clocks are set forward on 30 March 2036
	}
	fmt.Println(err)

	err = client.Schedule(ctx, kagzi.Schedule{Name: "never", Cron: "0 0 30 2 *", Run: report.With("sales")})
	fmt.Println(err)
	// Output:
	// 2036-03-24 06:00:00 +0000 UTC
	// 2036-03-31 05:00:00 +0000 UTC
	// 2036-04-07 05:00:00 +0000 UTC
	// <nil>
	// kagzi: schedule "never": cron "0 0 30 2 *": never fires: no date matches it
}

// The tick is what a scheduled workflow should count from: its run may come later.
func ExampleContext_fireTime() {
	ctx, _, client, worker := setup()
	defer teardown()

	report := kagzi.Define[string, string]("report")
	kagzi.Handle(worker, report, func(ctx kagzi.Context, what string) (string, error) {
		return kagzi.Step(ctx, "count", func(context.Context) (string, error) {
			return fmt.Sprintf("%s of %s", what, ctx.FireTime().Format(time.DateOnly)), nil
		})
	})
	serve(ctx, worker)

	_ = client.Schedule(ctx, kagzi.Schedule{
		Name: "daily", Cron: "@daily", Run: report.With("sales"),
		Start: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
	})
	n, err := admin.New(client).Schedules.Backfill(ctx, "daily", time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
		time.Date(2026, 1, 3, 0, 0, 0, 0, time.UTC))
	fmt.Println(n, "runs", err)

	runs, _ := client.List(ctx, kagzi.RunFilter{Schedule: "daily"})
	for i := len(runs) - 1; i >= 0; i-- { // from new to old
		run, _ := kagzi.Find(ctx, client, report, runs[i].ID)
		fmt.Println(run.Result(ctx))
	}
	// Output:
	// 3 runs <nil>
	// sales of 2026-01-01 <nil>
	// sales of 2026-01-02 <nil>
	// sales of 2026-01-03 <nil>
}

// A process without workers can do the housekeeping, too.
func ExampleCoordinator_Run() {
	ctx, _, client, _ := setup()
	defer teardown()

	coordinator, err := kagzi.NewCoordinator(client, kagzi.CoordinatorConfig{Interval: time.Second})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithCancel(ctx) // a program: signal.NotifyContext
	done := make(chan error)
	go func() { done <- coordinator.Run(ctx) }()

	report := kagzi.Define[string, string]("report")
	_ = client.Schedule(ctx, kagzi.Schedule{Name: "often", Every: time.Second, Run: report.With("sales")})
	var runs []kagzi.RunInfo
	for len(runs) == 0 && ctx.Err() == nil {
		runs, _ = client.List(ctx, kagzi.RunFilter{Schedule: "often", Limit: 1})
	}
	fmt.Println(runs[0].Schedule, runs[0].Status)
	stop()
	fmt.Println(<-done)
	// Output:
	// often PENDING
	// <nil>
}

// An import that may take longer than the time between two ticks: it is not started beside itself.
func ExampleOverlap() {
	ctx, _, client, _ := setup()
	defer teardown()

	imports := kagzi.Define[string, int]("import")
	err := client.Schedule(ctx, kagzi.Schedule{
		Name: "import", Every: 10 * time.Minute, Overlap: kagzi.OverlapSkip,
		Run: imports.With("prices"),
	})
	fmt.Println(err)
	info, err := admin.New(client).Schedules.Get(ctx, "import")
	fmt.Println(info.Overlap, info.Every, err)

	err = client.Schedule(ctx, kagzi.Schedule{
		Name: "import", Every: 10 * time.Minute, Overlap: "skip them",
		Run: imports.With("prices"),
	})
	wrong, advice, _ := strings.Cut(err.Error(), ": give ")
	fmt.Println(wrong)
	fmt.Println("give", advice)
	// Output:
	// <nil>
	// skip 10m0s <nil>
	// kagzi: schedule "import": there is no Overlap "skip them"
	// give kagzi.OverlapSkip, OverlapQueueOne or OverlapCancelPrevious, or leave it out
}
