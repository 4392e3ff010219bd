package main

import (
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/kagzitest"
)

func TestMain(m *testing.M) { kagzitest.Main(m) }

func TestApprovalExpires(t *testing.T) {
	env := kagzitest.New(t) // a database, a client, a worker and a clock
	kagzi.HandleDo(env.Worker, Checkout, checkout)
	must(env.Pool.Exec(t.Context(), createTable+`; INSERT INTO orders VALUES ('9', 'sofa', 60000, 'new')`))
	status := func() (s string) {
		check(env.Pool.QueryRow(t.Context(), `SELECT status FROM orders`).Scan(&s))
		return s
	}

	kagzitest.Start(env, Checkout, Order{ID: "9", Item: "sofa", Cents: 60_000})
	env.Advance(71 * time.Hour)
	if s := status(); s != "new" {
		t.Errorf("after 71 hours the order is %s", s)
	}
	env.Advance(time.Hour)
	if s := status(); s != "expired" {
		t.Errorf("after 72 hours the order is %s", s)
	}
}
