package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/kind"
)

// A refusal is an error that the caller may see, with its status.
type refusal struct {
	status int
	text   string
}

func (r refusal) Error() string { return r.text }

// runOf names the checkout of an order: so every handler finds it without a table of run IDs.
func runOf(order string) kagzi.ID { return kagzi.ID("order-" + order) }

// Handler returns the HTTP API.
func (s *Shop) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders", answer(asCustomer(s.order)))
	mux.HandleFunc("GET /orders/{id}", answer(asCustomer(s.status)))
	mux.HandleFunc("DELETE /orders/{id}", answer(asCustomer(s.cancel)))
	mux.HandleFunc("POST /webhooks/payment", answer(s.payment))
	mux.Handle("GET /ready", admin.New(s.Client).Readiness())
	return mux
}

// answer makes a handler of fn, whose body it writes as JSON.
func answer(fn func(*http.Request) (status int, body any, err error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, 64<<10)
		status, body, err := fn(r)
		if err != nil {
			text := err.Error()
			if refused, ok := errors.AsType[refusal](err); ok {
				status = refused.status
			} else if status = kagzi.HTTPStatus(err); status >= 500 {
				text = http.StatusText(status)
				if r.Context().Err() == nil { // else the caller has gone
					slog.ErrorContext(r.Context(), "request failed", "err", err)
				}
			}
			body = map[string]string{"error": text}
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		json.NewEncoder(w).Encode(body) //nolint:errcheck // the client has gone
	}
}

// asCustomer puts the customer into the request's context. A real service has checked who that is.
func asCustomer(fn func(*http.Request) (int, any, error)) func(*http.Request) (int, any, error) {
	return func(r *http.Request) (int, any, error) {
		name := r.Header.Get("X-Customer")
		if name == "" {
			return 0, nil, refusal{http.StatusUnauthorized, "who are you? Set the header X-Customer"}
		}
		return fn(r.WithContext(withCustomer(r.Context(), name)))
	}
}

// order stores an order and starts its checkout, both or neither. The same order may be sent again.
func (s *Shop) order(r *http.Request) (status int, body any, err error) {
	var o Order
	if err := decode(r, &o); err != nil {
		return 0, nil, err
	}
	if o.ID == "" || len(o.ID) > 40 || o.Quantity < 1 || o.Quantity > 100 {
		return 0, nil, refusal{http.StatusBadRequest, "an order has an id of 1 to 40 bytes and a quantity from " +
			"1 to 100"}
	}
	status = http.StatusCreated
	err = pgx.BeginFunc(r.Context(), s.Pool, func(tx pgx.Tx) error {
		ctx := r.Context()
		tag, err := tx.Exec(ctx, insertOrder, o.ID, customerOf(ctx), o.Item, o.Quantity)
		if kagzi.KindOf(err) == kind.Validation { // the foreign key
			return refusal{http.StatusBadRequest, fmt.Sprintf("the shop does not sell %q", o.Item)}
		}
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 0 {
			status = http.StatusOK
			old, err := load(ctx, tx, selectOrder, o.ID)
			if err == nil && (old.Order != o || old.Customer != customerOf(ctx)) {
				err = refusal{http.StatusConflict, fmt.Sprintf("there is another order %q", o.ID)}
			}
			return err
		}
		_, err = kagzi.Start(ctx, s.Client, Checkout, o, runOf(o.ID), kagzi.InTx(tx))
		return err
	})
	return status, map[string]string{"order": "/orders/" + o.ID}, err
}

// A Status is the answer of GET. Run and the fields after it are what Kagzi knows of the checkout, until retention
// deletes the run.
type Status struct {
	Order
	Status    string          `json:"status"`
	Run       kagzi.Status    `json:"run,omitempty"`
	WaitingOn string          `json:"waiting_on,omitempty"`
	Progress  *kagzi.Progress `json:"progress,omitempty"`
	Packing   *kagzi.Progress `json:"packing,omitempty"` // that of the child
	Failure   kind.Kind       `json:"failure,omitempty"` // the kind only: the text of the error is not for customers
}

func (s *Shop) status(r *http.Request) (int, any, error) {
	ctx := r.Context()
	// first the run: if it has ended, the order that is read after it is as the run has left it
	run, runErr := s.Client.Get(ctx, runOf(r.PathValue("id")))
	o, err := s.mine(ctx, s.Pool, selectOrder, r.PathValue("id"))
	if err != nil {
		return 0, nil, err
	}
	out := Status{Order: o.Order, Status: o.Status}
	if err = runErr; errors.Is(err, kagzi.ErrNotFound) {
		return http.StatusOK, out, nil
	}
	if err != nil {
		return 0, nil, err
	}
	out.Run, out.WaitingOn, out.Failure = run.Status, run.WaitingOn.String(), run.Kind
	// what a run said last stays stored, and is no news any more
	if run.Status.Ended() || o.Status == "cancelled" || o.Status == "refunded" {
		return http.StatusOK, out, nil
	}
	out.Progress = run.Progress
	children, err := s.Client.List(ctx, kagzi.RunFilter{Parent: run.ID, Workflow: Pack.Name(), Limit: 1})
	if err != nil {
		return 0, nil, err
	}
	for _, c := range children {
		out.Packing = c.Progress
	}
	return http.StatusOK, out, nil
}

// cancel cancels an order that is not shipped. The checkout's compensation restocks and refunds.
func (s *Shop) cancel(r *http.Request) (int, any, error) {
	err := pgx.BeginFunc(r.Context(), s.Pool, func(tx pgx.Tx) error {
		ctx := r.Context()
		o, err := s.mine(ctx, tx, lockOrder, r.PathValue("id"))
		if err != nil {
			return err
		}
		switch o.Status {
		case "shipped":
			return refusal{http.StatusConflict, fmt.Sprintf("order %s is on its way", o.ID)}
		case "cancelled", "refunded":
			return nil
		}
		if _, err := tx.Exec(ctx, setStatus, o.ID, "cancelled"); err != nil {
			return err
		}
		if err := s.Client.Cancel(ctx, runOf(o.ID), kagzi.Reason("by "+customerOf(ctx)), kagzi.InTx(tx)); err != nil {
			return err
		}
		if o.Status == "new" { // a checkout that has not begun has registered no compensation
			return s.startUndo(ctx, tx, o)
		}
		return nil
	})
	return http.StatusAccepted, map[string]string{"status": "cancelled"}, err
}

// payment takes what the payment provider sends, perhaps several times. A real service checks its signature.
func (s *Shop) payment(r *http.Request) (int, any, error) {
	var p struct{ Event, Order, Payment string }
	if err := decode(r, &p); err != nil {
		return 0, nil, err
	}
	if p.Event == "" || p.Payment == "" {
		return 0, nil, refusal{http.StatusBadRequest, "event and payment are missing"}
	}
	err := pgx.BeginFunc(r.Context(), s.Pool, func(tx pgx.Tx) error {
		ctx := r.Context()
		o, err := load(ctx, tx, lockOrder, p.Order)
		switch {
		case err != nil:
			return err
		case o.Payment != "" && o.Payment != p.Payment:
			return refusal{http.StatusConflict, fmt.Sprintf("order %s is paid already, by %s", o.ID, o.Payment)}
		case o.Status == "refunded":
			return nil
		}
		if _, err := tx.Exec(ctx, setPayment, o.ID, p.Payment); err != nil {
			return err
		}
		if o.Status == "cancelled" { // the payment came too late
			return s.startUndo(ctx, tx, o)
		}
		return s.Client.Signal(ctx, runOf(o.ID), Paid.With(p.Payment).WithID(kagzi.ID(p.Event)), kagzi.InTx(tx))
	})
	return http.StatusOK, map[string]string{"event": p.Event}, err
}

// startUndo starts what otherwise runs as the compensation of the checkout.
func (s *Shop) startUndo(ctx context.Context, tx pgx.Tx, o row) error {
	_, err := kagzi.Start(withCustomer(ctx, o.Customer), s.Client, Undo, o.ID, kagzi.ID("undo-"+o.ID), kagzi.InTx(tx))
	return err
}

// mine loads an order of the request's customer. To others it does not exist.
func (s *Shop) mine(ctx context.Context, db querier, sql, id string) (row, error) {
	o, err := load(ctx, db, sql, id)
	if err == nil && o.Customer != customerOf(ctx) {
		err = refusal{http.StatusNotFound, fmt.Sprintf("there is no order %q", id)}
	}
	return o, err
}

func decode(r *http.Request, v any) error {
	if err := json.NewDecoder(r.Body).Decode(v); err != nil {
		return refusal{http.StatusBadRequest, "the body is not the JSON that was expected: " + err.Error()}
	}
	return nil
}
