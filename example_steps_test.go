package kagzi_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/kit"
)

// The payloads are most of a long history. A filter leaves them out.
func ExampleStepFilter() {
	ctx, _, client, worker := setup()
	defer teardown()

	report := kagzi.Define[int, int]("report")
	kagzi.Handle(worker, report, func(ctx kagzi.Context, pages int) (int, error) {
		sum := 0
		for n := range pages {
			size, err := kagzi.Step(ctx, fmt.Sprintf("page %d", n+1), func(context.Context) (int, error) {
				return 100 + n, nil
			})
			if err != nil {
				return 0, err
			}
			sum += size
		}
		return sum, nil
	})
	serve(ctx, worker)

	run, _ := kagzi.Start(ctx, client, report, 3)
	_, _ = run.Result(ctx)
	steps, _ := client.Steps(ctx, run, kagzi.StepFilter{NoPayloads: true})
	for _, s := range steps {
		fmt.Println(s.Step, s.Status, len(s.Output))
	}
	steps, _ = client.Steps(ctx, run, kagzi.StepFilter{Steps: []string{"page 2"}})
	for _, s := range steps {
		fmt.Println(s.Step, s.Status, string(s.Output))
	}
	// Output:
	// page 1 COMPLETED 0
	// page 2 COMPLETED 0
	// page 3 COMPLETED 0
	// page 2 COMPLETED 101
}

// The bank has no idempotency keys, and the answer to the call was lost. Nothing calls it again: Reconcile finds the
// refund in the bank's list.
func ExampleAtMostOnce() {
	ctx, _, client, worker := setup()
	defer teardown()

	refund := kagzi.Define[string, string]("refund")
	bank := map[string]string{} // its list of refunds
	kagzi.Handle(worker, refund, func(ctx kagzi.Context, order string) (string, error) {
		return kagzi.Step(ctx, "refund", func(context.Context) (string, error) {
			fmt.Println("calling the bank")
			bank[order] = "refund 77"
			return "", errors.New("connection reset")
		}, kagzi.AtMostOnce(), kagzi.Reconcile(func(context.Context) (string, bool, error) {
			receipt, happened := bank[order]
			return receipt, happened, nil
		}))
	})
	serve(ctx, worker)

	run, _ := kagzi.Start(ctx, client, refund, "order 42")
	fmt.Println(run.Result(ctx))
	// Output:
	// calling the bank
	// refund 77 <nil>
}

// The branches of a run wait for several things. Then one of them wins, and what the other was doing is cancelled.
func ExampleClient_Steps_race() {
	ctx, _, client, worker := setup()
	defer teardown()

	type branches = map[string]func(kagzi.Context) (string, error)
	approval := kagzi.Define[string, string]("approval")
	kagzi.Handle(worker, approval, func(ctx kagzi.Context, what string) (string, error) {
		_, _ = kagzi.WaitSignal(ctx, Approved.For("early"), kagzi.Timeout(time.Millisecond))
		_, by, err := kagzi.Race(ctx, "decision", branches{
			"silence": func(ctx kagzi.Context) (string, error) {
				return "no answer", kagzi.Sleep(ctx, "week", 7*24*time.Hour)
			},
			"person": func(ctx kagzi.Context) (string, error) { return kagzi.WaitSignal(ctx, Approved.For(what)) },
		})
		return by, err
	})
	serve(ctx, worker)

	run, _ := kagzi.Start(ctx, client, approval, "lamp")
	kit.UntilWaitingOn(ctx, client, run, "timer decision/silence/week; signal approved/lamp")
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
	// decision/silence/week CANCELLED
	// decision/person/approved:lamp COMPLETED
}

// A workflow without a result.
func ExampleHandleDo() {
	ctx, _, client, worker := setup()
	defer teardown()

	greet := kagzi.DefineDo[string]("greet")
	kagzi.HandleDo(worker, greet, func(ctx kagzi.Context, name string) error {
		return kagzi.Do(ctx, "say", func(context.Context) error {
			fmt.Println("Hello", name)
			return nil
		})
	})
	serve(ctx, worker)

	run, _ := kagzi.Start(ctx, client, greet, "Ada")
	_, err := run.Result(ctx)
	fmt.Println(err)
	// Output:
	// Hello Ada
	// <nil>
}
