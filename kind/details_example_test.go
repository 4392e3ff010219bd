package kind_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/kind"
)

const Declined kind.Kind = "card_declined"

// A Decline says why a bank refuses a payment, and what is left on the account.
type Decline struct {
	Reason string
	Left   int
}

// A failure that a program handles has details: what the workflow, and the caller, need to know beyond its kind.
func ExampleWithDetails() {
	ctx, client, worker := setup()
	defer teardown()

	order := kagzi.Define[int, string]("order")
	kagzi.Handle(worker, order, func(ctx kagzi.Context, total int) (string, error) {
		err := kagzi.Do(ctx, "charge", func(context.Context) error {
			err := fmt.Errorf("the bank refused: %w", Declined)
			return kind.WithDetails(kagzi.Permanent(err), Decline{"limit", 5})
		})
		if d, ok := kind.Details[Decline](err); ok {
			fmt.Printf("workflow: %s, %d of %d\n", d.Reason, d.Left, total)
		}
		return "paid", err
	})
	serve(ctx, worker)

	run, _ := kagzi.Start(ctx, client, order, 20)
	_, err := run.Result(ctx)
	d, ok := kind.Details[Decline](err)
	fmt.Println("caller:", errors.Is(err, Declined), d, ok)
	// Output:
	// workflow: limit, 5 of 20
	// caller: true {limit 5} true
}
