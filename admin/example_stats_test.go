package admin_test

import (
	"fmt"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
)

// An autoscaler asks how much waits in each queue, since when, and how many slots there are.
func ExampleClient_Stats() {
	ctx, pool, client, _ := setup()
	defer teardown()

	ship := kagzi.Define[int, string]("ship", kagzi.Queue("parcels"))
	for order := range 3 {
		_, _ = kagzi.Start(ctx, client, ship, order)
	}
	_, _ = pool.Exec(ctx, "UPDATE kagzi.workflow_runs SET available_at = now() - interval '10 minutes'")
	_, _ = kagzi.Start(ctx, client, ship, 4, kagzi.Delay(time.Hour))

	stats, err := admin.New(client).Stats(ctx)
	fmt.Println(stats.Workers.Live, stats.Workers.Most, err)
	for _, w := range stats.Workflows {
		fmt.Println(w.Queue, w.Workflow, w.Due, w.Delayed, stats.At.Sub(w.DueSince).Round(time.Minute))
	}
	fmt.Printf("%.2f starts a second\n", stats.Rates.Starts)
	// Output:
	// 0 0 <nil>
	// parcels ship 3 1 10m0s
	// 0.07 starts a second
}
