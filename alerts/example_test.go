package alerts_test

import (
	"context"
	"fmt"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/alerts"
	"github.com/kagzi/kagzi/health"
	"github.com/kagzi/kagzi/internal/kit"
)

// A queue is paused for longer than half a second, and goes on. In production For is a minute.
func ExampleRun() {
	var stage kit.Stage
	ctx, _, client, _ := stage.Setup()
	defer stage.Teardown()

	sent := make(chan alerts.Alert)
	ctx, stop := context.WithCancel(ctx)
	stopped := make(chan error)
	go func() {
		stopped <- alerts.Run(ctx, client, alerts.Config{
			Notifiers: map[string]alerts.Notifier{
				"log": alerts.Slog{},
				"print": alerts.Func(func(_ context.Context, a alerts.Alert) error {
					sent <- a
					return nil
				}),
				"pager": alerts.Only(health.Unhealthy, alerts.PagerDuty{RoutingKey: "R0123"}),
			},
			Every: 100 * time.Millisecond,
			For:   500 * time.Millisecond,
			Runs:  true,
		})
	}()

	operator := admin.New(client)
	_ = operator.Pauses.Set(ctx, admin.Target{Queue: "mail"}, kagzi.Reason("migration"))
	a := <-sent
	fmt.Println(a.ID, a.Title)
	_ = operator.Pauses.End(ctx, admin.Target{Queue: "mail"})
	a = <-sent
	fmt.Println(a.ID, a.Title)

	stop()
	fmt.Println(<-stopped)
	// Output:
	// default/pauses/degraded Check pauses: degraded
	// default/pauses/degraded Check pauses: no longer degraded
	// <nil>
}
