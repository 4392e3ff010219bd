package admin_test

import (
	"errors"
	"fmt"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/kit"
)

// Every worker is in the registry, with what it said of itself at its last heartbeat.
func ExampleWorkers_List() {
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

	page, total, err := admin.New(client).Workers.List(ctx,
		admin.WorkerFilter{Queue: "shop", Labels: map[string]string{"zone": "b"}})
	fmt.Println(total, err)
	for _, w := range page {
		fmt.Println(w.Status, w.Build, w.Workflows, w.Labels["zone"], w.MaxConcurrent)
	}
	// Output:
	// 1 <nil>
	// ONLINE v1.2.3 [checkout] b 100
}

// A worker can be asked to drain from wherever there is a client: it stops as if Stop had been called.
func ExampleWorkers_Drain() {
	ctx, pool, _, worker := setup()
	defer teardown()

	greet := kagzi.Define[string, string]("greet")
	kagzi.Handle(worker, greet, func(_ kagzi.Context, name string) (string, error) { return "hello " + name, nil })
	_ = worker.Start(ctx)

	elsewhere, _ := kagzi.NewClient(pool, kagzi.ClientConfig{})
	page, _, _ := admin.New(elsewhere).Workers.List(ctx, admin.WorkerFilter{Status: []string{"ONLINE"}})
	for _, w := range page {
		fmt.Println(admin.New(elsewhere).Workers.Drain(ctx, w.ID))
	}
	<-worker.Done()
	fmt.Println("stopped:", worker.Stop(ctx))

	events, _ := admin.New(elsewhere).Workers.Log(ctx, page[0].ID)
	for _, e := range events {
		fmt.Printf("%s %q\n", e.Event, e.Reason)
	}
	// Output:
	// <nil>
	// stopped: <nil>
	// STARTED ""
	// DRAINING "Workers.Drain"
	// STOPPED ""
}

// Before a queue's workers are replaced, all of them are asked to drain; those that start later work on.
func ExampleWorkers_DrainQueue() {
	ctx, _, client, worker := setup()
	defer teardown()

	greet := kagzi.Define[string, string]("greet")
	kagzi.Handle(worker, greet, func(_ kagzi.Context, name string) (string, error) { return "hello " + name, nil })
	serve(ctx, worker)
	kit.UntilOnline(ctx, client, 1)

	n, err := admin.New(client).Workers.DrainQueue(ctx, "default")
	fmt.Println(n, err)
	n, err = admin.New(client).Workers.DrainQueue(ctx, "default")
	fmt.Println(n, err)
	// Output:
	// 1 <nil>
	// 0 <nil>
}

// If a worker is certainly dead, or must not continue, ForceOffline releases its runs at once.
func ExampleWorkers_ForceOffline() {
	ctx, _, client, worker := setup()
	defer teardown()

	greet := kagzi.Define[string, string]("greet")
	kagzi.Handle(worker, greet, func(_ kagzi.Context, name string) (string, error) { return "hello " + name, nil })
	serve(ctx, worker)
	kit.UntilOnline(ctx, client, 1)

	page, _, _ := admin.New(client).Workers.List(ctx, admin.WorkerFilter{Status: []string{"ONLINE"}})
	fmt.Println(admin.New(client).Workers.ForceOffline(ctx, page[0].ID))
	forced, err := admin.New(client).Workers.Get(ctx, page[0].ID)
	fmt.Println(forced.Status, err)

	_, err = admin.New(client).Workers.Get(ctx, "00000000-0000-0000-0000-000000000000")
	fmt.Println(errors.Is(err, kagzi.ErrNotFound))
	// Output:
	// <nil>
	// OFFLINE <nil>
	// true
}
