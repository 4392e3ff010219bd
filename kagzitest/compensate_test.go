package kagzitest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/kagzitest"
	"github.com/kagzi/kagzi/kind"
)

// release is a compensation.
var release = kagzi.Define[string, string]("release")

// reserved reserves a table for a month, unless the next step ends first.
func reserved(ctx kagzi.Context, what string) (string, error) {
	kagzi.Compensate(ctx, "reserve", release.With(what))
	return "", errors.Join(do(ctx, "reserve"), kagzi.Sleep(ctx, "month", 30*day), fail(ctx, "charge"))
}

// released takes a day, and another for its second attempt.
func released(ctx kagzi.Context, what string) (string, error) {
	if err := kagzi.Sleep(ctx, "notice", day); err != nil {
		return "", err
	}
	return kagzi.Step(ctx, "free", func(ctx context.Context) (string, error) {
		if kagzi.CurrentStep(ctx).Attempt == 1 {
			return "", errors.New("closed today")
		}
		return what, nil
	}, kagzi.RetryPolicy{MaxAttempts: 2, Backoff: day, NoJitter: true})
}

// Skip covers the time of compensations like that of other runs, and a run has ended only when its compensations have.
func TestTimePassesWhileARunCompensates(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(t *testing.T, env *kagzitest.Env, run *kagzi.Run[string]){
		"Failed": func(_ *testing.T, env *kagzitest.Env, run *kagzi.Run[string]) {
			env.SkipTo(run.ID(), "timer month")
			env.Advance(30 * day)
		},
		"Cancelled": func(t *testing.T, env *kagzitest.Env, run *kagzi.Run[string]) {
			env.Advance(0)
			if err := env.Client.Cancel(t.Context(), run.ID()); err != nil {
				t.Fatal(err)
			}
		},
		"OverItsTimeout": func(_ *testing.T, env *kagzitest.Env, _ *kagzi.Run[string]) { env.Advance(20 * day) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := map[string]kagzi.Status{
				"Failed": kagzi.StatusFailed, "Cancelled": kagzi.StatusCancelled,
				"OverItsTimeout": kagzi.StatusFailed,
			}[name]
			begin := func() (*kagzitest.Env, *kagzi.Run[string]) {
				env := kagzitest.New(t)
				kagzi.Handle(env.Worker, trial, reserved)
				kagzi.Handle(env.Worker, release, released)
				var opts []kagzi.StartOption
				if name == "OverItsTimeout" {
					opts = append(opts, kagzi.Timeout(20*day))
				}
				run := kagzitest.Start(env, trial, "table 7", opts...)
				end(t, env, run)
				return env, run
			}
			env, run := begin()
			env.Advance(0)
			info := infoOf(t, env, run.ID())
			mustEqual(t, "status before its compensation has run", info.Status, kagzi.StatusSleeping)
			mustEqual(t, "what it waits for", info.WaitingOn.String(), "compensation reserve")
			env.Advance(day + time.Hour)
			mustEqual(t, "status after the first attempt", infoOf(t, env, run.ID()).Status, kagzi.StatusSleeping)
			env.Advance(day)
			mustEqual(t, "status", infoOf(t, env, run.ID()).Status, want)

			env, run = begin()
			mustEqual(t, "skipped to the compensation", env.SkipTo(run.ID(), "compensation reserve"), 0)
			mustEqual(t, "skipped", env.Skip(run.ID()).Round(time.Hour), 2*day)
			mustEqual(t, "status", infoOf(t, env, run.ID()).Status, want)

			env, run = begin()
			if _, err := kagzitest.Result(env, run); err == nil {
				t.Error("no error of a run that was compensated")
			}
			steps := env.Steps(run.ID())
			mustEqual(t, "the last that ran", steps[len(steps)-1], "reserve#compensation")
		})
	}
}

// The failure names a compensation for which the test has given no code.
func TestResultOfARunWhoseCompensationHasNoCode(t *testing.T) {
	t.Parallel()
	got := reports(t, func(env *kagzitest.Env) {
		env.SetStuck(100 * time.Millisecond)
		kagzi.Handle(env.Worker, trial, reserved)
		_, _ = kagzitest.Result(env, kagzitest.Start(env, trial, "table 7"))
	})
	mustReport(t, got, ` makes no progress: it is SLEEPING and waits for "compensation reserve"; run `,
		` of release is PENDING and no worker on queue "default" has code for workflow "release": give it to `+
			`env.Worker with kagzi.Handle`)
}

// A run whose compensation fails ends with that failure, until it is resumed.
func TestACompensationThatFails(t *testing.T) {
	t.Parallel()
	env := kagzitest.New(t)
	kagzi.Handle(env.Worker, trial, reserved)
	kagzi.Handle(env.Worker, release, func(ctx kagzi.Context, what string) (string, error) {
		return what, do(ctx, "free")
	})
	kagzitest.MockDo(env, "release:free", func(context.Context) error {
		return kagzi.Permanent(errors.New("the table is taken"))
	})
	run := kagzitest.Start(env, trial, "table 7")
	if _, err := kagzitest.Result(env, run); !errors.Is(err, kind.Compensation) {
		t.Fatalf("got %v, want a compensation that failed", err)
	}
	mustSteps(t, env, run.ID(), "reserve", "month", "charge (unknown)", "reserve#compensation (unknown)")
	kagzitest.MockDo(env, "release:free", func(context.Context) error { return nil })
	if err := admin.New(env.Client).Runs.Resume(t.Context(), run.ID()); err != nil {
		t.Fatal(err)
	}
	if _, err := kagzitest.Result(env, run); !errors.Is(err, kind.Unknown) {
		t.Errorf("got %v, want the failure of the run itself", err)
	}
	mustSteps(t, env, run.ID(), "reserve", "month", "charge (unknown)", "reserve#compensation")
}

// A run continues its compensations although no worker has its code and no claim has noticed that it is due. Skip waits
// for that, too.
func TestARunCompensatesWithoutItsCode(t *testing.T) {
	t.Parallel()
	env := kagzitest.New(t,
		kagzitest.Config{
			Worker: kagzi.WorkerConfig{Coordinator: kagzi.CoordinatorConfig{Interval: 50 * time.Millisecond}},
		})
	kagzi.Handle(env.Worker, release, func(_ kagzi.Context, what string) (string, error) { return what, nil })
	run := kagzitest.Start(env, trial, "table 7") // which no worker claims
	for i, name := range []string{"a", "b"} {
		if _, err := env.Pool.Exec(t.Context(), `INSERT INTO kagzi.step_runs (run_id, namespace_id, step_id,
			attempt_number, status, step_kind, run_attempt, first_attempt, sequence, call, input)
			VALUES ($1, 'default', $2 || '#compensation', 1, 'RUNNING', 'COMPENSATION', 1, 1, $3, '{"type": "release"}',
				'"table 7"')`, string(run.ID()), name, i); err != nil {
			t.Fatal(err)
		}
	}
	if err := env.Client.Cancel(t.Context(), run.ID()); err != nil {
		t.Fatal(err)
	}
	if _, err := env.Pool.Exec(t.Context(), `UPDATE kagzi.workflow_runs SET available_at = now() WHERE run_id = $1`,
		string(run.ID())); err != nil {
		t.Fatal(err)
	}
	env.Advance(0)
	mustEqual(t, "status", infoOf(t, env, run.ID()).Status, kagzi.StatusCancelled)
}
