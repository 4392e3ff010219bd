package admin_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/kit"
)

// A compensation is a workflow of its own, with an input of its own.
var cancelBooking = kagzi.Define[string, struct{}]("cancel-booking", kagzi.RetryPolicy{MaxAttempts: 10})

func handleCancelBooking(worker *kagzi.Worker) {
	kagzi.Handle(worker, cancelBooking, func(ctx kagzi.Context, booking string) (struct{}, error) {
		return struct{}{}, kagzi.Do(ctx, "cancel", func(ctx context.Context) error {
			fmt.Println("cancel", booking)
			return nil
		})
	})
}

// A fork compensates its own steps. It compensates steps copied from the old run only with InheritCompensations.
func ExampleInheritCompensations() {
	ctx, _, client, worker := setup()
	defer teardown()

	trip := kagzi.Define[string, string]("trip")
	var soldOut atomic.Bool
	kagzi.Handle(worker, trip, func(ctx kagzi.Context, city string) (string, error) {
		for _, what := range []string{"flight", "hotel"} {
			kagzi.Compensate(ctx, what, cancelBooking.With("the "+what+" to "+city))
			if err := kagzi.Do(ctx, what, func(ctx context.Context) error { return nil }); err != nil {
				return "", err
			}
		}
		return city, kagzi.Do(ctx, "show", func(ctx context.Context) error {
			if soldOut.Load() {
				return kagzi.Permanent(errors.New("the show is sold out"))
			}
			return nil
		})
	})
	handleCancelBooking(worker)
	serve(ctx, worker)

	run, err := kagzi.Start(ctx, client, trip, "Oslo")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(run.Result(ctx))
	soldOut.Store(true)
	for _, opts := range [][]admin.RestartOption{nil, {admin.InheritCompensations()}} {
		id, err := admin.New(client).Runs.Fork(ctx, run.ID(), "hotel", opts...)
		if err != nil {
			fmt.Println(err)
			return
		}
		fork, err := kagzi.Find(ctx, client, trip, id)
		if err != nil {
			fmt.Println(err)
			return
		}
		_, err = fork.Result(ctx)
		fmt.Println(kagzi.KindOf(err))
	}
	// Output:
	// Oslo <nil>
	// cancel the hotel to Oslo
	// unknown
	// cancel the hotel to Oslo
	// cancel the flight to Oslo
	// unknown
}

// Terminate ends a run at once, and runs no compensation.
func ExampleRuns_Terminate() {
	ctx, _, client, worker := setup()
	defer teardown()

	trial := kagzi.Define[string, string]("trial")
	kagzi.Handle(worker, trial, func(ctx kagzi.Context, customer string) (string, error) {
		kagzi.Compensate(ctx, "account", cancelBooking.With("the account of "+customer))
		return "", kagzi.Sleep(ctx, "month", 30*24*time.Hour)
	})
	serve(ctx, worker)

	run, err := kagzi.Start(ctx, client, trial, "ada")
	if err != nil {
		fmt.Println(err)
		return
	}
	kit.UntilAsleep(ctx, run)
	fmt.Println(admin.New(client).Runs.Terminate(ctx, run.ID(), kagzi.Reason("the account is needed")))
	info, _ := run.Info(ctx)
	fmt.Println(info.Status, info.Error)
	// Output:
	// <nil>
	// CANCELLED run was terminated: the account is needed
}
