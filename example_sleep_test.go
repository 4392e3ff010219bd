package kagzi_test

import (
	"context"
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

// A subscription lives for years. Each month is an epoch of its run, with a history of its own.
func ExampleContinue() {
	ctx, _, client, worker := setup()
	defer teardown()

	type plan struct{ Months, Paid int }
	subscription := kagzi.Define[plan, string]("subscription")
	kagzi.Handle(worker, subscription, func(ctx kagzi.Context, p plan) (string, error) {
		if p.Months == 3 {
			return fmt.Sprintf("paid %d in %d months", p.Paid, p.Months), nil
		}
		if err := kagzi.Sleep(ctx, "month", 10*time.Millisecond); err != nil { // 30*24*time.Hour
			return "", err
		}
		err := kagzi.Do(ctx, "charge", func(ctx context.Context) error {
			// the payment service takes the Key for the month's payment: it is another one in each epoch
			return nil
		})
		if err != nil {
			return "", err
		}
		return "", kagzi.Continue(ctx, plan{p.Months + 1, p.Paid + 5})
	})
	serve(ctx, worker)

	run, _ := kagzi.Start(ctx, client, subscription, plan{}, kagzi.ID("subscription-7"))
	fmt.Println(run.Result(ctx))
	info, _ := client.Get(ctx, run)
	fmt.Println("continued", info.Epoch, "times")
	// Output:
	// paid 15 in 3 months <nil>
	// continued 3 times
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
