package admin_test

import (
	"fmt"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
)

// A pause holds from the moment when it is stored, and no worker has to run for it.
func ExamplePauses_Set() {
	ctx, _, client, worker := setup()
	defer teardown()
	_ = admin.New(client).Pauses.Set(ctx, admin.Target{Workflow: "order"}, kagzi.Reason("the provider is down"),
		kagzi.Actor("ada"))

	order := kagzi.Define[int, string]("order")
	kagzi.Handle(worker, order, func(_ kagzi.Context, n int) (string, error) { return fmt.Sprint("order ", n), nil })
	serve(ctx, worker)
	run, _ := kagzi.Start(ctx, client, order, 1)

	pauses, _ := admin.New(client).Pauses.List(ctx)
	for _, p := range pauses {
		fmt.Printf("workflow %s is paused by %s: %s\n", p.Workflow, p.Actor, p.Reason)
	}
	fmt.Println(admin.New(client).Pauses.End(ctx, admin.Target{Workflow: "order"}))
	fmt.Println(run.Result(ctx))
	// Output:
	// workflow order is paused by ada: the provider is down
	// <nil>
	// order 1 <nil>
}
