// Part 1 of docs/tutorial.md: a workflow that goes on after its process was killed.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi"
)

type Order struct {
	ID, Item string
	Cents    int
}

var Checkout = kagzi.DefineDo[Order]("checkout")

func checkout(ctx kagzi.Context, o Order) error {
	err := kagzi.Do(ctx, "pack", func(ctx context.Context) error {
		fmt.Println("packing the", o.Item)
		return nil
	})
	if err != nil {
		return err
	}
	if err := kagzi.Sleep(ctx, "dry", 10*time.Second); err != nil {
		return err
	}
	return kagzi.Do(ctx, "ship", func(ctx context.Context) error {
		fmt.Println("shipping the", o.Item)
		return nil
	})
}

func main() {
	ctx := context.Background()
	pool := must(pgxpool.New(ctx, os.Getenv("DATABASE_URL")))
	check(kagzi.Migrate(ctx, pool))
	client := must(kagzi.NewClient(pool, kagzi.ClientConfig{}))

	worker := must(kagzi.NewWorker(client, kagzi.WorkerConfig{}))
	kagzi.HandleDo(worker, Checkout, checkout)
	check(worker.Start(ctx))
	defer worker.Stop(ctx)

	order := Order{ID: "1", Item: "teapot", Cents: 2500}
	run := must(kagzi.Start(ctx, client, Checkout, order, kagzi.ID("order-1")))
	must(run.Result(ctx)) // waits until the run is over
}

func must[T any](v T, err error) T {
	check(err)
	return v
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
