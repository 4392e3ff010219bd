package admin_test

import (
	"context"
	"fmt"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/kind"
)

// What has failed today, and how often? Failures of one cause are one group, whatever the numbers in their texts.
func ExampleClient_Failures() {
	ctx, _, client, worker := setup()
	defer teardown()

	order := kagzi.Define[int, string]("order")
	kagzi.Handle(worker, order, func(ctx kagzi.Context, n int) (string, error) {
		return kagzi.Step(ctx, "charge", func(context.Context) (string, error) {
			return "", fmt.Errorf("card %d was declined: %w", 4000+n, kind.BadRequest)
		})
	})
	serve(ctx, worker)
	for n := range 3 {
		run, _ := kagzi.Start(ctx, client, order, n)
		_, _ = run.Result(ctx)
	}

	groups, err := admin.New(client).Failures(ctx, 24*time.Hour)
	for _, g := range groups {
		fmt.Println(g.Runs, g.Workflow, g.Step, g.Kind, g.Text, err)
	}
	// Output:
	// 3 order charge bad_request card # was declined <nil>
}
