package admin_test

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/kit"
)

// A message does not decode and is set aside. An operator drops it, and the sender sends the right one with the same
// ID.
func ExampleMessages_Drop() {
	ctx, _, client, worker := setup()
	defer teardown()

	expense := kagzi.Define[int, string]("expense")
	kagzi.Handle(worker, expense, func(ctx kagzi.Context, euros int) (string, error) {
		return kagzi.WaitSignal(ctx, Approved)
	})
	serve(ctx, worker)

	run, _ := kagzi.Start(ctx, client, expense, 120)
	wrong := kagzi.DefineSignal[json.RawMessage]("approved").With(json.RawMessage(`{"by": "Ada"}`))
	_ = client.Signal(ctx, run, wrong.WithID("click-1"))
	kit.UntilWaitingOn(ctx, client, run, "signal approved; 1 message that does not decode")

	unread, _ := admin.New(client).Messages.List(ctx, run, admin.MessageFilter{Unread: true})
	why, detail, _ := strings.Cut(unread[0].SetAside, ": ")
	fmt.Println(unread[0].ID, "was set aside:", why)
	fmt.Println(detail)
	_ = admin.New(client).Messages.Drop(ctx, run, "click-1", kagzi.Actor("ops"), kagzi.Reason("wrong form"))
	_ = client.Signal(ctx, run, Approved.With("Ada").WithID("click-1"))
	fmt.Println(run.Result(ctx))
	// Output:
	// click-1 was set aside: it does not decode into string, the type that the program has for the signal
	// json: cannot unmarshal object into Go value of type string
	// Ada <nil>
}

// After a deploy of code that decodes it, a message that was set aside is given to its run again.
func ExampleMessages_Redeliver() {
	ctx, _, client, worker := setup()
	defer teardown()

	expense := kagzi.Define[int, int]("expense")
	newer := kagzi.DefineSignal[json.Number]("approved")
	var deployed bool // in a program, another version of the code
	kagzi.Handle(worker, expense, func(ctx kagzi.Context, euros int) (int, error) {
		if !deployed {
			_, err := kagzi.WaitSignal(ctx, Approved)
			return 0, err
		}
		n, err := kagzi.WaitSignal(ctx, newer)
		euro, _ := n.Int64()
		return int(euro), err
	})
	serve(ctx, worker)

	run, _ := kagzi.Start(ctx, client, expense, 120)
	_ = client.Signal(ctx, run, newer.With("100").WithID("click-1"))
	kit.UntilWaitingOn(ctx, client, run, "signal approved; 1 message that does not decode")

	deployed = true
	_ = admin.New(client).Messages.Redeliver(ctx, run, "click-1", kagzi.Reason("release 7 reads it"))
	fmt.Println(run.Result(ctx))
	// Output: 100 <nil>
}
