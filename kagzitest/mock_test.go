package kagzitest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/kagzitest"
)

type payment struct{ ID string }

var errReal = kagzi.Permanent(errors.New("the real function was called"))

func TestMocksStandForEveryKindOfStep(t *testing.T) {
	t.Parallel()
	env := kagzitest.New(t)
	kagzi.Handle(env.Worker, trial, func(ctx kagzi.Context, _ string) (string, error) {
		p, err := kagzi.Step(ctx, "authorize", func(context.Context) (payment, error) { return payment{}, errReal })
		if err != nil {
			return "", err
		}
		q, err := kagzi.StepTx(ctx, "store", func(context.Context, pgx.Tx) (*payment, error) { return nil, errReal })
		if err != nil {
			return "", err
		}
		if err := kagzi.Do(ctx, "tell", func(context.Context) error { return errReal }); err != nil {
			return "", err
		}
		if err := kagzi.DoTx(ctx, "mark", func(context.Context, pgx.Tx) error { return errReal }); err != nil {
			return "", err
		}
		return p.ID + q.ID, nil
	})
	kagzitest.Mock(env, "authorize", func(ctx context.Context) (payment, error) {
		return payment{fmt.Sprintf("%s/%d ", kagzi.CurrentStep(ctx).Step, kagzi.CurrentStep(ctx).Attempt)}, nil
	})
	kagzitest.Mock(env, "store", func(context.Context) (*payment, error) { return &payment{"stored"}, nil })
	told := 0
	kagzitest.MockDo(env, "tell", func(context.Context) error {
		if told++; told == 1 {
			return kagzi.KindUnavailable
		}
		return nil
	})
	kagzitest.MockDo(env, "mark", func(context.Context) error { return nil })
	run := kagzitest.Start(env, trial, "")
	got, err := kagzitest.Result(env, run)
	if err != nil || got != "authorize/1 stored" {
		t.Fatalf("got %q, %v", got, err)
	}
	mustSteps(t, env, run.ID(), "authorize", "store", "tell (unavailable)", "tell", "mark")
}

func TestMocksOfBranches(t *testing.T) {
	t.Parallel()
	env := kagzitest.New(t)
	ship := kagzi.Define[[]string, []string]("ship")
	kagzi.Handle(env.Worker, ship, func(ctx kagzi.Context, items []string) ([]string, error) {
		return kagzi.Map(ctx, "ship", items, func(ctx kagzi.Context, item string) (string, error) {
			return kagzi.Step(ctx, "pack", func(context.Context) (string, error) { return item, errReal })
		})
	})
	kagzitest.Mock(env, "pack", func(context.Context) (string, error) { return "any", nil })
	kagzitest.Mock(env, "ship/1/pack", func(context.Context) (string, error) { return "second", nil })
	got, err := kagzitest.Result(env, kagzitest.Start(env, ship, []string{"a", "b", "c"}))
	if err != nil || fmt.Sprint(got) != "[any second any]" {
		t.Fatalf("got %q, %v", got, err)
	}
}

func TestAMockOfAnotherTypeFailsTheTest(t *testing.T) {
	t.Parallel()
	fake := &fakeTB{TB: t}
	env := kagzitest.New(fake)
	kagzi.Handle(env.Worker, trial, func(ctx kagzi.Context, _ string) (string, error) {
		return kagzi.Step(ctx, "call", func(context.Context) (string, error) { return "", errReal })
	})
	kagzitest.Mock(env, "call", func(context.Context) (int, error) { return 7, nil })
	if _, err := kagzitest.Result(env, kagzitest.Start(env, trial, "")); err == nil {
		t.Error("the run completed")
	}
	mustReport(t, fake.end(), `the mock of step "call" returns a int, and the step a string`)
}
