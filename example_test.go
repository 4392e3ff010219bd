package kagzi_test

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/kit"
)

// stage is where an example plays.
var stage kit.Stage

// setup returns what an application has: a pool of its database, on which Migrate was called, a client and a worker.
func setup() (context.Context, *pgxpool.Pool, *kagzi.Client, *kagzi.Worker) { return stage.Setup() }

// serve lets worker run until teardown: go worker.Run(ctx).
func serve(ctx context.Context, worker *kagzi.Worker) { stage.Serve(ctx, worker) }

// teardown stops the workers.
func teardown() { stage.Teardown() }

// A workflow, a worker for it, and one run.
func Example() {
	ctx, _, client, worker := setup()
	defer teardown()

	greet := kagzi.Define[string, string]("greet")
	kagzi.Handle(worker, greet, func(ctx kagzi.Context, name string) (string, error) {
		greeting, err := kagzi.Step(ctx, "compose", func(ctx context.Context) (string, error) {
			return "Hello, " + name, nil
		})
		if err != nil {
			return "", err
		}
		err = kagzi.Sleep(ctx, "breathe", 50*time.Millisecond)
		return greeting + "!", err
	})
	serve(ctx, worker)

	run, err := kagzi.Start(ctx, client, greet, "Ada")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(run.Result(ctx))
	// Output: Hello, Ada! <nil>
}
