package value_test

import (
	"errors"
	"fmt"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/value"
)

type OrderState struct {
	Paid    bool
	Parcels int
}

// State says how far an order is. Workflows and their readers import it.
var State = value.Define[OrderState]("state")

// Paid is the signal that an order waits for.
var Paid = kagzi.DefineSignal[string]("paid")

func ExampleSet() {
	ctx, _, client, worker := setup()
	defer teardown()

	order := kagzi.Define[int, string]("order")
	kagzi.Handle(worker, order, func(ctx kagzi.Context, parcels int) (string, error) {
		if err := value.Set(ctx, State, OrderState{Parcels: parcels}); err != nil {
			return "", err
		}
		if _, err := kagzi.WaitSignal(ctx, Paid); err != nil {
			return "", err
		}
		return "sent", value.Set(ctx, State, OrderState{Paid: true, Parcels: parcels})
	})
	serve(ctx, worker)

	run, _ := kagzi.Start(ctx, client, order, 2, kagzi.ID("order-7"))
	first, err := value.Wait(ctx, client, kagzi.ID("order-7"), State, 0)
	fmt.Printf("%+v %v\n", first.Value, err)

	_ = client.Signal(ctx, run, Paid.With("by card"))
	next, err := value.Wait(ctx, client, run, State, first.Version)
	fmt.Printf("%+v %v\n", next.Value, err)

	_, _ = run.Result(ctx)
	last, err := value.Get(ctx, client, run, State) // stays
	fmt.Printf("%+v %v\n", last.Value, err)
	_, err = value.Wait(ctx, client, run, State, last.Version)
	fmt.Println(errors.Is(err, kagzi.ErrRunFinished))
	// Output:
	// {Paid:false Parcels:2} <nil>
	// {Paid:true Parcels:2} <nil>
	// {Paid:true Parcels:2} <nil>
	// true
}
