package request_test

import (
	"errors"
	"fmt"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/request"
)

// Askers and workflows share the request, as they share the workflow.
var Add = request.Define[string, int]("add", func(item string) error {
	if item == "" {
		return errors.New("the item has no name")
	}
	return nil
})

func ExampleAsk() {
	ctx, _, client, worker := setup()
	defer teardown()

	cart := kagzi.Define[struct{}, int]("cart")
	kagzi.Handle(worker, cart, func(ctx kagzi.Context, _ struct{}) (int, error) {
		for items := 1; ; items++ {
			r, err := request.Wait(ctx, Add)
			if err != nil {
				return 0, err
			}
			if r.In == "done" {
				return items, r.Reply(ctx, items)
			}
			if err := r.Reply(ctx, items); err != nil {
				return 0, err
			}
		}
	})
	serve(ctx, worker)

	run, _ := kagzi.Start(ctx, client, cart, struct{}{}, kagzi.ID("cart-7"))
	fmt.Println(request.Ask(ctx, client, kagzi.ID("cart-7"), Add.With("book").WithID("click-1")))
	fmt.Println(request.Ask(ctx, client, kagzi.ID("cart-7"), Add.With("book").WithID("click-1"))) // the first answer
	fmt.Println(request.Ask(ctx, client, kagzi.ID("cart-7"), Add.With("")))
	fmt.Println(request.Ask(ctx, client, run, Add.With("done")))
	_, err := request.Ask(ctx, client, run, Add.With("pen"))
	fmt.Println(errors.Is(err, kagzi.ErrRunFinished))
	// Output:
	// 1 <nil>
	// 1 <nil>
	// 0 kagzi: ask cart-7 for "add": request "add": the item has no name
	// 2 <nil>
	// true
}

// A Call in place of a reference starts the run, unless one of its ID is active. A refusal has a kind and details.
func ExampleReceived_Refuse() {
	ctx, _, client, worker := setup()
	defer teardown()

	seat := request.Define[int, string]("seat")
	show := kagzi.Define[string, string]("show")
	kagzi.Handle(worker, show, func(ctx kagzi.Context, name string) (string, error) {
		r, err := request.Wait(ctx, seat)
		if err != nil {
			return "", err
		}
		soldOut := &request.Refusal{Kind: "sold_out", Message: "no seat is free"}
		return name, r.Refuse(ctx, kind.WithDetails(soldOut, "Friday"))
	})
	serve(ctx, worker)

	_, err := request.Ask(ctx, client, show.With("Faust", kagzi.ID("faust")), seat.With(2))
	refusal, _ := errors.AsType[*request.Refusal](err)
	fmt.Println(errors.Is(err, kind.Kind("sold_out")), refusal.Message)
	next, ok := kind.Details[string](err)
	fmt.Println(next, ok)
	// Output:
	// true no seat is free
	// Friday true
}
