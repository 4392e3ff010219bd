package admin_test

import (
	"fmt"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
)

// How long do runs take, and how long do they wait for a worker?
func ExampleClient_Latencies() {
	ctx, pool, client, worker := setup()
	defer teardown()

	greet := kagzi.Define[string, string]("greet")
	kagzi.Handle(worker, greet, func(_ kagzi.Context, name string) (string, error) { return "Hello, " + name, nil })
	serve(ctx, worker)
	for _, name := range []string{"Ada", "Grace"} {
		run, _ := kagzi.Start(ctx, client, greet, name)
		_, _ = run.Result(ctx)
	}
	_, _ = pool.Exec(ctx, "UPDATE kagzi.workflow_runs SET started_at = created_at + interval '20 ms', finished_at = "+
		"created_at + interval '1.5 s'")

	latencies, err := admin.New(client).Latencies(ctx)
	for _, l := range latencies {
		fmt.Println(l.Queue, l.Workflow, l.Runs, "waited", l.Wait.Median, "took", l.Took.P95, err)
	}
	// Output:
	// default greet 2 waited 20ms took 1.5s <nil>
}
