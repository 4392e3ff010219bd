package admin_test

import (
	"errors"
	"fmt"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/kit"
)

// Every worker is in the registry, with what it said of itself at its last heartbeat.
func ExampleClient_Workers() {
	ctx, _, client, _ := setup()
	defer teardown()

	checkout := kagzi.Define[int, string]("checkout", kagzi.Queue("shop"))
	for _, zone := range []string{"a", "b"} {
		worker, _ := kagzi.NewWorker(client, kagzi.WorkerConfig{
			Queue: "shop", Build: "v1.2.3",
			Labels: map[string]string{"zone": zone},
		})
		kagzi.Handle(worker, checkout, func(kagzi.Context, int) (string, error) { return "done", nil })
		serve(ctx, worker)
		run, _ := kagzi.Start(ctx, client, checkout, 7) // once it is executed, the worker is registered
		_, _ = run.Result(ctx)
	}
	kit.UntilOnline(ctx, client, 2)

	page, total, err := admin.New(client).Workers(ctx,
		admin.WorkerFilter{Queue: "shop", Labels: map[string]string{"zone": "b"}})
	fmt.Println(total, err)
	for _, w := range page {
		fmt.Println(w.Status, w.Build, w.Workflows, w.Labels["zone"], w.MaxConcurrent)
	}
	// Output:
	// 1 <nil>
	// ONLINE v1.2.3 [checkout] b 100
}

// A worker can be asked to drain from wherever there is a client: its Run returns as if its context had ended.
func ExampleClient_Drain() {
	ctx, pool, client, worker := setup()
	defer teardown()

	greet := kagzi.Define[string, string]("greet")
	kagzi.Handle(worker, greet, func(_ kagzi.Context, name string) (string, error) { return "hello " + name, nil })
	ended := make(chan error)
	go func() { ended <- worker.Run(ctx) }()
	kit.UntilOnline(ctx, client, 1)

	elsewhere, _ := kagzi.NewClient(pool, kagzi.ClientConfig{})
	page, _, _ := admin.New(elsewhere).Workers(ctx, admin.WorkerFilter{Status: []string{"ONLINE"}})
	for _, w := range page {
		fmt.Println(admin.New(elsewhere).Drain(ctx, w.ID))
	}
	fmt.Println("Run returned", <-ended)

	events, _ := admin.New(elsewhere).WorkerLog(ctx, page[0].ID)
	for _, e := range events {
		fmt.Printf("%s %q\n", e.Event, e.Reason)
	}
	// Output:
	// <nil>
	// Run returned <nil>
	// STARTED ""
	// DRAINING "Client.Drain"
	// STOPPED ""
}

// Before a queue's workers are replaced, all of them are asked to drain; those that start later work on.
func ExampleClient_DrainQueue() {
	ctx, _, client, worker := setup()
	defer teardown()

	greet := kagzi.Define[string, string]("greet")
	kagzi.Handle(worker, greet, func(_ kagzi.Context, name string) (string, error) { return "hello " + name, nil })
	serve(ctx, worker)
	kit.UntilOnline(ctx, client, 1)

	n, err := admin.New(client).DrainQueue(ctx, "default")
	fmt.Println(n, err)
	n, err = admin.New(client).DrainQueue(ctx, "default")
	fmt.Println(n, err)
	// Output:
	// 1 <nil>
	// 0 <nil>
}

// If a worker is certainly dead, or must not continue, ForceOffline releases its runs at once.
func ExampleClient_ForceOffline() {
	ctx, _, client, worker := setup()
	defer teardown()

	greet := kagzi.Define[string, string]("greet")
	kagzi.Handle(worker, greet, func(_ kagzi.Context, name string) (string, error) { return "hello " + name, nil })
	serve(ctx, worker)
	kit.UntilOnline(ctx, client, 1)

	page, _, _ := admin.New(client).Workers(ctx, admin.WorkerFilter{Status: []string{"ONLINE"}})
	fmt.Println(admin.New(client).ForceOffline(ctx, page[0].ID))
	forced, err := admin.New(client).Worker(ctx, page[0].ID)
	fmt.Println(forced.Status, err)

	_, err = admin.New(client).Worker(ctx, "00000000-0000-0000-0000-000000000000")
	fmt.Println(errors.Is(err, kagzi.ErrNotFound))
	// Output:
	// <nil>
	// OFFLINE <nil>
	// true
}
