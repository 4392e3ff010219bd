package kagzi_test

import (
	"fmt"
	"strings"
	"time"

	"github.com/kagzi/kagzi"
)

// The branches of a run wait for several things. Then one of them wins, and what the other was doing is cancelled.
func ExampleClient_Steps_race() {
	ctx, _, client, worker := setup()
	defer teardown()

	type branches = map[string]func(kagzi.Context) (string, error)
	approval := kagzi.Define[string, string]("approval")
	kagzi.Handle(worker, approval, func(ctx kagzi.Context, what string) (string, error) {
		_, _ = kagzi.WaitSignal(ctx, Approved.For("early"), kagzi.Timeout(time.Millisecond))
		_, by, err := kagzi.Race(ctx, "decision", branches{
			"nobody": func(ctx kagzi.Context) (string, error) {
				return "nobody", kagzi.Sleep(ctx, "week", 7*24*time.Hour)
			},
			"person": func(ctx kagzi.Context) (string, error) { return kagzi.WaitSignal(ctx, Approved.For(what)) },
		})
		return by, err
	})
	serve(ctx, worker)

	run, _ := kagzi.Start(ctx, client, approval, "lamp")
	waitUntil(ctx, client, run, "timer decision/nobody/week; signal approved/lamp")
	_ = client.Signal(ctx, run, Approved.For("lamp").With("Ada"))
	fmt.Println(run.Result(ctx))
	steps, _ := client.Steps(ctx, run)
	for _, s := range steps {
		fmt.Println(strings.TrimSpace(fmt.Sprint(s.Step, " ", s.Status, " ", s.Kind)))
	}
	// Unordered output:
	// Ada <nil>
	// approved:early FAILED timeout
	// decision COMPLETED
	// decision/nobody/week CANCELLED
	// decision/person/approved:lamp COMPLETED
}
