package kagzi_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/kind"
)

type tenantKey struct{}

// An interceptor takes the tenant from the request's context into the headers of all runs, and gives it to the steps'
// contexts. A coordinator has no request: the runs of a schedule have the headers that the schedule gives them.
func ExampleInterceptor() {
	ctx, pool, _, _ := setup()
	defer teardown()

	tenants := kagzi.Interceptor{
		Start: func(ctx context.Context, starts []*kagzi.StartCall, next func(context.Context) error) error {
			tenant, ok := ctx.Value(tenantKey{}).(string)
			for _, s := range starts {
				switch {
				case ok:
					s.SetHeader("tenant", tenant) // keeps those of the caller and of other interceptors
				case s.Schedule == "": // else the schedule has the header
					return errors.New("a start needs a tenant")
				}
			}
			return next(ctx)
		},
		Execute: func(ctx context.Context, e kagzi.Execution, next func(context.Context) error) error {
			return next(context.WithValue(ctx, tenantKey{}, e.Headers["tenant"]))
		},
	}
	client, _ := kagzi.NewClient(pool, kagzi.ClientConfig{Interceptors: []kagzi.Interceptor{tenants}})
	worker, _ := kagzi.NewWorker(client, kagzi.WorkerConfig{})
	invoice := kagzi.Define[int, string]("invoice")
	kagzi.Handle(worker, invoice, func(ctx kagzi.Context, euros int) (string, error) {
		return kagzi.Step(ctx, "send", func(ctx context.Context) (string, error) {
			return fmt.Sprintf("%d euros for %s", euros, ctx.Value(tenantKey{})), nil
		})
	})
	serve(ctx, worker)

	_, err := kagzi.Start(ctx, client, invoice, 42)
	fmt.Println(err)
	run, _ := kagzi.Start(context.WithValue(ctx, tenantKey{}, "acme"), client, invoice, 42)
	fmt.Println(run.Result(ctx))

	monthly := kagzi.Schedule{
		Name: "monthly", Cron: "0 6 1 * *",
		Run: invoice.With(7, kagzi.Headers{"tenant": "globex"}),
	}
	_ = client.Schedule(ctx, monthly)
	id, _ := admin.New(client).Schedules.Trigger(ctx, "monthly")
	run, _ = kagzi.Find(ctx, client, invoice, id)
	fmt.Println(run.Result(ctx))
	// Output:
	// kagzi: start invoice: a start needs a tenant
	// 42 euros for acme <nil>
	// 7 euros for globex <nil>
}

// An interceptor measures attempts of steps. What a replay passes is not measured again.
func ExampleInterceptor_metrics() {
	ctx, pool, _, _ := setup()
	defer teardown()

	attempts := make(chan string, 10)
	metrics := kagzi.Interceptor{
		Step: func(ctx context.Context, s kagzi.StepInfo, next func(context.Context) error) error {
			begun := time.Now()
			err := next(ctx)
			attempts <- fmt.Sprintf("%s, attempt %d, kind %q, took time: %t", s.Step, s.Attempt, kagzi.KindOf(err),
				time.Since(begun) > 0)
			return err
		},
	}
	client, _ := kagzi.NewClient(pool, kagzi.ClientConfig{Interceptors: []kagzi.Interceptor{metrics}})
	worker, _ := kagzi.NewWorker(client, kagzi.WorkerConfig{})
	pay := kagzi.Define[string, string]("pay")
	kagzi.Handle(worker, pay, func(ctx kagzi.Context, _ string) (string, error) {
		return kagzi.Step(ctx, "charge", func(ctx context.Context) (string, error) {
			if kagzi.CurrentStep(ctx).Attempt == 1 {
				return "", errors.New("the bank is away")
			}
			return "paid", nil
		}, kagzi.RetryPolicy{Backoff: time.Millisecond})
	})
	serve(ctx, worker)

	run, _ := kagzi.Start(ctx, client, pay, "order-42")
	fmt.Println(run.Result(ctx))
	fmt.Println(<-attempts)
	fmt.Println(<-attempts)
	// Output:
	// paid <nil>
	// charge, attempt 1, kind "unknown", took time: true
	// charge, attempt 2, kind "", took time: true
}

// A run is counted once, whether a worker or a caller ends it.
func ExampleInterceptor_ended() {
	ctx, pool, _, _ := setup()
	defer teardown()

	ended := make(chan kagzi.EndedRun, 10)
	client, _ := kagzi.NewClient(pool, kagzi.ClientConfig{Interceptors: []kagzi.Interceptor{{
		Ended: func(r kagzi.EndedRun) { ended <- r },
	}}})
	worker, _ := kagzi.NewWorker(client, kagzi.WorkerConfig{MaxConcurrent: 4})
	charge := kagzi.Define[int, string]("charge")
	kagzi.Handle(worker, charge, func(_ kagzi.Context, euros int) (string, error) {
		if euros > 100 {
			return "", kind.Validation
		}
		return "charged", nil
	})
	serve(ctx, worker)

	for _, euros := range []int{42, 4200} {
		if _, err := kagzi.Start(ctx, client, charge, euros); err != nil {
			fmt.Println(err)
		}
		r := <-ended
		fmt.Printf("%s %s %q\n", r.Workflow, r.Status, r.Kind)
	}
	// Output:
	// charge COMPLETED ""
	// charge FAILED "validation"
}
