package kagzitest_test

import (
	"context"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/kagzitest"
)

// Runs wait for a limit as they do in production, and the test does not wait with them.
func TestLimitedSteps(t *testing.T) {
	t.Parallel()
	env := kagzitest.New(t)
	if err := admin.New(env.Client).Limits.Set(t.Context(),
		admin.StepLimit{Name: "mail", Rate: admin.Rate{Starts: 1, Per: time.Hour}, MaxRunning: 1}); err != nil {
		t.Fatal(err)
	}
	kagzi.Handle(env.Worker, trial, func(ctx kagzi.Context, _ string) (string, error) {
		return kagzi.Step(ctx, "mail", func(context.Context) (string, error) { return "sent", nil },
			kagzi.Limit("mail"))
	})
	begun := env.Now()
	var runs []*kagzi.Run[string]
	for range 4 {
		runs = append(runs, kagzitest.Start(env, trial, "x"))
	}
	env.Advance(30 * time.Minute)
	sent := 0
	for _, run := range runs {
		if infoOf(t, env, run.ID()).Status == kagzi.StatusCompleted {
			sent++
		}
	}
	mustEqual(t, "sent within half an hour", sent, 1)
	for _, run := range runs {
		if got, err := kagzitest.Result(env, run); got != "sent" || err != nil {
			t.Errorf("result %q, %v", got, err)
		}
	}
	if took := env.Now().Sub(begun); took < 3*time.Hour || took > 4*time.Hour {
		t.Errorf("four mails took %v, want three hours", took)
	}
}
