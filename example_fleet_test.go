package kagzi_test

import (
	"context"
	"fmt"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
)

// waitFor returns when n workers are online.
func waitFor(ctx context.Context, client *kagzi.Client, n int) {
	for ctx.Err() == nil {
		if _, total, _ := admin.New(client).Workers(ctx, admin.WorkerFilter{Status: []string{"ONLINE"}}); total == n {
			return
		}
	}
}

// A fleet that starts slowly, or whose network stalls, may give its workers more time to reconnect.
func ExampleCoordinatorConfig() {
	_, _, client, _ := setup()
	defer teardown()

	coordinator := kagzi.CoordinatorConfig{Grace: 10 * time.Second}
	_, err := kagzi.NewWorker(client, kagzi.WorkerConfig{Coordinator: coordinator})
	fmt.Println(err)
	// Output: <nil>
}
