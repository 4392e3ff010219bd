package admin_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
)

// Recorded steps stay: only the failed step is executed again.
func ExampleRuns_Resume() {
	ctx, _, client, worker := setup()
	defer teardown()

	repaired := false
	order := kagzi.Define[string, string]("order", kagzi.RetryPolicy{MaxAttempts: 1})
	kagzi.Handle(worker, order, func(ctx kagzi.Context, product string) (string, error) {
		err := kagzi.Do(ctx, "pay", func(ctx context.Context) error {
			fmt.Println("paying")
			return nil
		})
		if err != nil {
			return "", err
		}
		return kagzi.Step(ctx, "ship", func(ctx context.Context) (string, error) {
			if !repaired {
				return "", kagzi.Permanent(errors.New("the lorry is broken"))
			}
			return "parcel 7", nil
		})
	})
	serve(ctx, worker)

	run, _ := kagzi.Start(ctx, client, order, "lamp")
	_, err := run.Result(ctx)
	fmt.Println(errors.As(err, new(*kagzi.RunError)))

	repaired = true
	_ = admin.New(client).Runs.Resume(ctx, run.ID())
	fmt.Println(run.Result(ctx))
	// Output:
	// paying
	// true
	// parcel 7 <nil>
}
