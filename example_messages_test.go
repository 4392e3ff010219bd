package kagzi_test

import (
	"context"
	"time"

	"github.com/kagzi/kagzi"
)

// waitUntil waits until the run sleeps and waits for on.
func waitUntil(ctx context.Context, client *kagzi.Client, run kagzi.Ref, on string) {
	for info, err := client.Get(ctx, run); err == nil && info.WaitingOn != on; info, err = client.Get(ctx, run) {
		time.Sleep(time.Millisecond)
	}
}
