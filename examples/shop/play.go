package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

// A customer uses the shop over HTTP.
type customer struct {
	base string
	name string
	say  *printer
}

// play orders two things. The first is paid and shipped, the second paid and cancelled.
func (c *customer) play(ctx context.Context, spans *tracetest.InMemoryExporter) error {
	id := time.Now().Format("150405.000") // the database may have orders already
	first, second := id+"-1", id+"-2"
	c.say.linef("\n1. %s orders three books, twice by mistake: it is one order.", c.name)
	for range 2 {
		if err := c.call(ctx, "POST", "/orders", Order{first, "book", 3}, nil); err != nil {
			return err
		}
	}
	if err := c.watch(ctx, first, func(s Status) bool { return s.WaitingOn == "signal paid" }); err != nil {
		return err
	}
	c.say.linef("\n2. The payment provider calls, twice: it is one payment.")
	for range 2 {
		if err := c.pay(ctx, first); err != nil {
			return err
		}
	}
	if err := c.watch(ctx, first, func(s Status) bool { return s.Run.Ended() }); err != nil {
		return err
	}
	c.say.linef("\n3. %s orders five lamps, pays, and cancels while they are packed.", c.name)
	if err := c.call(ctx, "POST", "/orders", Order{second, "lamp", 5}, nil); err != nil {
		return err
	}
	if err := c.pay(ctx, second); err != nil {
		return err
	}
	if err := c.watch(ctx, second, func(s Status) bool { return s.WaitingOn == "child pack" }); err != nil {
		return err
	}
	if err := c.call(ctx, "DELETE", "/orders/"+second, nil, nil); err != nil {
		return err
	}
	if err := c.watch(ctx, second, func(s Status) bool { return s.Run.Ended() }); err != nil {
		return err
	}
	c.say.linef("\n4. The trace of the first order, as the exporter has it:\n")
	c.say.linef("%s", drawTraces(spans.GetSpans(), runOf(first)))
	return nil
}

func (c *customer) pay(ctx context.Context, order string) error {
	return c.call(ctx, "POST", "/webhooks/payment", map[string]string{
		"event": "event-" + order, "order": order,
		"payment": "payment-" + order,
	}, nil)
}

// watch prints each change of an order's status until done.
func (c *customer) watch(ctx context.Context, id string, done func(Status) bool) error {
	for last := ""; ; {
		var s Status
		if err := c.get(ctx, "/orders/"+id, &s); err != nil {
			return err
		}
		if line := describe(s); line != last {
			c.say.linef("   %s", line)
			last = line
		}
		if done(s) {
			return nil
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}

func describe(s Status) string {
	parts := []string{fmt.Sprintf("order is %s, run %s", s.Status, s.Run)}
	if s.WaitingOn != "" {
		parts[0] += " on " + s.WaitingOn
	}
	if s.Progress != nil {
		parts = append(parts, s.Progress.Text)
	}
	if s.Packing != nil {
		parts = append(parts, s.Packing.Text)
	}
	if s.Failure != "" {
		parts = append(parts, "failure: "+string(s.Failure))
	}
	return strings.Join(parts, "; ")
}

// call prints a request with the status of its answer.
func (c *customer) call(ctx context.Context, method, path string, body, answer any) error {
	status, err := c.do(ctx, method, path, body, answer)
	c.say.linef("   %s %s: %d %s", method, path, status, http.StatusText(status))
	return err
}

func (c *customer) get(ctx context.Context, path string, answer any) error {
	_, err := c.do(ctx, "GET", path, nil, answer)
	return err
}

func (c *customer) do(ctx context.Context, method, path string, body, answer any) (status int, err error) {
	var data []byte
	if body != nil {
		if data, err = json.Marshal(body); err != nil {
			return 0, err
		}
	}
	r, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(data))
	if err != nil {
		return 0, err
	}
	r.Header.Set("X-Customer", c.name)
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	if data, err = io.ReadAll(response.Body); err != nil {
		return response.StatusCode, err
	}
	if response.StatusCode >= 300 {
		return response.StatusCode, fmt.Errorf("%s %s: %s: %s", method, path, response.Status, bytes.TrimSpace(data))
	}
	if answer == nil {
		return response.StatusCode, nil
	}
	return response.StatusCode, json.Unmarshal(data, answer)
}

// A printer prints lines of several goroutines.
type printer struct {
	mu  sync.Mutex
	out io.Writer
}

func (p *printer) linef(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.out, format+"\n", args...)
}
