package admin_test

import (
	"context"
	"fmt"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
)

// untilAsleep returns when the run has left memory.
func untilAsleep(ctx context.Context, run *kagzi.Run[string]) {
	for ctx.Err() == nil {
		if info, err := run.Info(ctx); err == nil && info.Status == kagzi.StatusSleeping {
			return
		}
	}
}

// A run waits for a worker of its version, and an operator can see for which.
func ExampleClient_Stranded() {
	ctx, _, client, worker := setup()
	defer teardown()

	order := kagzi.Define[string, string]("order")
	kagzi.Handle(worker, order, func(_ kagzi.Context, product string) (string, error) { return product, nil },
		kagzi.Version(2))
	serve(ctx, worker)
	waitFor(ctx, client, 1)

	_, _ = kagzi.Start(ctx, client, order, "lamp", kagzi.Version(1)) // as if it had begun before the deploy
	stranded, err := admin.New(client).Stranded(ctx)
	for _, s := range stranded {
		fmt.Println(s.Count, s.Workflow, s.Version, s.Queue)
	}
	fmt.Println(err)
	// Output:
	// 1 order 1 default
	// <nil>
}
