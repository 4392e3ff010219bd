package admin_test

import (
	"errors"
	"fmt"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
)

// The entry that stays says who deleted the run, and why.
func ExampleRuns_Delete() {
	ctx, _, client, worker := setup()
	defer teardown()

	order := kagzi.Define[int, int]("order")
	kagzi.Handle(worker, order, func(_ kagzi.Context, n int) (int, error) { return n, nil })
	serve(ctx, worker)
	run, _ := kagzi.Start(ctx, client, order, 42, kagzi.ID("order-42"))
	_, _ = run.Result(ctx)

	fmt.Println(admin.New(client).Runs.Delete(ctx, run, kagzi.Reason("the customer asked for it"), kagzi.Actor("ada")))
	_, err := client.Get(ctx, run)
	fmt.Println("gone:", errors.Is(err, kagzi.ErrNotFound))

	log, _ := admin.New(client).Runs.Log(ctx, kagzi.ID("order-42"))
	for _, e := range log {
		fmt.Println(e.Event, "by", e.Actor, "because", e.Reason)
	}
	// Output:
	// <nil>
	// gone: true
	// DELETED by ada because the customer asked for it
}

// A tenant leaves. A dry run comes first.
func ExampleRuns_DeleteAll() {
	ctx, _, client, worker := setup()
	defer teardown()

	order := kagzi.Define[int, int]("order")
	kagzi.Handle(worker, order, func(_ kagzi.Context, n int) (int, error) { return n, nil })
	serve(ctx, worker)
	for n := range 4 {
		run, _ := kagzi.Start(ctx, client, order, n, kagzi.Metadata{"tenant": []string{"acme", "other"}[n%2]})
		_, _ = run.Result(ctx)
	}
	acme := kagzi.RunFilter{Metadata: kagzi.Metadata{"tenant": "acme"}}
	bulk, err := admin.New(client).Runs.DeleteAll(ctx, acme, admin.DryRun())
	fmt.Println(len(bulk.Changed), "would be deleted,", err)
	bulk, err = admin.New(client).Runs.DeleteAll(ctx, acme, kagzi.Reason("acme left"), kagzi.Actor("ada"))
	fmt.Println(len(bulk.Changed), "deleted,", err)
	left, _ := client.List(ctx, kagzi.RunFilter{Workflow: "order"})
	fmt.Println(len(left), "left")
	// Output:
	// 2 would be deleted, <nil>
	// 2 deleted, <nil>
	// 2 left
}
