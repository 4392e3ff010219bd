package admin_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
)

// How many runs were started today and yesterday, and what became of them?
func ExampleClient_Outcomes() {
	ctx, _, client, worker := setup()
	defer teardown()

	greet := kagzi.Define[string, string]("greet")
	kagzi.Handle(worker, greet, func(_ kagzi.Context, name string) (string, error) {
		if name == "" {
			return "", kagzi.Permanent(errors.New("no name"))
		}
		return "Hello, " + name, nil
	})
	serve(ctx, worker)
	for _, name := range []string{"Ada", "", "Grace"} {
		run, _ := kagzi.Start(ctx, client, greet, name)
		_, _ = run.Result(ctx)
	}

	outcomes, err := admin.New(client).Outcomes(ctx, 24*time.Hour, 2)
	var started, failed admin.Tally
	for _, day := range outcomes.Intervals {
		started, failed = started.Plus(day.Started()), failed.Plus(day.Failed)
	}
	fmt.Println(len(outcomes.Intervals), "days:", started.Runs, "runs,", failed.Runs, "failed,", err)
	// Output:
	// 2 days: 3 runs, 1 failed, <nil>
}
