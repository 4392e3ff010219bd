package kagzi_test

import (
	"fmt"

	"github.com/kagzi/kagzi"
)

// One worker claims from several queues. While all of them have due runs, each has its share of the worker's slots:
// here reports have one of four, and the newsletter cannot keep orders waiting. Queues are added and removed while the
// worker runs.
func ExampleWorker_AddQueue() {
	ctx, _, client, _ := setup()
	defer teardown()

	worker, err := kagzi.NewWorker(client, kagzi.WorkerConfig{
		Queues:        map[string]int{"orders": 3, "reports": 1},
		MaxConcurrent: 20,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	deliver := kagzi.Define[string, string]("deliver")
	kagzi.Handle(worker, deliver, func(ctx kagzi.Context, what string) (string, error) {
		return what + " is done", nil
	})
	serve(ctx, worker)

	deliverIn := func(queue string) {
		run, err := kagzi.Start(ctx, client, deliver, queue, kagzi.Queue(queue))
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(run.Result(ctx))
	}
	deliverIn("orders")
	deliverIn("reports")

	fmt.Println(worker.AddQueue("newsletter", 1))
	deliverIn("newsletter")
	fmt.Println(worker.RemoveQueue("reports"))
	// Output:
	// orders is done <nil>
	// reports is done <nil>
	// <nil>
	// newsletter is done <nil>
	// <nil>
}

// A worker in a program that does other things, too: Start returns once the worker has registered, and Stop lets the
// runs under way finish.
func ExampleWorker_Start() {
	ctx, _, client, worker := setup()
	defer teardown()

	greet := kagzi.Define[string, string]("greet")
	kagzi.Handle(worker, greet, func(_ kagzi.Context, name string) (string, error) { return "Hello " + name, nil })
	if err := worker.Start(ctx); err != nil {
		fmt.Println(err)
		return
	}

	run, _ := kagzi.Start(ctx, client, greet, "Ada")
	fmt.Println(run.Result(ctx))

	fmt.Println(worker.Stop(ctx))
	<-worker.Done() // also closed when an operator has drained the worker
	// Output:
	// Hello Ada <nil>
	// <nil>
}
