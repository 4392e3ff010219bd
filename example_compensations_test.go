package kagzi_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
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
	fmt.Println(errors.Is(admin.New(client).Resume(ctx, run.ID()), kagzi.ErrCompensated))
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
		id, err := admin.New(client).Fork(ctx, run.ID(), "hotel", opts...)
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
func ExampleClient_Terminate() {
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
	untilAsleep(ctx, run)
	fmt.Println(admin.New(client).Terminate(ctx, run.ID(), kagzi.Reason("the account is needed")))
	info, _ := run.Info(ctx)
	fmt.Println(info.Status, info.Error)
	// Output:
	// <nil>
	// CANCELLED run was terminated: the account is needed
}
