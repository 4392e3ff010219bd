package kagzi_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kagzi/kagzi"
)

// What is registered is undone, the last first, when the run fails for good.
func ExampleCompensate() {
	ctx, _, client, worker := setup()
	defer teardown()

	trip := kagzi.Define[string, string]("trip", kagzi.RetryPolicy{MaxAttempts: 1})
	kagzi.Handle(worker, trip, func(ctx kagzi.Context, city string) (string, error) {
		for _, what := range []string{"flight", "hotel"} {
			// Before the step: a crash between the two must not lose it.
			kagzi.Compensate(ctx, "cancel-"+what, func(ctx context.Context) error {
				fmt.Println("cancel the", what, "to", city)
				return nil
			}, kagzi.RetryPolicy{MaxAttempts: 10})
			if err := kagzi.Do(ctx, "book-"+what, func(ctx context.Context) error {
				fmt.Println("book the", what, "to", city)
				return nil
			}); err != nil {
				return "", err
			}
		}
		return "", kagzi.Do(ctx, "rent-car", func(ctx context.Context) error {
			return kagzi.Permanent(errors.New("no car is left"))
		})
	})
	serve(ctx, worker)

	run, err := kagzi.Start(ctx, client, trip, "Oslo", kagzi.ID("trip-oslo"))
	if err != nil {
		fmt.Println(err)
		return
	}
	var failed *kagzi.RunError
	if _, err = run.Result(ctx); errors.As(err, &failed) {
		fmt.Println(failed.Status, failed.Kind)
	}
	steps, _ := client.Steps(ctx, run.ID())
	for _, s := range steps {
		if s.Type == kagzi.StepCompensation && s.Attempt > 0 {
			fmt.Println(s.Step, s.Status)
		}
	}
	fmt.Println(errors.Is(client.Resume(ctx, run.ID()), kagzi.ErrCompensated))
	// Output:
	// book the flight to Oslo
	// book the hotel to Oslo
	// cancel the hotel to Oslo
	// cancel the flight to Oslo
	// FAILED unknown
	// cancel-hotel COMPLETED
	// cancel-flight COMPLETED
	// true
}

// Cancel ends a run once it is undone.
func ExampleClient_Cancel_compensations() {
	ctx, _, client, worker := setup()
	defer teardown()

	trial := kagzi.Define[string, string]("trial")
	kagzi.Handle(worker, trial, func(ctx kagzi.Context, customer string) (string, error) {
		kagzi.Compensate(ctx, "close-account", func(ctx context.Context) error {
			fmt.Println("closing the account of", customer)
			return nil
		})
		if err := kagzi.Do(ctx, "open-account", func(ctx context.Context) error {
			fmt.Println("opening an account for", customer)
			return nil
		}); err != nil {
			return "", err
		}
		return "", kagzi.Sleep(ctx, "month", 30*24*time.Hour)
	})
	serve(ctx, worker)

	run, err := kagzi.Start(ctx, client, trial, "ada")
	if err != nil {
		fmt.Println(err)
		return
	}
	untilAsleep(ctx, run)
	if err := run.Cancel(ctx, kagzi.Reason("changed her mind")); err != nil {
		fmt.Println(err)
	}
	_, err = run.Result(ctx)
	fmt.Println(errors.Is(err, kagzi.KindCancelled))
	// Output:
	// opening an account for ada
	// closing the account of ada
	// true
}

// Terminate ends a run at once, and undoes nothing.
func ExampleClient_Terminate() {
	ctx, _, client, worker := setup()
	defer teardown()

	trial := kagzi.Define[string, string]("trial")
	kagzi.Handle(worker, trial, func(ctx kagzi.Context, customer string) (string, error) {
		kagzi.Compensate(ctx, "close-account", func(ctx context.Context) error {
			fmt.Println("closing the account of", customer)
			return nil
		})
		return "", kagzi.Sleep(ctx, "month", 30*24*time.Hour)
	})
	serve(ctx, worker)

	run, err := kagzi.Start(ctx, client, trial, "ada")
	if err != nil {
		fmt.Println(err)
		return
	}
	untilAsleep(ctx, run)
	fmt.Println(client.Terminate(ctx, run.ID(), kagzi.Reason("the account is needed")))
	info, _ := run.Info(ctx)
	fmt.Println(info.Status, info.Error)
	// Output:
	// <nil>
	// CANCELLED run was terminated: the account is needed
}
