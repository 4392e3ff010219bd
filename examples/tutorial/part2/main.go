// Part 2 of docs/tutorial.md: a service whose orders are rows of its own table.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi"
)

const createTable = `CREATE TABLE IF NOT EXISTS orders (id text PRIMARY KEY, item text, cents int, status text)`

type Order struct {
	ID, Item string
	Cents    int
}

var Checkout = kagzi.DefineDo[Order]("checkout")

func checkout(ctx kagzi.Context, o Order) error {
	err := kagzi.Do(ctx, "pack", func(ctx context.Context) error {
		fmt.Println("packing the", o.Item)
		return nil
	})
	if err != nil {
		return err
	}
	return setStatus(ctx, o.ID, "shipped")
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
