package admin_test

import (
	"fmt"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
)

// An urgent order waits in a queue whose workers are down. It moves to another queue, in front of the orders there.
func ExampleRuns_Update() {
	ctx, _, client, worker := setup() // the worker claims from the queue "default"
	defer teardown()

	order := kagzi.Define[int, string]("order")
	kagzi.Handle(worker, order, func(_ kagzi.Context, n int) (string, error) { return fmt.Sprint("order ", n), nil })
	serve(ctx, worker)
	run, _ := kagzi.Start(ctx, client, order, 42, kagzi.Queue("warehouse"), kagzi.ID("order-42"))

	err := admin.New(client).Runs.Update(ctx, kagzi.ID("order-42"), kagzi.Queue("default"), kagzi.Priority(1),
		kagzi.Reason("the warehouse is down"), kagzi.Actor("ada"))
	fmt.Println(err)
	fmt.Println(run.Result(ctx))

	log, _ := admin.New(client).Runs.Log(ctx, run)
	for _, e := range log {
		fmt.Println(e.Event, "by", e.Actor, "because", e.Reason)
		for _, c := range e.Changes {
			fmt.Printf("  %s: %s → %s\n", c.Field, c.From, c.To)
		}
	}
	// Output:
	// <nil>
	// order 42 <nil>
	// UPDATED by ada because the warehouse is down
	//   queue: warehouse → default
	//   priority: 3 → 1
}

// First a dry run, then the same in earnest.
func ExampleRuns_UpdateAll() {
	ctx, _, client, _ := setup()
	defer teardown()

	mail := kagzi.Define[int, int]("mail")
	for n := range 4 {
		_, _ = kagzi.Start(ctx, client, mail, n, kagzi.Metadata{"tenant": []string{"acme", "other"}[n%2]})
	}
	acme := kagzi.RunFilter{Workflow: "mail", Metadata: kagzi.Metadata{"tenant": "acme"}}
	bulk, err := admin.New(client).Runs.UpdateAll(ctx, acme, kagzi.Queue("bulk"), kagzi.Priority(4), admin.DryRun())
	fmt.Println(len(bulk.Changed), "would move,", err)
	bulk, err = admin.New(client).Runs.UpdateAll(ctx, acme, kagzi.Queue("bulk"), kagzi.Priority(4),
		kagzi.Reason("acme floods the queue"))
	fmt.Println(len(bulk.Changed), "moved,", err)

	moved, _ := client.List(ctx, kagzi.RunFilter{Queue: "bulk"})
	fmt.Println(len(moved), "in queue bulk, with priority", moved[0].Priority)
	// Output:
	// 2 would move, <nil>
	// 2 moved, <nil>
	// 2 in queue bulk, with priority 4
}
