package namespaces_test

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/namespaces"
)

// Each tenant has a namespace, and one process executes the runs of all.
func ExampleWorker() {
	var stage kit.Stage
	ctx, pool, _, _ := stage.Setup()
	defer stage.Teardown()

	invoice := kagzi.Define[int, string]("invoice")
	worker, err := namespaces.NewWorker(pool, namespaces.Config{
		Handle: func(w *kagzi.Worker, client *kagzi.Client) error {
			kagzi.Handle(w, invoice, func(ctx kagzi.Context, n int) (string, error) {
				return kagzi.Step(ctx, "print", func(context.Context) (string, error) {
					return fmt.Sprintf("invoice %d of %s", n, client.Namespace()), nil
				})
			})
			return nil
		},
		Client: kagzi.ClientConfig{Logger: slog.New(slog.DiscardHandler)},
		Worker: kagzi.WorkerConfig{MaxConcurrent: 200}, // of all namespaces together
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	stopped := make(chan error)
	go func() { stopped <- worker.Run(ctx) }()

	for n, tenant := range []string{"acme", "globex"} {
		client, err := worker.Client(tenant)
		if err != nil {
			fmt.Println(err)
			return
		}
		run, err := kagzi.Start(ctx, client, invoice, n+1)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(run.Result(ctx))
	}
	fmt.Println(worker.Active())

	stop()
	fmt.Println(<-stopped)
	// Output:
	// invoice 1 of acme <nil>
	// invoice 2 of globex <nil>
	// [acme globex]
	// <nil>
}
