package admin_test

import (
	"fmt"
	"time"

	"github.com/kagzi/kagzi/admin"
)

func ExampleLimits_Set() {
	ctx, _, client, _ := setup()
	defer teardown()

	err := admin.New(client).Limits.Set(ctx, admin.StepLimit{
		Name:       "openai",
		Rate:       admin.Rate{Starts: 10, Per: time.Second, Burst: 5},
		MaxRunning: 5,
	})
	fmt.Println(err)
	limits, _ := admin.New(client).Limits.List(ctx, "", 0)
	for _, l := range limits {
		fmt.Println(l.Name, "one every", l.Every, "and", l.MaxRunning, "at a time;", l.Running, "run,",
			l.Waiting, "wait")
	}
	fmt.Println(admin.New(client).Limits.Delete(ctx, "openai"))
	// Output:
	// <nil>
	// openai one every 100ms and 5 at a time; 0 run, 0 wait
	// <nil>
}
