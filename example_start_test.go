package kagzi_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/kagzi/kagzi"
)

// While a run with the ID is active, Start returns it instead of starting another.
func ExampleID() {
	ctx, _, client, _ := setup()
	defer teardown()

	checkout := kagzi.Define[int, string]("checkout")
	first, _ := kagzi.Start(ctx, client, checkout, 1999, kagzi.ID("order-42"))
	again, _ := kagzi.Start(ctx, client, checkout, 1999, kagzi.ID("order-42"))
	fmt.Println(again.ID() == first.ID(), again.Existed())

	_, err := kagzi.Start(ctx, client, checkout, 5, kagzi.ID("order-42")) // another input
	fmt.Println(errors.Is(err, kagzi.ErrIDConflict))
	// Output:
	// true true
	// true
}

// The order and the run that sees to it exist both, or neither.
func ExampleInTx() {
	ctx, pool, client, _ := setup()
	defer teardown()
	_, _ = pool.Exec(ctx, `CREATE TABLE orders (id int)`)

	checkout := kagzi.Define[int, string]("checkout")
	place := func(order int, commit bool) {
		tx, err := pool.Begin(ctx)
		if err != nil {
			return
		}
		defer tx.Rollback(ctx) // does nothing after Commit
		_, _ = tx.Exec(ctx, `INSERT INTO orders (id) VALUES ($1)`, order)
		_, _ = kagzi.Start(ctx, client, checkout, order, kagzi.InTx(tx), kagzi.ID(fmt.Sprint("order-", order)))
		if commit {
			_ = tx.Commit(ctx)
		}
	}
	place(1, true)
	place(2, false)

	runs, _ := client.List(ctx, kagzi.RunFilter{Workflow: checkout.Name()})
	for _, run := range runs {
		fmt.Println(run.ExternalID)
	}
	// Output: order-1
}

func ExampleDelay() {
	ctx, _, client, _ := setup()
	defer teardown()

	remind := kagzi.Define[string, string]("remind")
	run, _ := kagzi.Start(ctx, client, remind, "Ada", kagzi.Delay(time.Hour))
	info, _ := run.Info(ctx)
	fmt.Println(info.Status, info.AvailableAt.Sub(info.CreatedAt))
	// Output: PENDING 1h0m0s
}

func ExampleAt() {
	ctx, _, client, _ := setup()
	defer teardown()

	remind := kagzi.Define[string, string]("remind")
	run, _ := kagzi.Start(ctx, client, remind, "Ada", kagzi.At(time.Date(2100, 1, 1, 9, 0, 0, 0, time.UTC)))
	info, _ := run.Info(ctx)
	fmt.Println(info.Status, info.AvailableAt.UTC())
	// Output: PENDING 2100-01-01 09:00:00 +0000 UTC
}

// All of them are started, or none, in one round trip. Options of the call itself hold for all.
func ExampleClient_StartMany() {
	ctx, _, client, _ := setup()
	defer teardown()

	mail := kagzi.Define[string, string]("mail")
	bill := kagzi.Define[int, string]("bill")
	started, err := client.StartMany(ctx, []kagzi.Call{
		mail.With("Ada"),
		mail.With("Bob", kagzi.Delay(time.Minute)),
		bill.With(42, kagzi.ID("bill-42")),
	}, kagzi.Metadata{"campaign": "spring"})
	fmt.Println(len(started), err)

	runs, _ := client.List(ctx, kagzi.RunFilter{Metadata: kagzi.Metadata{"campaign": "spring"}})
	fmt.Println(len(runs))
	// Output:
	// 3 <nil>
	// 3
}

// Of the runs that are due, workers take those of priority 1 first.
func ExamplePriority() {
	ctx, _, client, _ := setup()
	defer teardown()

	export := kagzi.Define[string, string]("export", kagzi.Priority(4)) // unless a start says otherwise
	usual, _ := kagzi.Start(ctx, client, export, "everything")
	urgent, _ := kagzi.Start(ctx, client, export, "this one", kagzi.Priority(1))
	for _, run := range []*kagzi.Run[string]{usual, urgent} {
		info, _ := run.Info(ctx)
		fmt.Println(info.Priority)
	}
	// Output:
	// 4
	// 1
}

// A worker takes runs from one queue.
func ExampleQueue() {
	ctx, _, client, _ := setup()
	defer teardown()

	render := kagzi.Define[string, string]("render", kagzi.Queue("gpu"))
	worker, _ := kagzi.NewWorker(client, kagzi.WorkerConfig{Queue: "gpu", MaxConcurrent: 2})
	kagzi.Handle(worker, render, func(ctx kagzi.Context, scene string) (string, error) {
		return scene + ".png", nil
	})
	serve(ctx, worker)

	run, _ := kagzi.Start(ctx, client, render, "sunset")
	fmt.Println(run.Result(ctx))
	// Output: sunset.png <nil>
}

func ExampleMetadata() {
	ctx, _, client, _ := setup()
	defer teardown()

	checkout := kagzi.Define[int, string]("checkout")
	_, _ = kagzi.Start(ctx, client, checkout, 1, kagzi.Metadata{"customer": "ada", "country": "uk"})
	_, _ = kagzi.Start(ctx, client, checkout, 2, kagzi.Metadata{"customer": "bob", "country": "uk"})

	runs, _ := client.List(ctx, kagzi.RunFilter{Metadata: kagzi.Metadata{"customer": "ada"}, Payloads: true})
	for _, run := range runs {
		fmt.Println(run.Metadata["customer"], string(run.Input))
	}
	// Output: ada 1
}

// Runs stay with the version of the code that began them. New ones take the newest.
func ExampleVersion() {
	ctx, _, client, worker := setup()
	defer teardown()

	greet := kagzi.Define[string, string]("greet")
	kagzi.Handle(worker, greet, func(ctx kagzi.Context, name string) (string, error) {
		return "Hello, " + name, nil
	})
	kagzi.Handle(worker, greet, func(ctx kagzi.Context, name string) (string, error) {
		return "Namaste, " + name, nil
	}, kagzi.Version(2))
	serve(ctx, worker)

	old, _ := kagzi.Start(ctx, client, greet, "Ada", kagzi.Version(1)) // as if it had begun before the deploy
	fmt.Println(old.Result(ctx))
	run, _ := kagzi.Start(ctx, client, greet, "Ada")
	fmt.Println(run.Result(ctx))
	// Output:
	// Hello, Ada <nil>
	// Namaste, Ada <nil>
}

// A price that is older than a minute is worth nothing, so no worker shall begin with it then. Once a worker has the
// run, it has an hour.
func ExampleStartWithin() {
	ctx, _, client, worker := setup()
	defer teardown()

	quote := kagzi.Define[string, string]("quote", kagzi.StartWithin(time.Minute), kagzi.ExecutionTimeout(time.Hour))
	kagzi.Handle(worker, quote, func(ctx kagzi.Context, customer string) (string, error) {
		return "a quote for " + customer, kagzi.Sleep(ctx, "think", 50*time.Millisecond)
	})
	run, err := kagzi.Start(ctx, client, quote, "Ada")
	if err != nil {
		fmt.Println(err)
		return
	}
	info, err := client.Get(ctx, run)
	fmt.Println("begins within", info.StartBy.Sub(info.CreatedAt), err)

	serve(ctx, worker)
	fmt.Println(run.Result(ctx))
	info, err = client.Get(ctx, run)
	fmt.Println("had", info.DeadlineAt.Sub(info.StartedAt), err)
	// Output:
	// begins within 1m0s <nil>
	// a quote for Ada <nil>
	// had 1h0m0s <nil>
}
