package kagzi_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
)

// At most two of the steps are under way at a time, in all workers together.
func ExampleLimit() {
	ctx, _, client, worker := setup()
	defer teardown()
	_ = admin.New(client).Limits.Set(ctx, admin.StepLimit{Name: "openai", MaxRunning: 2})

	var asking, most atomic.Int64
	ask := func(ctx context.Context) (string, error) {
		most.Store(max(most.Load(), asking.Add(1)))
		defer asking.Add(-1)
		time.Sleep(10 * time.Millisecond) // the call of the service
		return "42", nil
	}
	answer := kagzi.Define[[]string, []string]("answer")
	kagzi.Handle(worker, answer, func(ctx kagzi.Context, questions []string) ([]string, error) {
		return kagzi.Map(ctx, "each", questions, func(ctx kagzi.Context, question string) (string, error) {
			return kagzi.Step(ctx, "ask", ask, kagzi.Limit("openai"))
		})
	})
	serve(ctx, worker)

	run, _ := kagzi.Start(ctx, client, answer, []string{"a", "b", "c", "d", "e"})
	fmt.Println(run.Result(ctx))
	fmt.Println("at a time:", most.Load())
	// Output:
	// [42 42 42 42 42] <nil>
	// at a time: 2
}

// A step takes three of the four units of memory.
func ExampleLimit_units() {
	ctx, _, client, worker := setup()
	defer teardown()
	limits := admin.New(client).Limits
	_ = limits.Declare(ctx, admin.StepLimit{Name: "memory", MaxRunning: 4})

	scale := kagzi.Define[int, int]("scale")
	kagzi.Handle(worker, scale, func(ctx kagzi.Context, gigabytes int) (int, error) {
		return kagzi.Step(ctx, "scale", func(ctx context.Context) (int, error) {
			list, err := limits.List(ctx, "", 0)
			for _, l := range list {
				fmt.Println(l.Name, "has", l.Running, "of", l.MaxRunning, "slots in use")
			}
			return gigabytes, err
		}, kagzi.Limit("memory", gigabytes))
	})
	serve(ctx, worker)

	run, _ := kagzi.Start(ctx, client, scale, 3)
	fmt.Println(run.Result(ctx))
	// Output:
	// memory has 3 of 4 slots in use
	// 3 <nil>
}

// A step has a limit of its customer and one of all customers. It takes both at once.
func ExampleLimit_several() {
	ctx, _, client, worker := setup()
	defer teardown()
	limits := admin.New(client).Limits
	_ = limits.Declare(ctx, admin.StepLimit{Name: "all", MaxRunning: 10})
	_ = limits.Declare(ctx, admin.StepLimit{Name: "customer ada", MaxRunning: 1})

	export := kagzi.Define[string, int]("export")
	kagzi.Handle(worker, export, func(ctx kagzi.Context, customer string) (int, error) {
		return kagzi.Step(ctx, "export", func(ctx context.Context) (int, error) {
			list, err := limits.List(ctx, "", 0)
			for _, l := range list {
				fmt.Println(l.Name, "has", l.Running, "of", l.MaxRunning, "slots in use")
			}
			return len(list), err
		}, kagzi.Limit("all"), kagzi.Limit("customer "+customer))
	})
	serve(ctx, worker)

	run, _ := kagzi.Start(ctx, client, export, "ada")
	fmt.Println(run.Result(ctx))
	// Output:
	// all has 1 of 10 slots in use
	// customer ada has 1 of 1 slots in use
	// 2 <nil>
}
