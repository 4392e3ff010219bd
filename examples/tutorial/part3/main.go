// Part 3 of docs/tutorial.md: a step that calls a bank, which fails.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/kind"
)

const createTable = `CREATE TABLE IF NOT EXISTS orders (id text PRIMARY KEY, item text, cents int, status text)`

type Order struct {
	ID, Item string
	Cents    int
}

var Checkout = kagzi.DefineDo[Order]("checkout")

func checkout(ctx kagzi.Context, o Order) error {
	_, err := kagzi.Step(ctx, "charge", func(ctx context.Context) (Payment, error) {
		return bank(ctx, o)
	}, kagzi.RetryPolicy{MaxAttempts: 5, Backoff: time.Second})
	if errors.Is(err, Declined) {
		return setStatus(ctx, o.ID, "declined")
	}
	if err != nil {
		return err
	}
	err = kagzi.Do(ctx, "pack", func(ctx context.Context) error {
		fmt.Println("packing the", o.Item)
		return nil
	})
	if err != nil {
		return err
	}
	return setStatus(ctx, o.ID, "shipped")
}

const Declined kind.Kind = "card_declined"

type Payment struct{ Order, ID string }

// bank stands for the API of a bank. Each payment fails at the first attempt.
func bank(ctx context.Context, o Order) (Payment, error) {
	step := kagzi.CurrentStep(ctx) // a real bank gets step.Key, to book the payment once
	fmt.Printf("order %s: asking the bank, attempt %d\n", o.ID, step.Attempt)
	if o.Cents > 100_000 {
		return Payment{}, kagzi.Permanent(fmt.Errorf("over the limit: %w", Declined))
	}
	if step.Attempt == 1 {
		return Payment{}, errors.New("the bank does not answer")
	}
	return Payment{Order: o.ID, ID: "payment-" + o.ID}, nil
}

// setStatus writes the order's row in the transaction that records the step.
func setStatus(ctx kagzi.Context, order, status string) error {
	return kagzi.DoTx(ctx, "set-"+status, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `UPDATE orders SET status = $2 WHERE id = $1`, order, status)
		return err
	})
}

// A shop is the HTTP API.
type shop struct {
	pool   *pgxpool.Pool
	client *kagzi.Client
}

func (s shop) order(r *http.Request) (string, error) {
	var o Order
	if err := json.NewDecoder(r.Body).Decode(&o); err != nil {
		return "", err
	}
	ctx := r.Context()
	return "thank you", pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `INSERT INTO orders VALUES ($1, $2, $3, 'new')`, o.ID, o.Item, o.Cents)
		if err != nil {
			return err
		}
		_, err = kagzi.Start(ctx, s.client, Checkout, o, kagzi.ID("order-"+o.ID), kagzi.InTx(tx))
		return err
	})
}

func (s shop) status(r *http.Request) (status string, err error) {
	const selectStatus = `SELECT status FROM orders WHERE id = $1`
	err = s.pool.QueryRow(r.Context(), selectStatus, r.PathValue("id")).Scan(&status)
	return status, err
}

// answer makes a handler of a function that returns the text of the answer.
func answer(fn func(*http.Request) (string, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		text, err := fn(r)
		if err != nil {
			http.Error(w, err.Error(), kagzi.HTTPStatus(err))
			return
		}
		fmt.Fprintln(w, text)
	}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	pool := must(pgxpool.New(ctx, os.Getenv("DATABASE_URL")))
	check(kagzi.Migrate(ctx, pool))
	must(pool.Exec(ctx, createTable))
	client := must(kagzi.NewClient(pool, kagzi.ClientConfig{}))

	worker := must(kagzi.NewWorker(client, kagzi.WorkerConfig{}))
	kagzi.HandleDo(worker, Checkout, checkout)
	check(worker.Start(ctx))

	s := shop{pool, client}
	http.HandleFunc("POST /orders", answer(s.order))
	http.HandleFunc("GET /orders/{id}", answer(s.status))
	fmt.Println("the shop is open")
	go func() { check(http.ListenAndServe(cmp.Or(os.Getenv("ADDR"), "localhost:8080"), nil)) }()
	<-ctx.Done() // Ctrl-C
	check(worker.Stop(context.Background()))
}

func must[T any](v T, err error) T {
	check(err)
	return v
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
