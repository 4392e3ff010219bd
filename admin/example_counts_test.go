package admin_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/kind"
)

// The kinds of errors of the example: the bank did not answer, or refused the card.
const cardDeclined kind.Kind = "card_declined"

// payments is a workflow whose step "pay" fails as bank says. One without an amount fails outside of steps.
func payments(worker *kagzi.Worker, bank func(amount int) error) kagzi.Workflow[int, int] {
	payment := kagzi.Define[int, int]("payment")
	kagzi.Handle(worker, payment, func(ctx kagzi.Context, amount int) (int, error) {
		if amount == 0 {
			return 0, kagzi.Permanent(errors.New("no amount"))
		}
		return kagzi.Step(ctx, "pay", func(context.Context) (int, error) {
			return amount, bank(amount)
		}, kagzi.RetryPolicy{MaxAttempts: 1})
	})
	return payment
}

// Which kinds of failures there were in the last hour, and at which step.
func ExampleRuns_Count() {
	ctx, _, client, worker := setup()
	defer teardown()

	payment := payments(worker, func(amount int) error {
		if amount > 100 {
			return fmt.Errorf("%w: %d is too much", cardDeclined, amount)
		}
		return kind.Unavailable
	})
	serve(ctx, worker)
	for _, amount := range []int{10, 20, 30, 1000, 2000, 0} {
		run, _ := kagzi.Start(ctx, client, payment, amount)
		_, _ = run.Result(ctx)
	}

	failed := kagzi.RunFilter{Status: []kagzi.Status{kagzi.StatusFailed}, EndedSince: time.Now().Add(-time.Hour)}
	counts, err := admin.New(client).Runs.Count(ctx, failed, admin.ByKind, admin.ByStep)
	for _, c := range counts {
		fmt.Printf("%d %s at %q\n", c.Runs, c.Kind, c.Step)
	}
	fmt.Println(err)
	// Output:
	// 3 unavailable at "pay"
	// 2 card_declined at "pay"
	// 1 unknown at ""
	// <nil>
}

// The bank is up again: the payments that could not reach it are resumed, and those that it refused stay failed.
func ExampleRuns_ResumeAll_kind() {
	ctx, _, client, worker := setup()
	defer teardown()

	up := false
	payment := payments(worker, func(amount int) error {
		switch {
		case amount > 100:
			return cardDeclined
		case !up:
			return kind.Unavailable
		}
		return nil
	})
	serve(ctx, worker)
	for _, amount := range []int{10, 1000, 20} {
		run, _ := kagzi.Start(ctx, client, payment, amount)
		_, _ = run.Result(ctx)
	}

	up = true
	bulk, err := admin.New(client).Runs.ResumeAll(ctx, kagzi.RunFilter{Workflow: "payment", Kind: kind.Unavailable})
	fmt.Println(len(bulk.Changed), err)
	for _, id := range bulk.Changed {
		run, _ := kagzi.Find(ctx, client, payment, id)
		fmt.Println(run.Result(ctx))
	}
	counts, _ := admin.New(client).Runs.Count(ctx, kagzi.RunFilter{}, admin.ByStatus, admin.ByKind)
	for _, c := range counts {
		fmt.Printf("%d %s %q\n", c.Runs, c.Status, c.Kind)
	}
	// Output:
	// 2 <nil>
	// 20 <nil>
	// 10 <nil>
	// 2 COMPLETED ""
	// 1 FAILED "card_declined"
}
