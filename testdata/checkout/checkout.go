// Package checkout is the program of the design, word for word, with what it takes for granted.
package checkout

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi"
)

type (
	Order   struct{ ID string }
	Receipt struct{ Number string }
	Payment struct{ ID string }
)

type gateway interface {
	Authorize(ctx context.Context, order Order, key string) (Payment, error)
}

type App struct{ gateway gateway }

func (app *App) capture(ctx context.Context, tx pgx.Tx, payment Payment) (Receipt, error) {
	_, err := tx.Exec(ctx, `INSERT INTO receipts (number) VALUES ($1)`, payment.ID)
	return Receipt{payment.ID}, err
}

// the contract, with defaults: callers import only this
var Checkout = kagzi.Define[Order, Receipt]("checkout", kagzi.Queue("shop"))

func (app *App) checkout(ctx kagzi.Context, order Order) (Receipt, error) {
	payment, err := kagzi.Step(ctx, "authorize", func(ctx context.Context) (Payment, error) {
		return app.gateway.Authorize(ctx, order, kagzi.CurrentStep(ctx).Key) // the same key in every attempt
	}, kagzi.RetryPolicy{MaxAttempts: 5}, kagzi.Timeout(30*time.Second))
	if err != nil {
		return Receipt{}, err
	}
	if err := kagzi.Sleep(ctx, "cooling-off", 24*time.Hour); err != nil {
		return Receipt{}, err
	}
	return kagzi.StepTx(ctx, "capture", func(ctx context.Context, tx pgx.Tx) (Receipt, error) {
		return app.capture(ctx, tx, payment) // commits with the step's record, or not at all
	})
}

func (app *App) checkoutV2(ctx kagzi.Context, order Order) (Receipt, error) {
	return app.checkout(ctx, order)
}

func Program(ctx context.Context, pool *pgxpool.Pool, app *App, order Order, tx pgx.Tx) (Receipt, error) {
	client, err := kagzi.NewClient(pool, kagzi.ClientConfig{Namespace: "acme"}) // the application's own *pgxpool.Pool
	if err != nil {
		return Receipt{}, err
	}
	worker, err := kagzi.NewWorker(client, kagzi.WorkerConfig{Queue: "shop"})
	if err != nil {
		return Receipt{}, err
	}
	kagzi.Handle(worker, Checkout, app.checkout)
	kagzi.Handle(worker, Checkout, app.checkoutV2, kagzi.Version(2))
	if err = worker.Run(ctx); err != nil { // blocks; nil after a drain once ctx ends
		return Receipt{}, err
	}
	run, err := kagzi.Start(ctx, client, Checkout, order, kagzi.ID("order-42"), kagzi.InTx(tx))
	if err != nil {
		return Receipt{}, err
	}
	receipt, err := run.Result(ctx) // typed: Receipt; else *kagzi.RunError
	return receipt, err
}
