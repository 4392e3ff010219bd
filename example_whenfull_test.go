package kagzi_test

import (
	"errors"
	"fmt"

	"github.com/kagzi/kagzi"
)

// While a search of ada's runs or waits, another one is refused, or takes its place.
func ExampleWhenFull() {
	ctx, _, client, _ := setup()
	defer teardown()
	_ = client.SetQueue(ctx, kagzi.QueueLimits{Queue: "default", EachKey: kagzi.KeyLimits{MaxRunning: 1}})

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
