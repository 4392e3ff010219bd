package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi"
)

var (
	Checkout = kagzi.Define[Order, string]("checkout") // returns the number of the parcel
	Pack     = kagzi.Define[Order, string]("pack")     // a child of Checkout, which returns that number
	Undo     = kagzi.Define[string, struct{}]("undo")  // the compensation of Checkout; its input is the order's ID
)

// Paid says that an order is paid. Its payload is the ID of the payment.
var Paid = kagzi.DefineSignal[string]("paid")

// A Shop is what the workflows and the handlers work with.
type Shop struct {
	Client    *kagzi.Client
	Pool      *pgxpool.Pool
	PayWithin time.Duration // how long a customer may take to pay
	Drying    time.Duration // how long the glue of a parcel dries

	// These are other services. Each may be called twice for the same thing, after a crash for example.
	Pick   func(ctx context.Context, item string) error
	Mail   func(ctx context.Context, text string) error
	Refund func(ctx context.Context, payment string) error
}

func (s *Shop) handle(w *kagzi.Worker) {
	kagzi.Handle(w, Checkout, s.checkout)
	kagzi.Handle(w, Pack, s.pack)
	kagzi.Handle(w, Undo, s.undo)
}

// checkout is one order from its reservation to its receipt. If it fails or is cancelled on the way, Undo runs.
func (s *Shop) checkout(ctx kagzi.Context, o Order) (parcel string, err error) {
	// before the first effect, so that a crash in between cannot lose it
	kagzi.Compensate(ctx, "order", Undo.With(o.ID))
	err = kagzi.DoTx(ctx, "reserve", func(ctx context.Context, tx pgx.Tx) error { return reserve(ctx, tx, o.ID) })
	if err != nil {
		return "", err
	}
	packing, err := kagzi.StartChild(ctx, "pack", Pack, o) // while the customer pays
	if err != nil {
		return "", err
	}
	if err := kagzi.SetProgress(ctx, "waiting for the payment", 0.3); err != nil {
		return "", err
	}
	_, err = kagzi.WaitSignal(ctx, Paid, kagzi.Timeout(s.PayWithin))
	if errors.Is(err, kagzi.ErrNoMessage) {
		return "", fmt.Errorf("not paid within %v: %w", s.PayWithin, err)
	}
	if err != nil {
		return "", err
	}
	if err := kagzi.SetProgress(ctx, "paid, waiting for the parcel", 0.6); err != nil {
		return "", err
	}
	if parcel, err = packing.Result(ctx); err != nil {
		return "", err
	}
	err = kagzi.DoTx(ctx, "ship", func(ctx context.Context, tx pgx.Tx) error { return ship(ctx, tx, o.ID) })
	if err != nil {
		return "", err
	}
	if err := kagzi.SetProgress(ctx, "shipped", 1); err != nil {
		return "", err
	}
	return parcel, kagzi.Do(ctx, "receipt", func(ctx context.Context) error {
		return s.Mail(ctx, fmt.Sprintf("your order %s is on its way as %s", o.ID, parcel))
	})
}

// pack picks the items one by one, and says how far it is.
func (s *Shop) pack(ctx kagzi.Context, o Order) (parcel string, err error) {
	err = kagzi.Do(ctx, "pick", func(ctx context.Context) error {
		for i := range o.Quantity {
			if err := s.Pick(ctx, o.Item); err != nil {
				return err
			}
			if err := kagzi.SetProgress(ctx, fmt.Sprintf("%d of %d picked", i+1, o.Quantity),
				float64(i+1)/float64(o.Quantity)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	// While it sleeps, the run is only a row in Postgres.
	if err := kagzi.Sleep(ctx, "dry", s.Drying); err != nil {
		return "", err
	}
	return kagzi.Step(ctx, "label", func(context.Context) (string, error) { return "parcel-" + o.ID, nil })
}

// undo restocks and refunds what there is. It finds that in the shop's tables and not in its input: a payment may come
// at any time.
func (s *Shop) undo(ctx kagzi.Context, order string) (struct{}, error) {
	payment, err := kagzi.StepTx(ctx, "restock", func(ctx context.Context, tx pgx.Tx) (string, error) {
		return unreserve(ctx, tx, order)
	})
	if err != nil || payment == "" {
		return struct{}{}, err
	}
	if err := kagzi.Do(ctx, "refund", func(ctx context.Context) error { return s.Refund(ctx, payment) }); err != nil {
		return struct{}{}, err
	}
	return struct{}{}, kagzi.DoTx(ctx, "refunded", func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, setStatus, order, "refunded")
		return err
	})
}
