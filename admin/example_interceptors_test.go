package admin_test

import (
	"fmt"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
)

func ExampleWorkers_Local() {
	ctx, _, client, worker := setup()
	defer teardown()

	wf := kagzi.Define[int, int]("wf")
	kagzi.Handle(worker, wf, func(_ kagzi.Context, n int) (int, error) { return n, nil })
	serve(ctx, worker)
	run, _ := kagzi.Start(ctx, client, wf, 1)
	fmt.Println(run.Result(ctx))
	for _, w := range admin.New(client).Workers.Local() {
		fmt.Println(w.Queues, w.Slots)
	}
	// Output:
	// 1 <nil>
	// [default] 100
}
