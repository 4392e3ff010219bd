package admin_test

import (
	"fmt"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/kit"
)

// A run waits although a program sent it a message: its unread messages show the misspelt name.
func ExampleMessages_List() {
	ctx, _, client, worker := setup()
	defer teardown()

	expense := kagzi.Define[int, string]("expense")
	kagzi.Handle(worker, expense, func(ctx kagzi.Context, euros int) (string, error) {
		if _, err := kagzi.WaitSignal(ctx, Approved.For("manager")); err != nil {
			return "", err
		}
		return kagzi.WaitSignal(ctx, Approved.For("accounting"))
	})
	serve(ctx, worker)

	run, _ := kagzi.Start(ctx, client, expense, 120, kagzi.ID("expense-7"))
	_ = client.Signal(ctx, run.ID(), Approved.For("manager").With("Ada").WithID("click-1"))
	_ = client.Signal(ctx, run.ID(), Approved.For("acounting").With("Bob").WithID("click-2").
		WithHeaders(kagzi.Headers{"user": "bob"}))
	kit.UntilWaitingOn(ctx, client, run.ID(), "signal approved/accounting")

	messages, _ := admin.New(client).Messages.List(ctx, kagzi.ID("expense-7"), admin.MessageFilter{})
	for _, m := range messages {
		read := "unread"
		if m.ReadBy != "" {
			read = "read by step " + m.ReadBy
		}
		fmt.Println(m.Signal, m.ID, string(m.Payload), m.Headers, read)
	}
	info, _ := client.Get(ctx, run)
	unread, _ := admin.New(client).Messages.List(ctx, run, admin.MessageFilter{Unread: true})
	fmt.Println("it waits for", info.WaitingOn, "and has not read", unread[0].Signal)
	// Output:
	// approved/acounting click-2 "Bob" map[user:bob] unread
	// approved/manager click-1 "Ada" map[] read by step approved:manager
	// it waits for signal approved/accounting and has not read approved/acounting
}
