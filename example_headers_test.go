package kagzi_test

import (
	"context"
	"fmt"

	"github.com/kagzi/kagzi"
)

// Headers go with a run to all that it starts.
func ExampleHeaders() {
	ctx, _, client, worker := setup()
	defer teardown()

	pack := kagzi.Define[string, string]("pack")
	kagzi.Handle(worker, pack, func(ctx kagzi.Context, _ string) (string, error) {
		return kagzi.Step(ctx, "label", func(ctx context.Context) (string, error) {
			return "parcel of tenant " + kagzi.CurrentStep(ctx).Headers["tenant"], nil
		})
	})
	ship := kagzi.Define[string, string]("ship")
	kagzi.Handle(worker, ship, func(ctx kagzi.Context, order string) (string, error) {
		return kagzi.RunChild(ctx, "pack", pack, order)
	})
	serve(ctx, worker)

	run, _ := kagzi.Start(ctx, client, ship, "order-42", kagzi.Headers{"tenant": "7"})
	fmt.Println(run.Result(ctx))
	// Output: parcel of tenant 7 <nil>
}

// A message's headers are beside its payload.
func ExampleWaitMessage() {
	ctx, _, client, worker := setup()
	defer teardown()

	expense := kagzi.Define[int, string]("expense")
	kagzi.Handle(worker, expense, func(ctx kagzi.Context, euros int) (string, error) {
		m, err := kagzi.WaitMessage(ctx, Approved)
		return fmt.Sprintf("%d euros, approved by %s from %s", euros, m.Payload, m.Headers["address"]), err
	})
	serve(ctx, worker)

	run, _ := kagzi.Start(ctx, client, expense, 120)
	fmt.Println(client.Signal(ctx, run.ID(), Approved.With("Ada").WithHeaders(kagzi.Headers{"address": "10.0.0.7"})))
	fmt.Println(run.Result(ctx))
	// Output:
	// <nil>
	// 120 euros, approved by Ada from 10.0.0.7 <nil>
}

// People find runs by their metadata, and a run can change its own.
func ExampleSetMetadata() {
	ctx, _, client, worker := setup()
	defer teardown()

	order := kagzi.Define[string, string]("order")
	kagzi.Handle(worker, order, func(ctx kagzi.Context, _ string) (string, error) {
		if err := kagzi.SetMetadata(ctx, "paid", kagzi.Metadata{"state": "paid"}); err != nil {
			return "", err
		}
		return "for " + ctx.Metadata()["customer"], nil
	})
	serve(ctx, worker)

	run, _ := kagzi.Start(ctx, client, order, "order-42", kagzi.Metadata{"customer": "ada", "state": "open"})
	fmt.Println(run.Result(ctx))
	paid, _ := client.List(ctx, kagzi.RunFilter{Metadata: kagzi.Metadata{"state": "paid"}})
	fmt.Println(len(paid), paid[0].Metadata)
	// Output:
	// for ada <nil>
	// 1 map[customer:ada state:paid]
}

// A child's tags can be those of its parent.
func ExampleInheritMetadata() {
	ctx, _, client, worker := setup()
	defer teardown()

	pack := kagzi.Define[string, string]("pack")
	kagzi.Handle(worker, pack, func(ctx kagzi.Context, _ string) (string, error) {
		return fmt.Sprint(ctx.Metadata()), nil
	})
	ship := kagzi.Define[string, string]("ship")
	kagzi.Handle(worker, ship, func(ctx kagzi.Context, order string) (string, error) {
		return kagzi.RunChild(ctx, "pack", pack, order, kagzi.InheritMetadata(), kagzi.Metadata{"room": "3"})
	})
	serve(ctx, worker)

	run, _ := kagzi.Start(ctx, client, ship, "order-42", kagzi.Metadata{"customer": "ada"})
	fmt.Println(run.Result(ctx))
	// Output: map[customer:ada room:3] <nil>
}
