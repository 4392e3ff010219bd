package kagzitest_test

import (
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/kagzitest"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/request"
)

// TestAsk asks a run whose clock the test moves, from the test and from another run.
func TestAsk(t *testing.T) {
	t.Parallel()
	twice := request.Define[int, int]("twice")
	asked, asks := kagzi.Define[string, string]("asked"), kagzi.Define[string, int]("asks")
	env := kagzitest.New(t)
	kagzi.Handle(env.Worker, asked, func(ctx kagzi.Context, _ string) (string, error) {
		if err := kagzi.Sleep(ctx, "an hour", time.Hour); err != nil {
			return "", err
		}
		for range 2 {
			r, err := request.Wait(ctx, twice)
			if err != nil {
				return "", err
			}
			if err := r.Reply(ctx, 2*r.In); err != nil {
				return "", err
			}
		}
		return "", nil
	})
	kagzi.Handle(env.Worker, asks, func(ctx kagzi.Context, _ string) (int, error) {
		return request.AskStep(ctx, "ask", kagzi.ID("asked"), twice.With(2))
	})
	run := kagzitest.Start(env, asked, "", kagzi.ID("asked"))
	other := kagzitest.Start(env, asks, "")
	env.SkipTo(run.ID(), "request twice")
	if got, err := kagzitest.Result(env, other); err != nil || got != 4 {
		t.Errorf("the run got %d, %v", got, err)
	}
	if got, err := request.Ask(t.Context(), env.Client, run, twice.With(5)); err != nil || got != 10 {
		t.Errorf("the test got %d, %v", got, err)
	}
}

// TestAskWithin: who asks learns that its question has expired when that happens, and not at its next look.
func TestAskWithin(t *testing.T) {
	t.Parallel()
	twice := request.Define[int, int]("twice")
	asked, asks := kagzi.Define[string, string]("asked"), kagzi.Define[string, time.Duration]("asks")
	env := kagzitest.New(t)
	kagzi.Handle(env.Worker, asked, func(ctx kagzi.Context, _ string) (string, error) {
		return "", kagzi.Sleep(ctx, "a day", 24*time.Hour)
	})
	const within = 150 * time.Minute
	kagzi.Handle(env.Worker, asks, func(ctx kagzi.Context, _ string) (time.Duration, error) {
		begun := ctx.Now()
		_, err := request.AskStep(ctx, "ask", kagzi.ID("asked"), twice.With(2).Within(within))
		if kagzi.KindOf(err) != kind.Timeout {
			t.Errorf("asked in vain: %v", err)
		}
		return ctx.Now().Sub(begun), nil
	})
	kagzitest.Start(env, asked, "", kagzi.ID("asked"))
	took, err := kagzitest.Result(env, kagzitest.Start(env, asks, ""))
	if err != nil || took < within || took > within+time.Minute {
		t.Errorf("it took %v, %v; want %v", took, err, within)
	}
}
