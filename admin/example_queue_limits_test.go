package admin_test

import (
	"fmt"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
)

func ExampleQueues_Set() {
	ctx, _, client, _ := setup()
	defer teardown()

	err := admin.New(client).Queues.Set(ctx, admin.QueueLimits{
		Queue:      "shop",
		MaxRunning: 50,
		Rate:       admin.Rate{Starts: 100, Per: time.Second, Burst: 10},
		EachKey:    admin.KeyLimits{MaxRunning: 5},
	})
	fmt.Println(err)
	queues, _ := admin.New(client).Queues.List(ctx)
	for _, q := range queues {
		fmt.Println(q.Queue, "has", q.MaxRunning, "slots,", q.EachKey.MaxRunning, "for each key;", q.Running,
			"are taken")
	}
	// Output:
	// <nil>
	// shop has 50 slots, 5 for each key; 0 are taken
}

func ExampleKeys_Set() {
	ctx, _, client, _ := setup()
	defer teardown()

	// A tenant that pays for more gets more slots, and three turns where others get one.
	fmt.Println(admin.New(client).Keys.Set(ctx, "shop", "tenant-7", admin.KeyLimits{MaxRunning: 20, Weight: 3}))
	_, _ = kagzi.Start(ctx, client, kagzi.Define[int, int]("order"), 1, kagzi.Queue("shop"), kagzi.Key("tenant-7"))

	keys, err := admin.New(client).Keys.List(ctx, admin.KeyFilter{Queue: "shop"})
	fmt.Println(err)
	for _, k := range keys {
		fmt.Println(k.Key, "may have", k.Limits.MaxRunning, "slots:", k.Running, "running,", k.Waiting, "waiting")
	}
	// Output:
	// <nil>
	// <nil>
	// tenant-7 may have 20 slots: 0 running, 1 waiting
}
