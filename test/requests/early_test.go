package requests_test

import (
	"context"
	"testing"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/request"
)

// TestResultsAreWrittenBeforeARunAsks executes a step and asks another run with its result. That run finds the result
// in the table: after a crash, the step could return another one, and the question would have been answered already.
func TestResultsAreWrittenBeforeARunAsks(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]kagzi.StepOption{"Ordinary": nil, "Repeatable": {kagzi.Repeatable()}} {
		t.Run(name, func(t *testing.T) {
			k := kit.New(t)
			kit.Serve(k, cart, func(ctx kagzi.Context, _ struct{}) (int, error) {
				r, err := request.Wait(ctx, add)
				if err != nil {
					return 0, err
				}
				return 0, r.Reply(ctx, k.Count(`SELECT count(*) FROM kagzi.step_runs WHERE step_id = 'amount'`))
			})
			to := kit.Begin(k, cart, struct{}{})
			k.WaitStatus(to, kagzi.StatusSleeping)
			kit.Serve(k, asker, func(ctx kagzi.Context, _ struct{}) (int, error) {
				n, err := kagzi.Step(ctx, "amount", func(context.Context) (int, error) { return 4, nil }, opts...)
				if err != nil {
					return 0, err
				}
				return request.AskStep(ctx, "ask", to, add.With(n))
			})
			if got := kit.ResultOf(k, kit.Begin(k, asker, struct{}{})); got != 1 {
				t.Errorf("%d results are written when the question comes", got)
			}
		})
	}
}
