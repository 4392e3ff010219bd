package kagzi_test

import (
	"context"
	"fmt"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/kit"
)

// A rolling deploy: while workers of both versions are there, each run stays on the one that it began with.
func ExampleVersion_rollingDeploy() {
	ctx, _, client, oldWorker := setup()
	defer teardown()

	order := kagzi.Define[string, string]("order")
	orderV1 := func(ctx kagzi.Context, product string) (string, error) {
		err := kagzi.Sleep(ctx, "cooling-off", 400*time.Millisecond)
		return product + " by version 1", err
	}
	orderV2 := func(_ kagzi.Context, product string) (string, error) { return product + " by version 2", nil }

	kagzi.Handle(oldWorker, order, orderV1) // the program before the deploy
	oldCtx, stopOld := context.WithCancel(ctx)
	defer stopOld()
	serve(oldCtx, oldWorker)
	lamp, _ := kagzi.Start(ctx, client, order, "lamp")
	kit.UntilAsleep(ctx, lamp)

	newWorker, _ := kagzi.NewWorker(client, kagzi.WorkerConfig{}) // the program that is deployed
	kagzi.Handle(newWorker, order, orderV1)
	kagzi.Handle(newWorker, order, orderV2, kagzi.Version(2))
	serve(ctx, newWorker)
	kit.UntilOnline(ctx, client, 2)
	stopOld()
	kit.UntilOnline(ctx, client, 1)

	chair, _ := kagzi.Start(ctx, client, order, "chair")
	fmt.Println(chair.Result(ctx))
	fmt.Println(lamp.Result(ctx))
	// Output:
	// chair by version 2 <nil>
	// lamp by version 1 <nil>
}

// Runs that name no version keep the old one. Those that ask for version 2 get the new one.
func ExampleDefaultVersion() {
	ctx, _, client, worker := setup()
	defer teardown()

	greet := kagzi.Define[string, string]("greet")
	kagzi.Handle(worker, greet, func(_ kagzi.Context, name string) (string, error) { return "Hello " + name, nil },
		kagzi.DefaultVersion())
	kagzi.Handle(worker, greet, func(_ kagzi.Context, name string) (string, error) { return "Good day " + name, nil },
		kagzi.Version(2))
	serve(ctx, worker)

	run, _ := kagzi.Start(ctx, client, greet, "Ada")
	fmt.Println(run.Result(ctx))
	run, _ = kagzi.Start(ctx, client, greet, "Ada", kagzi.Version(2))
	fmt.Println(run.Result(ctx))
	// Output:
	// Hello Ada <nil>
	// Good day Ada <nil>
}

// Patched changes the code within a version: a run that has passed the changed code keeps the old path, new runs take
// the new one.
func ExamplePatched() {
	ctx, _, client, oldWorker := setup()
	defer teardown()

	order := kagzi.Define[string, string]("order")
	step := func(ctx kagzi.Context, name string) (string, error) {
		return kagzi.Step(ctx, name, func(context.Context) (string, error) { return name, nil })
	}
	kagzi.Handle(oldWorker, order, func(ctx kagzi.Context, product string) (string, error) {
		done, err := step(ctx, "charge")
		if err != nil {
			return "", err
		}
		err = kagzi.Sleep(ctx, "cooling-off", 300*time.Millisecond)
		return product + ": " + done, err
	})
	oldCtx, stopOld := context.WithCancel(ctx)
	defer stopOld()
	serve(oldCtx, oldWorker)
	lamp, _ := kagzi.Start(ctx, client, order, "lamp")
	kit.UntilAsleep(ctx, lamp)
	stopOld()
	kit.UntilOnline(ctx, client, 0)

	newWorker, _ := kagzi.NewWorker(client, kagzi.WorkerConfig{})
	kagzi.Handle(newWorker, order, func(ctx kagzi.Context, product string) (string, error) {
		way := "charge"
		if kagzi.Patched(ctx, "reserve-only") { // charged later, by another system
			way = "reserve"
		}
		done, err := step(ctx, way)
		if err != nil {
			return "", err
		}
		err = kagzi.Sleep(ctx, "cooling-off", 300*time.Millisecond)
		return product + ": " + done, err
	})
	serve(ctx, newWorker)

	chair, _ := kagzi.Start(ctx, client, order, "chair")
	fmt.Println(lamp.Result(ctx))
	fmt.Println(chair.Result(ctx))
	// Output:
	// lamp: charge <nil>
	// chair: reserve <nil>
}
