package admin_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
)

func ExampleSchedules_Pause() {
	ctx, _, client, _ := setup()
	defer teardown()

	report := kagzi.Define[string, string]("report")
	_ = client.Schedule(ctx, kagzi.Schedule{Name: "hourly", Every: time.Hour, Run: report.With("sales")})

	fmt.Println(admin.New(client).Schedules.Pause(ctx, "hourly"))
	info, _ := admin.New(client).Schedules.Get(ctx, "hourly")
	fmt.Println(info.Name, info.Every, "paused:", info.Paused)

	id, err := admin.New(client).Schedules.Trigger(ctx, "hourly") // by hand, although it is paused
	run, _ := client.Get(ctx, id)
	fmt.Println(run.Schedule, run.Status, err)

	fmt.Println(admin.New(client).Schedules.Resume(ctx, "hourly"))
	fmt.Println(client.DeleteSchedule(ctx, "hourly"))
	_, err = admin.New(client).Schedules.Get(ctx, "hourly")
	fmt.Println(errors.Is(err, kagzi.ErrNotFound))
	// Output:
	// <nil>
	// hourly 1h0m0s paused: true
	// hourly PENDING <nil>
	// <nil>
	// <nil>
	// true
}

func ExampleSchedules_List() {
	ctx, _, client, _ := setup()
	defer teardown()

	report := kagzi.Define[string, string]("report")
	for _, name := range []string{"daily", "hourly", "monthly"} {
		_ = client.Schedule(ctx, kagzi.Schedule{Name: name, Cron: "@" + name, Run: report.With(name)})
	}
	page, err := admin.New(client).Schedules.List(ctx, admin.ScheduleFilter{After: "daily", Limit: 10})
	for _, s := range page {
		fmt.Println(s.Name, s.Cron, s.Workflow, string(s.Input))
	}
	fmt.Println(err)
	// Output:
	// hourly @hourly report "hourly"
	// monthly @monthly report "monthly"
	// <nil>
}
