package topic_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/topic"
)

type Payment struct{ Amount int }

// Paid has an event for each order that was paid, under the order's ID.
var Paid = topic.Define[Payment]("order.paid")

// An order waits for its payment. A program that knows nothing of the workflow publishes it.
func ExampleWaitEvent() {
	ctx, _, client, worker := setup()
	defer teardown()

	order := kagzi.Define[kagzi.ID, string]("order")
	kagzi.Handle(worker, order, func(ctx kagzi.Context, id kagzi.ID) (string, error) {
		paid, err := topic.WaitEvent(ctx, "paid", Paid, id, kagzi.Timeout(14*24*time.Hour))
		if errors.Is(err, kagzi.ErrNoMessage) {
			return "cancelled: not paid within two weeks", nil
		}
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("%s was paid with %d", id, paid.Payload.Amount), nil
	})
	serve(ctx, worker)

	run, err := kagzi.Start(ctx, client, order, "order-7")
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := topic.New(client).Publish(ctx, Paid.With(Payment{40}).WithID("order-7")); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(run.Result(ctx))
	// Output:
	// order-7 was paid with 40 <nil>
}

// A program waits for an event that was published, or will be.
func ExampleAwait() {
	ctx, _, client, _ := setup()
	defer teardown()

	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	go func() {
		if err := topic.New(client).Publish(ctx, Paid.With(Payment{40}).WithID("order-7")); err != nil {
			fmt.Println(err)
		}
	}()
	paid, err := topic.Await(ctx, client, Paid, "order-7")
	fmt.Println(paid.ID, paid.Payload.Amount, err)
	// Output:
	// order-7 40 <nil>
}

// A program reads a topic for as long as it runs.
func ExampleFollow() {
	ctx, _, client, _ := setup()
	defer teardown()

	go func() {
		for i := range 3 {
			if err := topic.New(client).Publish(ctx, Paid.With(Payment{i})); err != nil {
				fmt.Println(err)
			}
		}
	}()
	for paid, err := range topic.Follow(ctx, client, Paid, 0) {
		fmt.Println(paid.Payload.Amount, err)
		if paid.Payload.Amount == 2 {
			break
		}
	}
	// Output:
	// 0 <nil>
	// 1 <nil>
	// 2 <nil>
}

// Each payment starts a run that ships the order.
func ExampleStartOn() {
	ctx, _, client, worker := setup()
	defer teardown()

	ship := kagzi.Define[Payment, string]("ship")
	shipped := make(chan string)
	kagzi.Handle(worker, ship, func(ctx kagzi.Context, paid Payment) (string, error) {
		return "", kagzi.Do(ctx, "ship", func(context.Context) error {
			shipped <- fmt.Sprint("shipped for ", paid.Amount)
			return nil
		})
	})
	shipper := topic.DefineConsumer("shipper", topic.ConsumerConfig{Topics: []topic.AnyTopic{Paid}})
	topic.StartOn(worker, shipper, Paid, ship)
	serve(ctx, worker)

	for _, order := range []kagzi.ID{"order-7", "order-7", "order-8"} { // the first is published twice, and counts once
		if err := topic.New(client).Publish(ctx, Paid.With(Payment{len(order)}).WithID(order)); err != nil {
			fmt.Println(err)
			return
		}
	}
	fmt.Println(<-shipped)
	fmt.Println(<-shipped)
	// Output:
	// shipped for 7
	// shipped for 7
}
