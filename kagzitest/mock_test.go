package kagzitest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/kagzitest"
	"github.com/kagzi/kagzi/kind"
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
			return kind.Unavailable
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
	mustReport(t, fake.end(), `the mock of step "call" returns int, but the step returns string`)
}

func TestAMockThatReturnsNothingIsNoneOfAStepWithAResult(t *testing.T) {
	t.Parallel()
	got := reports(t, func(env *kagzitest.Env) {
		kagzi.Handle(env.Worker, trial, func(ctx kagzi.Context, _ string) (string, error) {
			return kagzi.Step(ctx, "call", func(context.Context) (string, error) { return "", errReal })
		})
		kagzitest.MockDo(env, "call", func(context.Context) error { return nil })
		if _, err := kagzitest.Result(env, kagzitest.Start(env, trial, "")); err == nil {
			t.Error("the run completed")
		}
	})
	mustReport(t, got, `the mock of step "call" returns nothing, but the step returns string: use Mock`)
}

func TestAMockNeedsAName(t *testing.T) {
	t.Parallel()
	got := reports(t, func(env *kagzitest.Env) {
		kagzitest.MockDo(env, "", func(context.Context) error { return nil })
	})
	mustReport(t, got, "the mock has no name: give the name of the step")
}

func TestAMockThatNoStepCallsFailsTheTest(t *testing.T) {
	t.Parallel()
	test := func(env *kagzitest.Env) {
		kagzi.Handle(env.Worker, trial, func(ctx kagzi.Context, _ string) (string, error) {
			if err := kagzi.Do(ctx, "greet", func(context.Context) error { return nil }); err != nil {
				return "", err
			}
			return kagzi.Step(ctx, "authorize", func(context.Context) (string, error) { return "", nil })
		})
		kagzitest.Mock(env, "authorise", func(context.Context) (string, error) { return "", nil })
		_, _ = kagzitest.Result(env, kagzitest.Start(env, trial, ""))
	}
	mustReport(t, reports(t, test), `the mock of step "authorise" was never called; steps that ran: authorize, greet`)
	if got := reports(t, test, kagzitest.Config{SpareMocks: true}); len(got) > 0 {
		t.Errorf("with SpareMocks: %q", got)
	}
	nothingRan := func(env *kagzitest.Env) {
		kagzitest.Mock(env, "authorise", func(context.Context) (string, error) { return "", nil })
	}
	if got := reports(t, nothingRan); len(got) > 0 {
		t.Errorf("where nothing ran: %q", got)
	}
}

func TestAMockOfOneWorkflow(t *testing.T) {
	t.Parallel()
	env := kagzitest.New(t)
	load := func(ctx kagzi.Context) (string, error) {
		return kagzi.Step(ctx, "load", func(context.Context) (string, error) { return "", errReal })
	}
	kagzi.Handle(env.Worker, parcel, func(ctx kagzi.Context, _ string) (string, error) { return load(ctx) })
	kagzi.Handle(env.Worker, trial, func(ctx kagzi.Context, item string) (string, error) {
		mine, err := load(ctx)
		if err != nil {
			return "", err
		}
		childs, err := kagzi.RunChild(ctx, "ship", parcel, item)
		return mine + " " + childs, err
	})
	kagzitest.Mock(env, "load", func(context.Context) (string, error) { return "any", nil })
	kagzitest.Mock(env, "parcel:load", func(context.Context) (string, error) { return "the parcel's", nil })
	got, err := kagzitest.Result(env, kagzitest.Start(env, trial, ""))
	if err != nil || got != "any the parcel's" {
		t.Fatalf("got %q, %v", got, err)
	}
}
