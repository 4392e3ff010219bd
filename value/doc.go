// Package value has values that a run sets while it works, and that every program can read and wait for, as with a
// query of Temporal. What only people read is [kagzi.SetProgress].
//
//	var State = value.Define[OrderState]("state")
//
//	err := value.Set(ctx, State, OrderState{Paid: true}) // the workflow of an order
//
//	now, err := value.Get(ctx, client, kagzi.ID("order-7"), State) // a service
//	next, err := value.Wait(ctx, client, kagzi.ID("order-7"), State, now.Version)
//
// [Define] names a value and its type. [Set] sets it in a workflow. [Get] reads it, and [Wait] waits for the next
// version. See docs/values.md.
package value
