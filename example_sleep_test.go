package kagzi_test

import (
	"fmt"
	"time"

	"github.com/kagzi/kagzi"
)

// While it sleeps, a run is a row in Postgres and nothing else.
func ExampleSleep() {
	ctx, _, client, worker := setup()
	defer teardown()

	trial := kagzi.Define[string, string]("trial")
	kagzi.Handle(worker, trial, func(ctx kagzi.Context, user string) (string, error) {
		if err := kagzi.Sleep(ctx, "trial-period", 300*time.Millisecond); err != nil { // 30*24*time.Hour
			return "", err
		}
		return "the trial of " + user + " is over", nil
	})
	serve(ctx, worker)

	run, _ := kagzi.Start(ctx, client, trial, "Ada")
	fmt.Println(run.Result(ctx))
	// Output: the trial of Ada is over <nil>
}

func ExampleSleepUntil() {
	ctx, _, client, worker := setup()
	defer teardown()

	remind := kagzi.Define[time.Time, bool]("remind")
	kagzi.Handle(worker, remind, func(ctx kagzi.Context, at time.Time) (bool, error) {
		err := kagzi.SleepUntil(ctx, "appointment", at)
		return !ctx.Now().Before(at), err // Now follows the database's clock, and is the same in a replay
	})
	serve(ctx, worker)

	run, _ := kagzi.Start(ctx, client, remind, time.Now().Add(250*time.Millisecond))
	fmt.Println(run.Result(ctx))
	// Output: true <nil>
}
