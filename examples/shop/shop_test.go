package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/kagzitest"
)

func TestMain(m *testing.M) { kagzitest.Main(m) }

// A fixture is a shop whose clock a test moves.
type fixture struct {
	*Shop
	t     *testing.T
	env   *kagzitest.Env
	api   http.Handler
	spans *tracetest.InMemoryExporter

	mu   sync.Mutex
	done []string // mails and refunds
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	t.Parallel()
	f := &fixture{t: t, spans: tracetest.NewInMemoryExporter()}
	tel := telemetry(trace.WithSyncer(f.spans))
	interceptors, err := tel.interceptors()
	if err != nil {
		t.Fatal(err)
	}
	f.env = kagzitest.New(t, kagzitest.Config{Client: kagzi.ClientConfig{Interceptors: interceptors}})
	if err := prepare(t.Context(), f.env.Pool); err != nil {
		t.Fatal(err)
	}
	f.Shop = &Shop{
		Client: f.env.Client, Pool: f.env.Pool, PayWithin: 24 * time.Hour, Drying: time.Hour,
		Pick: func(context.Context, string) error { return nil },
		Mail: func(ctx context.Context, _ string) error { return f.did("mail to " + customerOf(ctx)) },
		Refund: func(ctx context.Context, payment string) error {
			return f.did("refund " + payment + " to " + customerOf(ctx))
		},
	}
	f.handle(f.env.Worker)
	f.api = tel.wrap(f.Handler())
	return f
}

func (f *fixture) did(what string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.done = append(f.done, what)
	return nil
}

// wantDone fails the test unless these mails and refunds were made.
func (f *fixture) wantDone(want ...string) {
	f.t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if !slices.Equal(f.done, want) {
		f.t.Errorf("mails and refunds: %q, want %q", f.done, want)
	}
}

// call makes a request of the customer ada, with further headers, and fails the test unless the answer has that status.
func (f *fixture) call(status int, method, path, body string, headers ...string) []byte {
	f.t.Helper()
	r := httptest.NewRequestWithContext(f.t.Context(), method, path, strings.NewReader(body))
	r.Header.Set("X-Customer", "ada")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	f.api.ServeHTTP(w, r)
	if w.Code != status {
		f.t.Fatalf("%s %s %s: %d %s, want %d", method, path, body, w.Code, w.Body, status)
	}
	return w.Body.Bytes()
}

// order orders two books as order 42.
func (f *fixture) order(headers ...string) {
	f.t.Helper()
	f.call(201, "POST", "/orders", `{"id": "42", "item": "book", "quantity": 2}`, headers...)
}

func (f *fixture) pay() {
	f.t.Helper()
	f.call(200, "POST", "/webhooks/payment", `{"event": "e1", "order": "42", "payment": "p1"}`)
}

// want fails the test unless the order 42, its run and the stock of books are so. It returns what GET answers.
func (f *fixture) want(status string, run kagzi.Status, waitingOn string, books int) (s Status) {
	f.t.Helper()
	if err := json.Unmarshal(f.call(200, "GET", "/orders/42", ""), &s); err != nil {
		f.t.Fatal(err)
	}
	var left int
	if err := f.Pool.QueryRow(f.t.Context(), `SELECT left_over FROM shop.stock WHERE item = 'book'`).
		Scan(&left); err != nil {
		f.t.Fatal(err)
	}
	if s.Status != status || s.Run != run || s.WaitingOn != waitingOn || left != books {
		f.t.Errorf("the order is %s, its run %s on %q, and %d books are left; want %s, %s on %q, %d", s.Status, s.Run,
			s.WaitingOn, left, status, run, waitingOn, books)
	}
	return s
}

const run42 = kagzi.ID("order-42")

func TestPaidOrderIsShipped(t *testing.T) {
	f := newFixture(t)
	f.order()
	f.env.SkipTo(run42, "signal paid")
	f.env.Advance(0) // until the items are picked
	s := f.want("reserved", kagzi.StatusSleeping, "signal paid", 98)
	if s.Progress == nil || s.Progress.Text != "waiting for the payment" || s.Packing == nil ||
		s.Packing.Text != "2 of 2 picked" {
		t.Errorf("progress: %+v, packing %+v", s.Progress, s.Packing)
	}
	f.wantDone()
	f.pay()
	if took := f.env.Skip(run42); took < f.Drying-time.Minute || took > 2*f.Drying {
		t.Errorf("took %v, but the glue dries for %v", took, f.Drying)
	}
	if s := f.want("shipped", kagzi.StatusCompleted, "", 98); s.Progress != nil || s.Packing != nil {
		t.Errorf("the order is shipped, and its progress is still %+v, packing %+v", s.Progress, s.Packing)
	}
	f.wantDone("mail to ada")
	if got, want := f.env.Steps(run42), []string{
		"reserve", "pack", "paid", "ship",
		"receipt",
	}; !slices.Equal(got, want) {
		t.Errorf("steps: %q, want %q", got, want)
	}
}

func TestUnpaidOrderIsUndone(t *testing.T) {
	f := newFixture(t)
	f.order()
	if took := f.env.Skip(run42); took < f.PayWithin-time.Minute {
		t.Errorf("waited %v, want %v", took, f.PayWithin)
	}
	if s := f.want("cancelled", kagzi.StatusFailed, "", 100); s.Failure != "timeout" {
		t.Errorf("failure: %q", s.Failure)
	}
	f.wantDone()

	f.pay() // too late
	f.env.Skip(kagzi.ID("undo-42"))
	f.want("refunded", kagzi.StatusFailed, "", 100)
	f.wantDone("refund p1 to ada")
	f.pay()
	f.env.Advance(0)
	f.wantDone("refund p1 to ada")
}

func TestCancelRestocksAndRefunds(t *testing.T) {
	f := newFixture(t)
	f.order()
	f.env.SkipTo(run42, "signal paid")
	f.pay()
	f.env.SkipTo(run42, "child pack")
	f.call(202, "DELETE", "/orders/42", "")
	f.call(202, "DELETE", "/orders/42", "")
	f.env.Skip(run42)
	f.want("refunded", kagzi.StatusCancelled, "", 100)
	f.wantDone("refund p1 to ada")
	log, err := admin.New(f.Client).Runs.Log(t.Context(), run42)
	if err != nil || len(log) != 1 || log[0].Event != "CANCELLED" || log[0].Reason != "by ada" {
		t.Errorf("log: %+v, %v", log, err)
	}
	f.env.Skip(kagzitest.Start(f.env, Undo, "42")) // once more, as a late payment would
	f.want("refunded", kagzi.StatusCancelled, "", 100)
	f.wantDone("refund p1 to ada")
}

// A checkout that no worker has begun has no compensation yet.
func TestCancelBeforeTheCheckoutBegins(t *testing.T) {
	f := newFixture(t)
	f.order()
	f.pay()
	f.call(202, "DELETE", "/orders/42", "")
	f.env.Skip(kagzi.ID("undo-42"))
	f.want("refunded", kagzi.StatusCancelled, "", 100)
	f.wantDone("refund p1 to ada")
}

func TestSoldOut(t *testing.T) {
	f := newFixture(t)
	f.call(201, "POST", "/orders", `{"id": "42", "item": "lamp", "quantity": 6}`)
	f.env.Skip(run42)
	if s := f.want("cancelled", kagzi.StatusFailed, "", 100); s.Failure != SoldOut {
		t.Errorf("failure: %q", s.Failure)
	}
}

func TestAnswers(t *testing.T) {
	f := newFixture(t)
	const book = `{"id": "42", "item": "book", "quantity": 2}`
	bob := []string{"X-Customer", "bob"}
	f.call(401, "POST", "/orders", book, "X-Customer", "")
	f.call(400, "POST", "/orders", `{"id": `)
	f.call(400, "POST", "/orders", `{"id": "42", "item": "book", "quantity": 0}`)
	f.call(400, "POST", "/orders", `{"id": "42", "item": "yacht", "quantity": 1}`)
	f.call(404, "GET", "/orders/42", "")
	f.call(404, "DELETE", "/orders/42", "")
	f.call(404, "POST", "/webhooks/payment", `{"event": "e1", "order": "42", "payment": "p1"}`)
	f.call(405, "PUT", "/orders/42", "")

	f.call(201, "POST", "/orders", book)
	f.call(200, "POST", "/orders", book)
	f.call(409, "POST", "/orders", `{"id": "42", "item": "book", "quantity": 3}`)
	f.call(409, "POST", "/orders", book, bob...)
	f.call(404, "GET", "/orders/42", "", bob...)
	f.call(404, "DELETE", "/orders/42", "", bob...)
	runs, err := f.Client.List(t.Context(), kagzi.RunFilter{})
	if err != nil || len(runs) != 1 || runs[0].ExternalID != run42 || runs[0].Headers["customer"] != "ada" {
		t.Fatalf("runs: %+v, %v", runs, err)
	}

	f.call(400, "POST", "/webhooks/payment", `{"order": "42"}`)
	f.pay()
	f.pay()
	f.call(409, "POST", "/webhooks/payment", `{"event": "e2", "order": "42", "payment": "p2"}`)
	messages, err := admin.New(f.Client).Messages.List(t.Context(), run42, admin.MessageFilter{})
	if err != nil || len(messages) != 1 {
		t.Fatalf("messages: %+v, %v", messages, err)
	}
	f.env.Skip(run42)
	f.want("shipped", kagzi.StatusCompleted, "", 98)
	f.call(409, "DELETE", "/orders/42", "")
	f.pay() // once more
	f.call(200, "POST", "/orders", book)
	f.call(200, "GET", "/ready", "")
}

// If the order is not stored, its checkout does not start.
func TestOrderAndCheckoutAreOneTransaction(t *testing.T) {
	f := newFixture(t)
	_, err := f.Pool.Exec(t.Context(), `
		CREATE FUNCTION shop.refuse() RETURNS trigger LANGUAGE plpgsql
			AS $$BEGIN RAISE EXCEPTION 'refused at the commit' USING ERRCODE = 'check_violation'; END$$;
		CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON shop.orders DEFERRABLE INITIALLY DEFERRED
			FOR EACH ROW EXECUTE FUNCTION shop.refuse()`)
	if err != nil {
		t.Fatal(err)
	}
	f.call(422, "POST", "/orders", `{"id": "42", "item": "book", "quantity": 2}`)
	if runs, err := f.Client.List(t.Context(), kagzi.RunFilter{}); err != nil || len(runs) != 0 {
		t.Errorf("runs: %+v, %v", runs, err)
	}
}

// One trace covers the request, the start, the execution with its steps, and the child with its own. What comes after a
// long wait is linked.
func TestOneTrace(t *testing.T) {
	f := newFixture(t)
	const caller = "4bf92f3577b34da6a3ce929d0e0e4736"
	f.order("traceparent", "00-"+caller+"-00f067aa0ba902b7-01")
	f.env.SkipTo(run42, "signal paid")
	f.env.Advance(0) // until the child has picked, too
	got, names := map[string]string{}, map[string]string{}
	spans := f.spans.GetSpans()
	for _, s := range spans {
		names[s.SpanContext.SpanID().String()] = s.Name
	}
	for _, s := range spans {
		if s.SpanContext.TraceID().String() != caller {
			t.Errorf("%s is of another trace", s.Name)
		}
		got[s.Name] = names[s.Parent.SpanID().String()]
	}
	want := map[string]string{
		"POST /orders": "", "start checkout": "POST /orders", "execute checkout": "start checkout",
		"step reserve": "execute checkout",
		"start pack":   "execute checkout", "execute pack": "start pack", "step pick": "execute pack",
	}
	if len(spans) != len(want) || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%d spans with these parents:\n%v, want\n%v", len(spans), got, want)
	}

	f.spans.Reset()
	f.pay()
	f.env.Skip(run42)
	later := 0
	for _, s := range f.spans.GetSpans() {
		if !strings.HasPrefix(s.Name, "execute ") {
			continue
		}
		later++
		if s.Parent.IsValid() || len(s.Links) == 0 || s.Links[0].SpanContext.TraceID().String() != caller {
			t.Errorf("%s has the parent %v and the links %v", s.Name, s.Parent, s.Links)
		}
	}
	if later < 2 {
		t.Errorf("%d executions after the payment", later)
	}
}

// The one command ends by itself, and shows all of it.
func TestPlay(t *testing.T) {
	t.Setenv("DATABASE_URL", "") // a throwaway Postgres
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "")
	var out strings.Builder
	if err := run(t.Context(), &out, "127.0.0.1:0", false); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	for _, want := range []string{
		"order is shipped, run COMPLETED", "refunded payment-",
		"order is refunded, run CANCELLED", "└─ step pick", "└─ step receipt", "  completed\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in\n%s", want, &out)
		}
	}
}
