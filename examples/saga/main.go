// Saga books a trip. The car is not available, so the bookings before it are cancelled, the last one first.
//
//	go run ./examples/saga
package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/examples/internal/demo"
	"github.com/kagzi/kagzi/kind"
)

// A Booking is the result of a booking step, and the input of the workflow that cancels it.
type Booking struct{ Thing, Customer string }

var (
	BookTrip      = kagzi.Define[string, string]("book-trip")
	CancelBooking = kagzi.Define[Booking, struct{}]("cancel-booking")
)

// SoldOut is a kind of failure. It is recorded with the step, so errors.Is finds it in every replay.
const SoldOut kind.Kind = "sold_out"

func bookTrip(ctx kagzi.Context, customer string) (string, error) {
	for _, thing := range []string{"flight", "hotel", "car"} {
		// Once the step has a result, CancelBooking is registered with it. It runs if the workflow fails.
		_, err := kagzi.Step(ctx, "book-"+thing, func(ctx context.Context) (Booking, error) {
			if thing == "car" {
				// another attempt would not help
				return Booking{}, kagzi.Permanent(fmt.Errorf("no car is left: %w", SoldOut))
			}
			fmt.Println("booked the", thing)
			return Booking{thing, customer}, nil
		}, kagzi.UndoneBy(CancelBooking))
		if err != nil {
			return "", err
		}
	}
	return "have a good trip", nil
}

func cancelBooking(ctx kagzi.Context, b Booking) (struct{}, error) {
	return struct{}{}, kagzi.Do(ctx, "cancel", func(ctx context.Context) error {
		fmt.Println("cancelled the", b.Thing)
		return nil
	})
}

func main() {
	handle := func(w *kagzi.Worker) {
		kagzi.Handle(w, BookTrip, bookTrip)
		kagzi.Handle(w, CancelBooking, cancelBooking)
	}
	demo.Main("saga", handle, func(ctx context.Context, client *kagzi.Client) error {
		trip, err := kagzi.Start(ctx, client, BookTrip, "Ada")
		if err != nil {
			return err
		}
		_, err = trip.Result(ctx) // returns when the compensations have run
		if !errors.Is(err, SoldOut) {
			return fmt.Errorf("the trip ended with %w; a failure of the car was expected", err)
		}
		fmt.Println("the trip failed: sold out")
		return nil
	})
}
