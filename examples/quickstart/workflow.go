package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi"
)

// An Order is the input of a checkout.
type Order struct {
	Shop   string
	Number int
	Cents  int
}

// A Receipt is the result of a checkout.
type Receipt struct {
	Order   int
	Payment string
	Parcel  string
}

// Checkout is the contract between the programs that start checkouts and the workers that execute them.
var Checkout = kagzi.Define[Order, Receipt]("checkout", kagzi.Timeout(5*time.Minute))

// stepsPerCheckout counts check-fraud, reserve-stock, authorize, capture and ship.
const stepsPerCheckout = 5

// An app is an application with its dependencies, which are simulated here. Each step's function first writes a note to
// the journal, so that the report can count executions. It returns the number of the note, so that the recorded result
// identifies its execution.
type app struct{ journal *journal }

// checkout is the workflow. It has no code for crashes.
func (a *app) checkout(ctx kagzi.Context, order Order) (Receipt, error) {
	var payment string
	err := kagzi.Parallel(ctx, "prepare", map[string]func(kagzi.Context) error{
		"fraud": func(ctx kagzi.Context) error {
			_, err := kagzi.Step(ctx, "check-fraud", a.callService(40*time.Millisecond))
			return err
		},
		"stock": func(ctx kagzi.Context) error {
			_, err := kagzi.Step(ctx, "reserve-stock", a.callService(30*time.Millisecond))
			return err
		},
		"payment": func(ctx kagzi.Context) (err error) {
			payment, err = kagzi.Step(ctx, "authorize", a.callGateway,
				kagzi.RetryPolicy{Forever: true, Backoff: 100 * time.Millisecond, Factor: 1})
			return err
		},
	})
	if err != nil {
		return Receipt{}, err
	}
	// While it sleeps, a run is only a row in Postgres: it holds no goroutine, connection or slot of a worker.
	if err := kagzi.Sleep(ctx, "cooling-off", time.Second); err != nil {
		return Receipt{}, err
	}
	// The row in the ledger is committed in one transaction with the record of the step.
	_, err = kagzi.StepTx(ctx, "capture", func(ctx context.Context, tx pgx.Tx) (string, error) {
		note := a.journal.begin(ctx)
		_, err := tx.Exec(ctx, insertLedger, order.Shop, order.Number, order.Cents)
		a.call(ctx, 20*time.Millisecond)
		return note, err
	})
	if err != nil {
		return Receipt{}, err
	}
	parcel, err := kagzi.Step(ctx, "ship", a.callService(50*time.Millisecond))
	return Receipt{Order: order.Number, Payment: payment, Parcel: parcel}, err
}

// The ledger deliberately has no unique key: only Kagzi prevents a payment from being captured twice.
const createLedger = `
CREATE TABLE IF NOT EXISTS kagzi_quickstart_ledger (
	shop         text NOT NULL,
	order_number int  NOT NULL,
	cents        int  NOT NULL
)`

const insertLedger = `INSERT INTO kagzi_quickstart_ledger (shop, order_number, cents) VALUES ($1, $2, $3)`

// callService simulates a call of another service that takes about d.
func (a *app) callService(d time.Duration) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		note := a.journal.begin(ctx)
		return note, a.call(ctx, d)
	}
}

// callGateway simulates a payment gateway that fails every fourth call. A real gateway would get
// kagzi.CurrentStep(ctx).Key, which is the same in every attempt, so that it authorizes once.
func (a *app) callGateway(ctx context.Context) (string, error) {
	note := a.journal.begin(ctx)
	if err := a.call(ctx, 60*time.Millisecond); err != nil {
		return "", err
	}
	if rand.IntN(4) == 0 {
		return "", fmt.Errorf("%w, said to %s", errGateway, note)
	}
	return note, nil
}

var errGateway = errors.New("the gateway is overloaded")

// call waits for about d, or until ctx ends.
func (a *app) call(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d/2 + rand.N(d)):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
