// Package request has messages that a run answers, the updates of other libraries: a program asks, and gets the answer
// that the run has recorded. A message without an answer is a kagzi.Signal.
//
//	var Add = request.Define[Item, Total]("add")
//
//	total, err := request.Ask(ctx, client, kagzi.ID("cart-7"), Add.With(item).WithID("click-7")) // a service
//
//	r, err := request.Wait(ctx, Add) // the workflow of the cart
//	err = r.Reply(ctx, total)
//
// [Define] names a request and its types. [Ask] sends a question and waits for its answer, and [Send] only sends it. In
// a workflow, [Wait] reads a request, which [Received.Reply] or [Received.Refuse] answers, and [AskStep] asks another
// run. See docs/requests.md.
package request
