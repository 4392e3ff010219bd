package kagzi_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/kind"
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

// Registered compensations run when the run fails for good, the last one first.
func ExampleCompensate() {
	ctx, _, client, worker := setup()
	defer teardown()

	trip := kagzi.Define[string, string]("trip")
	kagzi.Handle(worker, trip, func(ctx kagzi.Context, city string) (string, error) {
		for _, what := range []string{"flight", "hotel"} {
			// Before the step: a crash between the two must not lose it.
			kagzi.Compensate(ctx, what, cancelBooking.With("the "+what+" to "+city))
			if err := kagzi.Do(ctx, what, func(ctx context.Context) error {
				fmt.Println("book the", what, "to", city)
				return nil
			}); err != nil {
				return "", err
			}
		}
		return "", kagzi.Do(ctx, "car", func(ctx context.Context) error {
			return kagzi.Permanent(errors.New("no car is left"))
		})
	})
	handleCancelBooking(worker)
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
		if s.Type == "COMPENSATION" {
			fmt.Println(s.Step, s.Status)
		}
	}
	fmt.Println(errors.Is(admin.New(client).Runs.Resume(ctx, run.ID()), admin.ErrCompensated))
	// Output:
	// book the flight to Oslo
	// book the hotel to Oslo
	// cancel the hotel to Oslo
	// cancel the flight to Oslo
	// FAILED unknown
	// flight#compensation COMPLETED
	// hotel#compensation COMPLETED
	// true
}

// The result of a step is the input of its compensation.
func ExampleUndoneBy() {
	ctx, _, client, worker := setup()
	defer teardown()

	trip := kagzi.Define[string, string]("trip")
	kagzi.Handle(worker, trip, func(ctx kagzi.Context, city string) (string, error) {
		// until the booking is known
		kagzi.Compensate(ctx, "flight", cancelBooking.With("whatever was ordered for "+city))
		if _, err := kagzi.Step(ctx, "flight", func(ctx context.Context) (string, error) {
			return "booking LH-1 to " + city, nil
		}, kagzi.UndoneBy(cancelBooking)); err != nil {
			return "", err
		}
		return "", errors.New("the trip is off")
	})
	handleCancelBooking(worker)
	serve(ctx, worker)

	run, err := kagzi.Start(ctx, client, trip, "Oslo")
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = run.Result(ctx)
	fmt.Println(kagzi.KindOf(err))
	// Output:
	// cancel booking LH-1 to Oslo
	// unknown
}

// Cancel waits for a step that is under way, because its effect may have to be undone.
func ExampleGrace() {
	ctx, _, client, worker := setup()
	defer teardown()

	trip := kagzi.Define[string, string]("trip")
	booking := make(chan bool)
	kagzi.Handle(worker, trip, func(ctx kagzi.Context, city string) (string, error) {
		kagzi.Compensate(ctx, "flight", cancelBooking.With("whatever was ordered for "+city))
		return kagzi.Step(ctx, "flight", func(ctx context.Context) (string, error) {
			close(booking)
			<-ctx.Done() // the airline does not care: it answers
			return "booking LH-1 to " + city, nil
		}, kagzi.UndoneBy(cancelBooking))
	})
	handleCancelBooking(worker)
	serve(ctx, worker)

	run, err := kagzi.Start(ctx, client, trip, "Oslo")
	if err != nil {
		fmt.Println(err)
		return
	}
	<-booking
	if err := run.Cancel(ctx, kagzi.Reason("changed her mind"), kagzi.Grace(10*time.Second)); err != nil {
		fmt.Println(err)
	}
	_, err = run.Result(ctx)
	fmt.Println(errors.Is(err, kind.Cancelled))
	// Output:
	// cancel booking LH-1 to Oslo
	// true
}

// A declined card is no failure: what was done is undone, and the run completes.
func ExampleRollback() {
	ctx, _, client, worker := setup()
	defer teardown()

	release := kagzi.DefineDo[string]("release")
	kagzi.HandleDo(worker, release, func(ctx kagzi.Context, seat string) error {
		fmt.Println("released", seat)
		return nil
	})
	sell := kagzi.Define[string, string]("sell")
	kagzi.Handle(worker, sell, func(ctx kagzi.Context, seat string) (string, error) {
		kagzi.Compensate(ctx, "seat", release.With(seat))
		paid, err := kagzi.Step(ctx, "charge", func(ctx context.Context) (bool, error) {
			return false, nil // the card is declined
		})
		if err != nil || paid {
			return "sold", err
		}
		return "declined", kagzi.Rollback(ctx)
	})
	serve(ctx, worker)

	run, _ := kagzi.Start(ctx, client, sell, "12A")
	fmt.Println(run.Result(ctx))
	// Output:
	// released 12A
	// declined <nil>
}
