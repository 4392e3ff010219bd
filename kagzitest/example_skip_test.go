package kagzitest_test

import (
	"context"
	"fmt"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/kagzitest"
)

var (
	// Order is paid once a clerk has approved it, within a week.
	Order    = kagzi.Define[string, string]("order")
	Approval = kagzi.DefineSignal[string]("approval")
)

func order(ctx kagzi.Context, id string) (string, error) {
	if err := kagzi.Sleep(ctx, "cooling-off", 48*time.Hour); err != nil {
		return "", err
	}
	by, err := kagzi.WaitSignal(ctx, Approval.For(id), kagzi.Timeout(7*24*time.Hour))
	if err != nil {
		return "", err
	}
	return kagzi.Step(ctx, "pay", func(context.Context) (string, error) { return "paid, approved by " + by, nil })
}

// Skip moves the clock until the run has ended, also past the wait for the message, which times out.
func ExampleEnv_Skip() {
	t := newExampleT()
	defer t.end()

	env := kagzitest.New(t)
	kagzi.Handle(env.Worker, Order, order)
	run := kagzitest.Start(env, Order, "7")
	fmt.Println(env.Skip(run.ID()).Round(time.Hour))
	fmt.Println(env.Steps(run.ID()))
	// Output:
	// 216h0m0s
	// [cooling-off approval:7 (timeout)]
}

// SkipTo stops when the run waits for the message that the test then sends.
func ExampleEnv_SkipTo() {
	t := newExampleT()
	defer t.end()

	env := kagzitest.New(t)
	kagzi.Handle(env.Worker, Order, order)
	run := kagzitest.Start(env, Order, "7")
	fmt.Println(env.SkipTo(run.ID(), "signal approval/7").Round(time.Hour))
	if err := env.Client.Signal(t.Context(), run.ID(), Approval.For("7").With("Ada")); err != nil {
		t.Fatal(err)
	}
	fmt.Println(kagzitest.Result(env, run))
	// Output:
	// 48h0m0s
	// paid, approved by Ada <nil>
}

// Before a deploy: replay the runs of a database with the new code. A filter that finds no runs would find no mistake.
func ExampleReplay() {
	t := newExampleT()
	defer t.end()

	env := kagzitest.New(t) // stands for the database of production, or a copy of it
	kagzi.Handle(env.Worker, Order, order)
	run := kagzitest.Start(env, Order, "7")
	env.Skip(run.ID())

	n := kagzitest.Replay(t, env.Client, Order, order, kagzi.RunFilter{})
	if n == 0 {
		t.Fatal("no run was replayed: does the filter find any?")
	}
	fmt.Println("runs that go the same way:", n)

	kagzitest.Replay(t, env.Client, Order, func(ctx kagzi.Context, id string) (string, error) {
		if err := kagzi.Do(ctx, "check stock", func(context.Context) error { return nil }); err != nil {
			return "", err
		}
		return order(ctx, id)
	}, kagzi.RunFilter{})
	// Output:
	// runs that go the same way: 1
	// the code comes to a step "check stock", which the history does not have
}
