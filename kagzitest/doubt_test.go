package kagzitest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/kagzitest"
)

// TestDoubt resolves a step in doubt in each of the three ways. The replay at the end of the test calls nothing.
func TestDoubt(t *testing.T) {
	t.Parallel()
	refund := kagzi.Define[string, string]("refund")
	env := kagzitest.New(t)
	kagzi.Handle(env.Worker, refund, func(ctx kagzi.Context, _ string) (string, error) {
		return kagzi.Step(ctx, "pay", func(context.Context) (string, error) { return "", errors.New("no such bank") },
			kagzi.AtMostOnce())
	})
	calls := 0
	kagzitest.Mock(env, "pay", func(context.Context) (string, error) {
		calls++
		return "", errors.New("connection reset")
	})
	for want, as := range map[string]admin.Resolution{
		"refund 77": admin.Happened("refund 77"), "": admin.GiveUp(errors.New("written off")),
	} {
		run := kagzitest.Start(env, refund, "")
		env.SkipTo(run.ID(), "doubt pay")
		if err := admin.New(env.Client).Runs.Resolve(t.Context(), run, "pay", as); err != nil {
			t.Fatal(err)
		}
		if got, err := kagzitest.Result(env, run); got != want || (err == nil) != (want != "") {
			t.Errorf("got %q, %v; want %q", got, err, want)
		}
	}
	run := kagzitest.Start(env, refund, "")
	env.SkipTo(run.ID(), "doubt pay")
	before := calls
	if err := admin.New(env.Client).Runs.Resolve(t.Context(), run, "pay", admin.DidNotHappen()); err != nil {
		t.Fatal(err)
	}
	env.SkipTo(run.ID(), "doubt pay")
	if err := admin.New(env.Client).Runs.Resolve(t.Context(), run, "pay", admin.Happened("later")); err != nil {
		t.Fatal(err)
	}
	if got, err := kagzitest.Result(env, run); got != "later" || err != nil || calls != before+1 {
		t.Errorf("got %q, %v, after %d calls", got, err, calls-before)
	}
}

// TestReconcileIsAskedAgain: the clock goes through the pauses between two questions.
func TestReconcileIsAskedAgain(t *testing.T) {
	t.Parallel()
	refund := kagzi.Define[string, time.Duration]("refund")
	env := kagzitest.New(t)
	asked := 0
	kagzi.Handle(env.Worker, refund, func(ctx kagzi.Context, _ string) (time.Duration, error) {
		begun := ctx.Now()
		reset := func(context.Context) (int, error) { return 0, errors.New("connection reset") }
		_, err := kagzi.Step(ctx, "pay", reset, kagzi.AtMostOnce(),
			kagzi.Reconcile(func(context.Context) (int, bool, error) {
				if asked++; asked < 6 {
					return 0, false, errors.New("the bank is closed")
				}
				return 1, true, nil
			}))
		return ctx.Now().Sub(begun), err
	})
	took, err := kagzitest.Result(env, kagzitest.Start(env, refund, ""))
	if err != nil || took < time.Minute || asked != 6 {
		t.Errorf("it took %v and %d questions, %v", took, asked, err)
	}
}
