package doubt_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/kind"
)

func TestWrongOptions(t *testing.T) {
	t.Parallel()
	asks := kagzi.Reconcile(func(context.Context) (int, bool, error) { return 0, false, nil })
	for says, opts := range map[string][]kagzi.StepOption{
		"give it AtMostOnce, too":                {asks},
		"contradict each other":                  {kagzi.AtMostOnce(), kagzi.Repeatable()},
		"the function of Reconcile is nil":       {kagzi.AtMostOnce(), kagzi.Reconcile[int](nil)},
		"returns string, and the step int":       {kagzi.AtMostOnce(), kagzi.Reconcile(text)},
		"a StepTx happens exactly once: leave A": nil, // see below
	} {
		t.Run(says, func(t *testing.T) {
			k := kit.New(t)
			failed := kit.Refused(k, func(ctx kagzi.Context) (int, error) {
				if opts == nil {
					return kagzi.StepTx(ctx, "pay", func(context.Context, pgx.Tx) (int, error) { return 0, nil },
						kagzi.AtMostOnce())
				}
				return kagzi.Step(ctx, "pay", func(context.Context) (int, error) { return 0, nil }, opts...)
			})
			if failed.Kind != kind.BadRequest {
				t.Errorf("failed with %v", failed)
			}
			kit.MustContain(t, failed, says)
		})
	}
}

func text(context.Context) (string, bool, error) { return "", false, nil }

func TestWrongResolutions(t *testing.T) {
	k := kit.New(t)
	p := &provider{does: always(0, errReset)}
	kit.Serve(k, refund, p.workflow())
	run := kit.Begin(k, refund, struct{}{})
	inDoubt(k, run)
	runs := admin.New(k.Client).Runs
	for says, err := range map[string]error{
		"the resolution is empty":      runs.Resolve(k.Ctx, run, "pay", admin.Resolution{}),
		"the error of GiveUp is nil":   runs.Resolve(k.Ctx, run, "pay", admin.GiveUp(nil)),
		"or has another name":          runs.Resolve(k.Ctx, run, "other", admin.DidNotHappen()),
		"not found":                    runs.Resolve(k.Ctx, kagzi.ID("no such"), "pay", admin.DidNotHappen()),
		"kagzi: resolve \"\" of":       runs.Resolve(k.Ctx, run, "", admin.DidNotHappen()),
		"a chan int cannot be encoded": runs.Resolve(k.Ctx, run, "pay", admin.Happened(make(chan int))),
	} {
		if err == nil {
			t.Errorf("no error with %q", says)
			continue
		}
		kit.MustContain(t, err, says)
	}
	if err := runs.Resolve(k.Ctx, run, "other", admin.DidNotHappen()); !errors.Is(err, admin.ErrNoDoubt) {
		t.Errorf("got %v", err)
	}
	resolve(k, run, admin.Happened(7))
	if got := kit.ResultOf(k, run); got != 7 {
		t.Errorf("got %d", got)
	}
}
