package kagzi_test

import (
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/kagzi/kagzi"
)

// How long runs are kept once they are over. Each worker hosts a coordinator; give all of a namespace the same.
func ExampleCoordinatorConfig_retention() {
	const day = 24 * time.Hour
	_, pool, _, _ := setup()
	defer teardown()

	client, _ := kagzi.NewClient(pool, kagzi.ClientConfig{Logger: slog.New(slog.DiscardHandler)})
	retention := kagzi.CoordinatorConfig{
		KeepCompleted: 2 * day,
		KeepFailed:    60 * day, // and cancelled
		Keep:          map[string]time.Duration{"audit": 10 * 365 * day, "ping": time.Hour},
	}
	_, err := kagzi.NewWorker(client, kagzi.WorkerConfig{Queue: "shop", Coordinator: retention})
	fmt.Println(err)

	_, err = kagzi.NewCoordinator(client, kagzi.CoordinatorConfig{KeepCompleted: 30})
	wrong, advice, _ := strings.Cut(err.Error(), ": give ")
	fmt.Println(wrong)
	fmt.Println("give", advice)
	// Output:
	// <nil>
	// kagzi: KeepCompleted is 30ns
	// give at least 1s (a time.Duration counts nanoseconds: 7*24*time.Hour), or set KeepForever
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
