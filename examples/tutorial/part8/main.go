// Part 8 of docs/tutorial.md: the mistake of part 7 is repaired.
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
	"strings"
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

var Approved = kagzi.DefineSignal[bool]("approved")

func checkout(ctx kagzi.Context, o Order) error {
	if err := confirm(ctx, o); err != nil {
		return err
	}
	if o.Cents >= 50_000 {
		yes, err := kagzi.WaitSignal(ctx, Approved, kagzi.Timeout(72*time.Hour))
		if errors.Is(err, kagzi.ErrNoMessage) {
			return setStatus(ctx, o.ID, "expired")
		}
		if err != nil {
			return err
		}
		if !yes {
			return setStatus(ctx, o.ID, "refused")
		}
	}
	return fulfil(ctx, o)
}

func checkoutV2(ctx kagzi.Context, o Order) error {
	if err := confirm(ctx, o); err != nil {
		return err
	}
	if o.Cents >= 50_000 {
		if err := kagzi.Do(ctx, "insure", func(context.Context) error { return insure(o) }); err != nil {
			return err
		}
	}
	return fulfil(ctx, o)
}

func confirm(ctx kagzi.Context, o Order) error {
	if !kagzi.Patched(ctx, "confirm") {
		return nil // the run had passed this place before the deploy
	}
	return kagzi.Do(ctx, "confirm", func(ctx context.Context) error {
		fmt.Println("confirming order", o.ID)
		return nil
	})
}

func insure(o Order) error {
	words := strings.Fields(o.Item)
	fmt.Println("insuring a", words[len(words)-1])
	return nil
}

func fulfil(ctx kagzi.Context, o Order) error {
	_, err := kagzi.Step(ctx, "charge", func(ctx context.Context) (Payment, error) {
		return bank(ctx, o)
	}, kagzi.RetryPolicy{MaxAttempts: 5, Backoff: time.Second}, kagzi.UndoneBy(Refund))
	if errors.Is(err, Declined) {
		return setStatus(ctx, o.ID, "declined")
	}
	if err != nil {
		return err
	}
	err = kagzi.Do(ctx, "pack", func(ctx context.Context) error {
		fmt.Println("packing the", o.Item)
		if o.Item == "whale" {
			return kagzi.Permanent(errors.New("no box is large enough"))
		}
		return nil
	})
	if err != nil {
		return err
	}
	return setStatus(ctx, o.ID, "shipped")
}

var Refund = kagzi.DefineDo[Payment]("refund")

func refund(ctx kagzi.Context, p Payment) error {
	err := kagzi.Do(ctx, "pay-back", func(ctx context.Context) error {
		fmt.Println("paying back", p.ID)
		return nil
	})
	if err != nil {
		return err
	}
	return setStatus(ctx, p.Order, "refunded")
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

func (s shop) approve(r *http.Request) (string, error) {
	run := kagzi.ID("order-" + r.PathValue("id"))
	return "approved", s.client.Signal(r.Context(), run, Approved.With(true))
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
	kagzi.HandleDo(worker, Checkout, checkoutV2, kagzi.Version(2))
	kagzi.HandleDo(worker, Refund, refund)
	check(worker.Start(ctx))

	s := shop{pool, client}
	http.HandleFunc("POST /orders", answer(s.order))
	http.HandleFunc("GET /orders/{id}", answer(s.status))
	http.HandleFunc("POST /orders/{id}/approve", answer(s.approve))
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
