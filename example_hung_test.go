package kagzi_test

import (
	"context"
	"fmt"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/health"
)

// A step that does not pass its ctx on goes on after its Timeout. The worker logs the stack, and every process sees
// what hangs.
func ExampleHungCode() {
	ctx, _, client, _ := setup()
	defer teardown()
	worker, err := kagzi.NewWorker(client, kagzi.WorkerConfig{HungAfter: 50 * time.Millisecond})
	if err != nil {
		fmt.Println(err)
		return
	}

	answer := make(chan string)
	order := kagzi.Define[int, string]("order")
	kagzi.Handle(worker, order, func(ctx kagzi.Context, n int) (string, error) {
		return kagzi.Step(ctx, "charge", func(context.Context) (string, error) {
			return <-answer, nil // as a call that knows no ctx
		}, kagzi.Timeout(100*time.Millisecond), kagzi.RetryPolicy{MaxAttempts: 1})
	})
	serve(ctx, worker)

	run, _ := kagzi.Start(ctx, client, order, 42)
	var info kagzi.RunInfo
	for len(info.Hung) == 0 {
		info, _ = client.Get(ctx, run)
	}
	fmt.Println(info.Status, info.Hung[0].Step, "hangs:", info.Hung[0].Cause)
	report, _ := admin.New(client).Health(ctx)
	fmt.Println(report.Check("hung").Status == health.Degraded, report.Workers.Hung, "slot")

	answer <- "paid, but too late"
	_, err = run.Result(ctx)
	fmt.Println(kagzi.KindOf(err))
	// Output:
	// RUNNING charge hangs: step timed out after 100ms
	// true 1 slot
	// timeout
}
