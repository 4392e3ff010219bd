package kagzitest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/kagzitest"
)

// Each run is executed with one version of the code and replayed with another.
func TestReplayFindsWhatChanged(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		was, now code
		want     []string // nil: no divergence
	}{
		{
			"Nothing",
			func(ctx kagzi.Context, _ string) (string, error) {
				return "done", errors.Join(do(ctx, "a"), kagzi.Sleep(ctx, "nap", day), do(ctx, "a"))
			},
			func(ctx kagzi.Context, _ string) (string, error) {
				return "done", errors.Join(do(ctx, "a"), kagzi.Sleep(ctx, "nap", 2*day), do(ctx, "a"))
			},
			nil,
		},
		{
			"ANewStep",
			func(ctx kagzi.Context, _ string) (string, error) { return "", do(ctx, "a") },
			func(ctx kagzi.Context, _ string) (string, error) { return "", errors.Join(do(ctx, "a"), do(ctx, "b")) },
			[]string{`the code comes to a step "b", which the history does not have`},
		},
		{
			"ANewSleep",
			func(ctx kagzi.Context, _ string) (string, error) { return "", nil },
			func(ctx kagzi.Context, _ string) (string, error) { return "", kagzi.Sleep(ctx, "nap", day) },
			[]string{`the code comes to a sleep "nap", which the history does not have`},
		},
		{
			"ANewStepInABranch",
			func(ctx kagzi.Context, _ string) (string, error) {
				return "", kagzi.Parallel(ctx, "both", map[string]func(kagzi.Context) error{
					"x": func(ctx kagzi.Context) error { return do(ctx, "a") },
				})
			},
			func(ctx kagzi.Context, _ string) (string, error) {
				return "", kagzi.Parallel(ctx, "both", map[string]func(kagzi.Context) error{
					"x": func(ctx kagzi.Context) error { return do(ctx, "a") },
					"y": func(ctx kagzi.Context) error { return do(ctx, "a") },
				})
			},
			[]string{`the code comes to a step "both/y/a", which the history does not have`},
		},
		{
			"AnotherKind",
			func(ctx kagzi.Context, _ string) (string, error) { return "", do(ctx, "a") },
			func(ctx kagzi.Context, _ string) (string, error) { return "", kagzi.Sleep(ctx, "a", day) },
			[]string{`step "a" was recorded as a step, and the code now uses the name for a sleep`},
		},
		{
			"AnotherResultType",
			func(ctx kagzi.Context, _ string) (string, error) {
				return kagzi.Step(ctx, "a", func(context.Context) (string, error) { return "text", nil })
			},
			func(ctx kagzi.Context, _ string) (string, error) {
				n, err := kagzi.Step(ctx, "a", func(context.Context) (int, error) { return 1, nil })
				return fmt.Sprint(n), err
			},
			[]string{`the recorded result of step "a" does not decode into int`},
		},
		{
			"AnotherOutput",
			func(ctx kagzi.Context, _ string) (string, error) { return "old", nil },
			func(ctx kagzi.Context, _ string) (string, error) { return "new", nil },
			[]string{`it completed with "new"; the run completed with "old"`},
		},
		{
			"AnError",
			func(ctx kagzi.Context, _ string) (string, error) { return "fine", nil },
			func(ctx kagzi.Context, _ string) (string, error) { return "", kagzi.Permanent(errors.New("refused")) },
			[]string{`it failed (unknown): refused; the run completed with "fine"`},
		},
		{
			"AnotherError",
			func(ctx kagzi.Context, _ string) (string, error) { return "", fail(ctx, "a") },
			func(ctx kagzi.Context, _ string) (string, error) {
				return "", kagzi.Permanent(fmt.Errorf("order: %w", fail(ctx, "a")))
			},
			[]string{`it failed (unknown): order: `, `; the run failed (unknown): `},
		},
		{
			"TheSameError",
			func(ctx kagzi.Context, _ string) (string, error) {
				return "", errors.Join(do(ctx, "a"), fail(ctx, "b"))
			},
			func(ctx kagzi.Context, _ string) (string, error) {
				return "", errors.Join(do(ctx, "a"), fail(ctx, "b"))
			},
			nil,
		},
		{
			"APanic",
			func(ctx kagzi.Context, _ string) (string, error) { return "fine", nil },
			func(ctx kagzi.Context, _ string) (string, error) { panic("oh") },
			[]string{`it failed (panic): panic: oh`, `; the run completed with "fine"`},
		},
		{
			"TheSamePanic",
			func(ctx kagzi.Context, _ string) (string, error) { panic("oh") },
			func(ctx kagzi.Context, _ string) (string, error) { panic("oh") },
			nil,
		},
		{
			"NoEnd",
			func(ctx kagzi.Context, _ string) (string, error) { return "", do(ctx, "a") },
			func(ctx kagzi.Context, _ string) (string, error) {
				f := kagzi.Go(ctx, "x", func(ctx kagzi.Context) (string, error) { return "", do(ctx, "new") })
				return f.Result(ctx)
			},
			[]string{`the code comes to a step "x/new", which the history does not have`},
		},
		{
			"FewerSteps",
			func(ctx kagzi.Context, _ string) (string, error) { return "", errors.Join(do(ctx, "a"), do(ctx, "b")) },
			func(ctx kagzi.Context, _ string) (string, error) { return "", do(ctx, "b") },
			nil,
		},
		{
			"AFailureThatWasCompensated",
			compensated("c"), compensated("c"), nil,
		},
		{
			"AnotherFailureThatWasCompensated",
			compensated("c"),
			func(ctx kagzi.Context, _ string) (string, error) {
				_, err := compensated("c")(ctx, "")
				return "", fmt.Errorf("order: %w", err)
			},
			[]string{`it failed (unknown): order: `, `; the run failed (unknown): `},
		},
		{
			"AFailureElsewhereThatWasCompensated",
			compensated("c"), compensated("d"),
			[]string{`the code comes to a step "d", which the history does not have`},
		},
		{
			"ARaceIsRunByItsWinner",
			race, race, nil,
		},
		{
			"ABranchThatAFailureCancelled",
			orphan(nil), orphan(make(chan struct{})), nil,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			env := kagzitest.New(t)
			kagzi.Handle(env.Worker, trial, c.was)
			kagzi.Handle(env.Worker, release, func(ctx kagzi.Context, what string) (string, error) {
				return what, do(ctx, "free")
			})
			run := kagzitest.Start(env, trial, "", kagzi.RetryPolicy{MaxAttempts: 1})
			env.Skip(run.ID())
			before := env.Steps(run.ID())
			fake := &fakeTB{TB: t}
			n := kagzitest.Replay(fake, env.Client, trial, c.now, kagzi.RunFilter{})
			mustEqual(t, "replayed", n, 1)
			if got := fake.end(); c.want == nil && len(got) > 0 {
				t.Errorf("reported: %q", got)
			} else if c.want != nil {
				mustReport(t, got, append(c.want, string(run.ID()))...)
			}
			mustSteps(t, env, run.ID(), before...)
		})
	}
}

func race(ctx kagzi.Context, _ string) (string, error) {
	winner, _, err := kagzi.Race(ctx, "first", map[string]func(kagzi.Context) (string, error){
		"quick": func(ctx kagzi.Context) (string, error) { return "", do(ctx, "a") },
		"slow":  func(ctx kagzi.Context) (string, error) { return "", kagzi.Sleep(ctx, "nap", 30*day) },
	})
	return winner, err
}

// compensated is code that fails at a step and is then compensated.
func compensated(step string) code {
	return func(ctx kagzi.Context, _ string) (string, error) {
		kagzi.Compensate(ctx, "reserve", release.With("table 7"))
		return "", errors.Join(do(ctx, "reserve"), fail(ctx, step))
	}
}

// orphan is code that fails while one of its branches sleeps; if gone is not nil, after that branch has exited.
func orphan(gone chan struct{}) code {
	return func(ctx kagzi.Context, _ string) (string, error) {
		kagzi.Go(ctx, "slow", func(ctx kagzi.Context) (string, error) {
			if gone != nil {
				defer close(gone)
			}
			return "", errors.Join(do(ctx, "a"), kagzi.Sleep(ctx, "nap", time.Hour), do(ctx, "b"))
		})
		if err := kagzi.Sleep(ctx, "wait", time.Minute); err != nil {
			return "", err
		}
		if gone != nil {
			<-gone
		}
		return "", fail(ctx, "c")
	}
}
