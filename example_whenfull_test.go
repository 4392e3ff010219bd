package kagzi_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
)

// While a search of ada's runs or waits, another one is refused, or takes its place.
func ExampleWhenFull() {
	ctx, _, client, _ := setup()
	defer teardown()
	_ = admin.New(client).Queues.Set(ctx, admin.QueueLimits{Queue: "default", EachKey: admin.KeyLimits{MaxRunning: 1}})

	search := kagzi.Define[string, string]("search")
	first, _ := kagzi.Start(ctx, client, search, "durable", kagzi.Key("ada"), kagzi.RejectNew)
	_, err := kagzi.Start(ctx, client, search, "durable workflows", kagzi.Key("ada"), kagzi.RejectNew)
	fmt.Println(errors.Is(err, kagzi.ErrKeyFull))

	_, err = kagzi.Start(ctx, client, search, "durable workflows", kagzi.Key("ada"), kagzi.CancelOldest)
	info, _ := client.Get(ctx, first.ID())
	fmt.Println(err, info.Status)
	// Output:
	// true
	// <nil> CANCELLED
}

// A deploy takes the place of the one before, which first takes back what it has done.
func ExampleWhenFull_cancelOldest() {
	ctx, _, client, worker := setup()
	defer teardown()
	_ = admin.New(client).Queues.Set(ctx, admin.QueueLimits{
		Queue: "default", EachKey: admin.KeyLimits{MaxRunning: 1},
		Hold: true,
	})

	release := kagzi.Define[string, struct{}]("release")
	kagzi.Handle(worker, release, func(_ kagzi.Context, what string) (struct{}, error) {
		fmt.Println("released", what)
		return struct{}{}, nil
	})
	begun := make(chan string, 2)
	deploy := kagzi.Define[string, string]("deploy", kagzi.CancelOldest)
	kagzi.Handle(worker, deploy, func(ctx kagzi.Context, version string) (string, error) {
		kagzi.Compensate(ctx, "reserve", release.With("the machines of "+version))
		err := kagzi.Do(ctx, "reserve", func(context.Context) error { begun <- version; return nil })
		if err == nil && version == "v1" {
			err = kagzi.Sleep(ctx, "watch", 24*time.Hour)
		}
		return version + " is live", err
	})
	serve(ctx, worker)

	first, _ := kagzi.Start(ctx, client, deploy, "v1", kagzi.Key("shop"))
	fmt.Println(<-begun, "has begun")
	second, _ := kagzi.Start(ctx, client, deploy, "v2", kagzi.Key("shop"))
	fmt.Println(second.Result(ctx))
	info, _ := client.Get(ctx, first.ID())
	fmt.Println(info.Status)
	// Output:
	// v1 has begun
	// released the machines of v1
	// v2 is live <nil>
	// CANCELLED
}
