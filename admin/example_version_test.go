package admin_test

import (
	"fmt"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/kit"
)

// A run waits for a worker of its version, and an operator can see for which.
func ExampleClient_Stranded() {
	ctx, _, client, worker := setup()
	defer teardown()

	order := kagzi.Define[string, string]("order")
	kagzi.Handle(worker, order, func(_ kagzi.Context, product string) (string, error) { return product, nil },
		kagzi.Version(2))
	serve(ctx, worker)
	kit.UntilOnline(ctx, client, 1)

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
