package kagzi_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/kagzi/kagzi"
)

// Does today's code still go the way that a run of yesterday went? Package kagzitest asks that in tests, of many runs.
func ExampleWorker_Replay() {
	ctx, _, client, worker := setup()
	defer teardown()

	order := kagzi.Define[string, string]("order")
	pay := func(context.Context) (string, error) { return "receipt 1", nil }
	kagzi.Handle(worker, order, func(ctx kagzi.Context, _ string) (string, error) {
		return kagzi.Step(ctx, "pay", pay)
	})
	serve(ctx, worker)
	run, err := kagzi.Start(ctx, client, order, "lamp")
	if err != nil {
		panic(err)
	}
	fmt.Println(run.Result(ctx))
	fmt.Println("the same code:", worker.Replay(ctx, run.ID()))

	today, _ := kagzi.NewWorker(client, kagzi.WorkerConfig{}) // need not run
	kagzi.Handle(today, order, func(ctx kagzi.Context, product string) (string, error) {
		if err := kagzi.Do(ctx, "reserve", func(context.Context) error { return nil }); err != nil {
			return "", err
		}
		return kagzi.Step(ctx, "pay", pay)
	})
	var d *kagzi.DivergenceError
	if errors.As(today.Replay(ctx, run.ID()), &d) {
		fmt.Println("another:", d.Message)
	}
	fmt.Println("if that is meant:", today.Replay(ctx, run.ID(), kagzi.AllowAdditions()))
	// Output:
	// receipt 1 <nil>
	// the same code: <nil>
	// another: the code comes to a step "reserve", which the history does not have
	// if that is meant: <nil>
}
