package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/kind"
)

// The shop's own tables are in the database that Kagzi uses. So a transaction can change an order and start its run,
// and a step can change an order and record that it did.
const createTables = `
	CREATE SCHEMA IF NOT EXISTS shop;
	CREATE TABLE IF NOT EXISTS shop.stock (
		item text PRIMARY KEY,
		left_over integer NOT NULL CHECK (left_over >= 0)
	);
	CREATE TABLE IF NOT EXISTS shop.orders (
		id text PRIMARY KEY,
		customer text NOT NULL,
		item text NOT NULL REFERENCES shop.stock,
		quantity integer NOT NULL CHECK (quantity > 0),
		status text NOT NULL DEFAULT 'new' CHECK (status IN ('new', 'reserved', 'shipped', 'cancelled', 'refunded')),
		reserved integer NOT NULL DEFAULT 0,
		payment text
	);
	INSERT INTO shop.stock VALUES ('book', 100), ('lamp', 5) ON CONFLICT DO NOTHING`

// An Order is the input of the workflows.
type Order struct {
	ID       string `json:"id"`
	Item     string `json:"item"`
	Quantity int    `json:"quantity"`
}

// A row is an order in the table.
type row struct {
	Order
	Customer string
	Status   string // new, reserved, and in the end shipped, cancelled or refunded
	Payment  string // empty until it is paid
}

// Both StepTx and the handlers lock an order first, and Kagzi's row of its run after it: so they do not deadlock.
const (
	insertOrder = `INSERT INTO shop.orders (id, customer, item, quantity) VALUES ($1, $2, $3, $4) ON CONFLICT
		DO NOTHING`
	selectOrder = `SELECT id, customer, item, quantity, status, coalesce(payment, '') FROM shop.orders WHERE id = $1`
	lockOrder   = selectOrder + ` FOR UPDATE`
	reserveItem = `
		WITH ordered AS (UPDATE shop.orders SET status = 'reserved', reserved = quantity WHERE id = $1
			AND status = 'new' RETURNING item, quantity)
		UPDATE shop.stock s SET left_over = left_over - ordered.quantity FROM ordered WHERE s.item = ordered.item`
	returnItem = `
		WITH ordered AS (SELECT item, reserved FROM shop.orders WHERE id = $1), gone AS (
			UPDATE shop.orders SET reserved = 0, status = CASE status WHEN 'refunded' THEN status ELSE 'cancelled' END
				WHERE id = $1)
		UPDATE shop.stock s SET left_over = left_over + ordered.reserved FROM ordered WHERE s.item = ordered.item`
	setStatus  = `UPDATE shop.orders SET status = $2 WHERE id = $1`
	setPayment = `UPDATE shop.orders SET payment = $2 WHERE id = $1`
)

// SoldOut is a kind of failure of this shop: see package kind.
const SoldOut kind.Kind = "sold_out"

// A querier is a pool or a transaction.
type querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// load reads an order by selectOrder or lockOrder.
func load(ctx context.Context, db querier, sql, id string) (o row, err error) {
	err = db.QueryRow(ctx, sql, id).Scan(&o.ID, &o.Customer, &o.Item, &o.Quantity, &o.Status, &o.Payment)
	if errors.Is(err, pgx.ErrNoRows) {
		return o, refusal{http.StatusNotFound, fmt.Sprintf("there is no order %q", id)}
	}
	return o, err
}

// reserve takes the order's items out of the stock.
func reserve(ctx context.Context, tx pgx.Tx, id string) error {
	tag, err := tx.Exec(ctx, reserveItem, id)
	switch {
	case kagzi.KindOf(err) == kind.Validation: // the CHECK of left_over
		return kagzi.Permanent(fmt.Errorf("not enough is left: %w", SoldOut))
	case err == nil && tag.RowsAffected() == 0:
		return kagzi.Permanent(fmt.Errorf("order %s was cancelled: %w", id, kind.Cancelled))
	}
	return err
}

// ship marks the order as shipped. It locks the order, as the handler of DELETE does: an order is either shipped or
// cancelled.
func ship(ctx context.Context, tx pgx.Tx, id string) error {
	o, err := load(ctx, tx, lockOrder, id)
	if err != nil {
		return err
	}
	if o.Status != "reserved" {
		return kagzi.Permanent(fmt.Errorf("order %s is %s: %w", id, o.Status, kind.Cancelled))
	}
	_, err = tx.Exec(ctx, setStatus, id, "shipped")
	return err
}

// unreserve cancels the order unless it is shipped, returns its items to the stock, and says which payment must be
// refunded.
func unreserve(ctx context.Context, tx pgx.Tx, id string) (payment string, err error) {
	o, err := load(ctx, tx, lockOrder, id)
	if err != nil || o.Status == "shipped" {
		return "", err
	}
	if _, err := tx.Exec(ctx, returnItem, id); err != nil || o.Status == "refunded" {
		return "", err
	}
	return o.Payment, nil
}

func prepare(ctx context.Context, pool *pgxpool.Pool) error {
	if err := kagzi.Migrate(ctx, pool); err != nil {
		return err
	}
	_, err := pool.Exec(ctx, createTables)
	return err
}
