package kagzi_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/kind"
)

// Pages go from new to old.
func ExampleClient_List() {
	ctx, _, client, _ := setup()
	defer teardown()

	checkout := kagzi.Define[int, string]("checkout")
	for order := range 5 {
		_, _ = kagzi.Start(ctx, client, checkout, order)
	}

	filter := kagzi.RunFilter{
		Workflow: "checkout", Status: []kagzi.Status{kagzi.StatusPending}, Limit: 2,
		Payloads: true,
	}
	for {
		page, err := client.List(ctx, filter)
		if err != nil || len(page) == 0 {
			break
		}
		for _, run := range page {
			fmt.Printf("order %s\n", run.Input)
		}
		fmt.Println("next page")
		filter.After = page[len(page)-1].ID
	}
	// Output:
	// order 4
	// order 3
	// next page
	// order 2
	// order 1
	// next page
	// order 0
	// next page
}

func ExampleClient_Get() {
	ctx, _, client, _ := setup()
	defer teardown()

	checkout := kagzi.Define[int, string]("checkout")
	_, _ = kagzi.Start(ctx, client, checkout, 1999, kagzi.ID("order-42"))

	info, err := client.Get(ctx, kagzi.ID("order-42"))
	fmt.Println(info.Workflow, info.Status, string(info.Input), err)
	_, err = client.Get(ctx, kagzi.ID("order-43"))
	fmt.Println(errors.Is(err, kagzi.ErrNotFound))
	// Output:
	// checkout PENDING 1999 <nil>
	// true
}

// Wait needs no types: a script waits for whatever has the ID.
func ExampleClient_Wait() {
	ctx, _, client, worker := setup()
	defer teardown()

	checkout := kagzi.Define[int, string]("checkout")
	kagzi.Handle(worker, checkout, func(ctx kagzi.Context, cents int) (string, error) {
		return "", errors.New("declined")
	})
	serve(ctx, worker)

	_, _ = kagzi.Start(ctx, client, checkout, 1999, kagzi.ID("order-42"))
	info, err := client.Wait(ctx, kagzi.ID("order-42"))
	fmt.Println(info.Status, info.Error, err)
	// Output:
	// FAILED declined <nil>
}

func ExampleClient_Steps() {
	ctx, _, client, worker := setup()
	defer teardown()

	order := kagzi.Define[string, string]("order")
	kagzi.Handle(worker, order, func(ctx kagzi.Context, product string) (string, error) {
		err := kagzi.Do(ctx, "pay", func(ctx context.Context) error {
			if kagzi.CurrentStep(ctx).Attempt == 1 {
				return errors.New("the bank is closed")
			}
			return nil
		}, kagzi.RetryPolicy{Backoff: time.Millisecond})
		if err != nil {
			return "", err
		}
		return kagzi.Step(ctx, "ship", func(ctx context.Context) (string, error) { return "parcel 7", nil })
	})
	serve(ctx, worker)

	run, _ := kagzi.Start(ctx, client, order, "lamp")
	_, _ = run.Result(ctx)
	steps, _ := client.Steps(ctx, run.ID())
	for _, s := range steps {
		fmt.Println(s.Step, s.Attempt, s.Status, string(s.Output)+s.Error)
	}
	// Output:
	// pay 1 FAILED the bank is closed
	// pay 2 COMPLETED null
	// ship 1 COMPLETED "parcel 7"
}

func ExampleClient_Cancel() {
	ctx, _, client, worker := setup()
	defer teardown()

	wait := kagzi.Define[struct{}, string]("wait")
	kagzi.Handle(worker, wait, func(ctx kagzi.Context, _ struct{}) (string, error) {
		return "", kagzi.Sleep(ctx, "a-year", 365*24*time.Hour)
	})
	serve(ctx, worker)

	run, _ := kagzi.Start(ctx, client, wait, struct{}{}, kagzi.ID("patience"))
	fmt.Println(client.Cancel(ctx, kagzi.ID("patience")))
	_, err := run.Result(ctx)
	fmt.Println(errors.Is(err, kind.Cancelled))
	// Output:
	// <nil>
	// true
}

func ExampleRunError() {
	ctx, _, client, worker := setup()
	defer teardown()

	order := kagzi.Define[string, string]("order")
	kagzi.Handle(worker, order, func(ctx kagzi.Context, product string) (string, error) {
		return "", kagzi.Permanent(fmt.Errorf("there is no %s: %w", product, kind.NotFound))
	})
	serve(ctx, worker)

	run, _ := kagzi.Start(ctx, client, order, "lamp")
	_, err := run.Result(ctx)
	var failed *kagzi.RunError
	if errors.As(err, &failed) {
		fmt.Println(failed.Workflow, failed.Status, failed.Message)
	}
	fmt.Println(errors.Is(err, kind.NotFound))
	// Output:
	// order FAILED there is no lamp: not_found
	// true
}

// A handle to a run that another process started.
func ExampleFind() {
	ctx, _, client, worker := setup()
	defer teardown()

	greet := kagzi.Define[string, string]("greet")
	kagzi.Handle(worker, greet, func(ctx kagzi.Context, name string) (string, error) { return "Hello, " + name, nil })
	serve(ctx, worker)
	_, _ = kagzi.Start(ctx, client, greet, "Ada", kagzi.ID("greet-ada"))

	run, err := kagzi.Find(ctx, client, greet, kagzi.ID("greet-ada"))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(run.Result(ctx))
	// Output: Hello, Ada <nil>
}

// The logger of a workflow is silent while recorded steps are passed again.
func ExampleContext() {
	ctx, pool, _, _ := setup()
	defer teardown()

	same := func(_ []string, a slog.Attr) slog.Attr { // leaves out attributes that differ each time
		if a.Key == slog.TimeKey || a.Key == "run" || a.Key == "runs" || a.Key == "worker" {
			return slog.Attr{}
		}
		return a
	}
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: same}))
	client, _ := kagzi.NewClient(pool, kagzi.ClientConfig{Logger: logger})
	worker, _ := kagzi.NewWorker(client, kagzi.WorkerConfig{MaxConcurrent: 10})
	greet := kagzi.Define[string, string]("greet")
	kagzi.Handle(worker, greet, func(ctx kagzi.Context, name string) (string, error) {
		ctx.Logger().Info("before the sleep") // the function comes here twice
		if err := kagzi.Sleep(ctx, "nap", 300*time.Millisecond); err != nil {
			return "", err
		}
		ctx.Logger().Info("after the sleep")
		return "Hello, " + name, nil
	})
	serve(ctx, worker)

	run, _ := kagzi.Start(ctx, client, greet, "Ada")
	_, _ = run.Result(ctx)
	// Output:
	// level=INFO msg="kagzi: worker started" namespace=default queues=[default] workflows=[greet/1]
	// level=INFO msg="before the sleep" workflow=greet run_attempt=1
	// level=INFO msg="after the sleep" workflow=greet run_attempt=1
	// level=INFO msg="kagzi: draining" for_at_most=30s
	// level=INFO msg="kagzi: worker stopped" queues=[default] completed=1 failed=0
}

// Several services, or tenants, share a database without seeing each other's runs.
func ExampleClientConfig() {
	ctx, pool, _, _ := setup()
	defer teardown()

	checkout := kagzi.Define[int, string]("checkout")
	acme, _ := kagzi.NewClient(pool, kagzi.ClientConfig{Namespace: "acme"})
	other, _ := kagzi.NewClient(pool, kagzi.ClientConfig{Namespace: "other"})
	run, _ := kagzi.Start(ctx, acme, checkout, 1999)

	_, err := other.Get(ctx, run.ID())
	fmt.Println(errors.Is(err, kagzi.ErrNotFound))
	// Output: true
}

// zipped is a Codec: JSON, compressed.
type zipped struct{}

func (zipped) Encode(v any) ([]byte, error) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if err := json.NewEncoder(z).Encode(v); err != nil {
		return nil, err
	}
	err := z.Close()
	return b.Bytes(), err
}

func (zipped) Decode(data []byte, v any) error {
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return err
	}
	return json.NewDecoder(z).Decode(v)
}

// All clients and workers of a namespace have the same codec. Its output is not JSON here, so readers of RunInfo need
// the codec, too.
func ExampleCodec() {
	ctx, pool, _, _ := setup()
	defer teardown()

	client, _ := kagzi.NewClient(pool, kagzi.ClientConfig{Codec: zipped{}, Logger: slog.New(slog.DiscardHandler)})
	shout := kagzi.Define[string, string]("shout")
	worker, _ := kagzi.NewWorker(client, kagzi.WorkerConfig{})
	kagzi.Handle(worker, shout, func(ctx kagzi.Context, text string) (string, error) {
		return strings.ToUpper(text), nil
	})
	serve(ctx, worker)

	run, _ := kagzi.Start(ctx, client, shout, strings.Repeat("ha", 1000))
	out, err := run.Result(ctx)
	info, _ := run.Info(ctx)
	fmt.Println(len(out), len(info.Output) < 100, err)
	// Output: 2000 true <nil>
}
