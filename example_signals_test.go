package kagzi_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kagzi/kagzi"
)

// Senders and workflows share the signal, as they share the workflow.
var Approved = kagzi.DefineSignal[string]("approved")

func ExampleWaitSignal() {
	ctx, _, client, worker := setup()
	defer teardown()

	expense := kagzi.Define[int, string]("expense")
	kagzi.Handle(worker, expense, func(ctx kagzi.Context, euros int) (string, error) {
		who, err := kagzi.WaitSignal(ctx, Approved, kagzi.Timeout(7*24*time.Hour))
		if errors.Is(err, kagzi.ErrNoMessage) {
			return "no answer", nil
		}
		return fmt.Sprintf("%d euros, approved by %s", euros, who), err
	})
	serve(ctx, worker)

	run, _ := kagzi.Start(ctx, client, expense, 120, kagzi.ID("expense-7"))
	fmt.Println(client.Signal(ctx, kagzi.ID("expense-7"), Approved.With("Ada"))) // or run.ID()
	fmt.Println(run.Result(ctx))
	// Output:
	// <nil>
	// 120 euros, approved by Ada <nil>
}

// A timeout of the wait is recorded, too.
func ExampleWaitSignal_timeout() {
	ctx, _, client, worker := setup()
	defer teardown()

	expense := kagzi.Define[int, string]("expense")
	kagzi.Handle(worker, expense, func(ctx kagzi.Context, _ int) (string, error) {
		who, err := kagzi.WaitSignal(ctx, Approved, kagzi.Timeout(50*time.Millisecond))
		if errors.Is(err, kagzi.ErrNoMessage) {
			return "no answer", nil
		}
		return who, err
	})
	serve(ctx, worker)

	run, _ := kagzi.Start(ctx, client, expense, 120)
	fmt.Println(run.Result(ctx))
	// Output: no answer <nil>
}

// A key says what a signal is about: the approval of another call is not read, nor is one that comes too late.
func ExampleSignal_For() {
	ctx, _, client, worker := setup()
	defer teardown()

	agent := kagzi.Define[[]string, []string]("agent")
	kagzi.Handle(worker, agent, func(ctx kagzi.Context, calls []string) ([]string, error) {
		var said []string
		for _, call := range calls {
			who, err := kagzi.WaitSignal(ctx, Approved.For(call))
			if err != nil {
				return nil, err
			}
			said = append(said, call+" by "+who)
		}
		return said, nil
	})
	serve(ctx, worker)

	run, _ := kagzi.Start(ctx, client, agent, []string{"call-7", "call-8"})
	fmt.Println(client.Signal(ctx, run.ID(), Approved.For("call-8").With("Bob")))
	// Given an ID, a message that is sent again, because an answer was lost for one, is stored once.
	for range 2 {
		fmt.Println(client.Signal(ctx, run.ID(), Approved.For("call-7").With("Ada").WithID("click-1")))
	}
	fmt.Println(run.Result(ctx))
	// Output:
	// <nil>
	// <nil>
	// <nil>
	// [call-7 by Ada call-8 by Bob] <nil>
}

// Start the run with the message, or signal the one that is active: in one transaction.
func ExampleSignal_With() {
	ctx, _, client, worker := setup()
	defer teardown()

	item := kagzi.DefineSignal[string]("item")
	cart := kagzi.Define[string, []string]("cart")
	kagzi.Handle(worker, cart, func(ctx kagzi.Context, user string) ([]string, error) {
		var items []string
		for len(items) < 2 {
			name, err := kagzi.WaitSignal(ctx, item)
			if err != nil {
				return nil, err
			}
			items = append(items, name)
		}
		return items, nil
	})
	serve(ctx, worker)

	first, _ := kagzi.Start(ctx, client, cart, "ada", kagzi.ID("cart-ada"), item.With("lamp"))
	second, _ := kagzi.Start(ctx, client, cart, "ada", kagzi.ID("cart-ada"), item.With("bulb"))
	fmt.Println(first.Existed(), second.Existed())
	fmt.Println(second.Result(ctx))
	// Output:
	// false true
	// [lamp bulb] <nil>
}

// A start that is repeated outside of a step sends a message that has an ID once.
func ExampleMessage_WithID() {
	ctx, _, client, worker := setup()
	defer teardown()

	item := kagzi.DefineSignal[string]("item")
	cart := kagzi.Define[string, []string]("cart")
	kagzi.Handle(worker, cart, func(ctx kagzi.Context, user string) (items []string, err error) {
		if err := kagzi.Sleep(ctx, "shop", 50*time.Millisecond); err != nil {
			return nil, err
		}
		for { // reads the signals that have come
			name, err := kagzi.WaitSignal(ctx, item, kagzi.Timeout(time.Microsecond))
			if errors.Is(err, kagzi.ErrNoMessage) {
				return items, nil
			}
			if err != nil {
				return nil, err
			}
			items = append(items, name)
		}
	})

	for range 2 { // the first answer was lost
		_, err := kagzi.Start(ctx, client, cart, "ada", kagzi.ID("cart-ada"), item.With("lamp").WithID("click-7"))
		fmt.Println(err)
	}
	serve(ctx, worker)
	run, _ := kagzi.Find(ctx, client, cart, kagzi.ID("cart-ada"))
	fmt.Println(run.Result(ctx))
	// Output:
	// <nil>
	// <nil>
	// [lamp] <nil>
}

// Whichever comes first. The other message is not read: it is there for a later WaitSignal.
func ExampleRace_signals() {
	ctx, _, client, worker := setup()
	defer teardown()

	paid, cancelled := kagzi.DefineSignal[string]("paid"), kagzi.DefineSignal[string]("cancelled")
	order := kagzi.Define[string, string]("order")
	kagzi.Handle(worker, order, func(ctx kagzi.Context, product string) (string, error) {
		winner, text, err := kagzi.Race(ctx, "answer", map[string]func(kagzi.Context) (string, error){
			"paid":      func(ctx kagzi.Context) (string, error) { return kagzi.WaitSignal(ctx, paid) },
			"cancelled": func(ctx kagzi.Context) (string, error) { return kagzi.WaitSignal(ctx, cancelled) },
			"forgotten": func(ctx kagzi.Context) (string, error) {
				return "for a day", kagzi.Sleep(ctx, "day", 24*time.Hour)
			},
		})
		return product + ": " + winner + " " + text, err
	})
	serve(ctx, worker)

	run, _ := kagzi.Start(ctx, client, order, "lamp")
	_ = client.Signal(ctx, run.ID(), cancelled.With("too dear"))
	fmt.Println(run.Result(ctx))
	// Output: lamp: cancelled too dear <nil>
}

// Sent in a step, a message is stored once, however often the step is executed.
func ExampleClient_Signal() {
	ctx, _, client, worker := setup()
	defer teardown()

	asking := kagzi.Define[string, string]("asking")
	kagzi.Handle(worker, asking, func(ctx kagzi.Context, _ string) (string, error) {
		return kagzi.WaitSignal(ctx, Approved)
	})
	approving := kagzi.Define[kagzi.ID, bool]("approving")
	kagzi.Handle(worker, approving, func(ctx kagzi.Context, who kagzi.ID) (bool, error) {
		return true, kagzi.Do(ctx, "approve", func(ctx context.Context) error {
			return client.Signal(ctx, who, Approved.With("yes"))
		})
	})
	serve(ctx, worker)

	run, _ := kagzi.Start(ctx, client, asking, "may I?", kagzi.ID("asking-1"))
	_, _ = kagzi.Start(ctx, client, approving, kagzi.ID("asking-1"))
	fmt.Println(run.Result(ctx))
	// Output: yes <nil>
}
