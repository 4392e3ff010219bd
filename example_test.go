package kagzi_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/dbtest"
)

// stage is where an example plays: a database of its own, and the workers it has let run.
var stage struct {
	stop    context.CancelFunc
	workers sync.WaitGroup
	done    func() error
}

// setup returns what an application has: a pool of its database, on which Migrate was called, a client and a worker.
func setup() (context.Context, *pgxpool.Pool, *kagzi.Client, *kagzi.Worker) {
	ctx, stop := context.WithTimeout(context.Background(), 5*time.Minute)
	db, done, err := dbtest.Example(ctx)
	if err != nil {
		panic(err)
	}
	stage.stop, stage.done = stop, done
	client, err := kagzi.NewClient(db.Pool, kagzi.ClientConfig{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		panic(err)
	}
	worker, err := kagzi.NewWorker(client, kagzi.WorkerConfig{})
	if err != nil {
		panic(err)
	}
	return ctx, db.Pool, client, worker
}

// serve lets worker run until teardown: go worker.Run(ctx).
func serve(ctx context.Context, worker *kagzi.Worker) {
	stage.workers.Go(func() {
		if err := worker.Run(ctx); err != nil {
			fmt.Println("worker:", err)
		}
	})
}

// teardown stops the workers.
func teardown() {
	stage.stop()
	stage.workers.Wait()
	if err := stage.done(); err != nil {
		fmt.Println("teardown:", err)
	}
}

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
