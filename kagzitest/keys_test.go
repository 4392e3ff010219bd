package kagzitest_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/kagzitest"
)

// napping returns an environment whose worker has code for the workflow trial: it sleeps for an hour.
func napping(t *testing.T) *kagzitest.Env {
	env := kagzitest.New(t)
	kagzi.Handle(env.Worker, trial, func(ctx kagzi.Context, name string) (string, error) {
		return name, kagzi.Sleep(ctx, "nap", time.Hour)
	})
	return env
}

// begun returns how many of the runs have begun, and how many have ended.
func begun(t *testing.T, env *kagzitest.Env, runs []*kagzi.Run[string]) (begun, ended int) {
	t.Helper()
	for _, run := range runs {
		info := infoOf(t, env, run.ID())
		if !info.StartedAt.IsZero() {
			begun++
		}
		if info.Status.Ended() {
			ended++
		}
	}
	return begun, ended
}

func mustSet(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Runs that wait for a slot do not hold up the clock, and they begin when the one before has ended.
func TestRunsThatWaitForASlot(t *testing.T) {
	t.Parallel()
	one := admin.KeyLimits{MaxRunning: 1}
	for name, c := range map[string]struct {
		limits admin.QueueLimits
		option func(i int) kagzi.StartOption
	}{
		"Key": {admin.QueueLimits{EachKey: one, Hold: true}, func(int) kagzi.StartOption { return kagzi.Key("ada") }},
		"Queue": {admin.QueueLimits{MaxRunning: 1, Hold: true}, func(int) kagzi.StartOption {
			return kagzi.Priority(3)
		}},
		"Both": {admin.QueueLimits{MaxRunning: 1, Hold: true, EachKey: one}, func(i int) kagzi.StartOption {
			return kagzi.Key(fmt.Sprint(i))
		}},
		"Group": {admin.QueueLimits{}, func(int) kagzi.StartOption { return kagzi.Group("mail") }},
		"Rate": {
			admin.QueueLimits{Rate: admin.Rate{Starts: 1, Per: time.Hour}, Hold: true},
			func(int) kagzi.StartOption { return kagzi.Priority(3) },
		},
		"KeyRate": {
			admin.QueueLimits{EachKey: admin.KeyLimits{Rate: admin.Rate{Starts: 1, Per: time.Hour}}, Hold: true},
			func(int) kagzi.StartOption { return kagzi.Key("ada") },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := napping(t)
			c.limits.Queue = "default"
			mustSet(t, admin.New(env.Client).Queues.Set(t.Context(), c.limits))
			from := env.Now()
			var runs []*kagzi.Run[string]
			for i := range 3 {
				runs = append(runs, kagzitest.Start(env, trial, fmt.Sprint(i), c.option(i)))
			}
			env.Advance(0)
			if n, ended := begun(t, env, runs); n != 1 || ended != 0 {
				t.Errorf("at once %d have begun, %d have ended", n, ended)
			}
			env.Advance(90 * time.Minute)
			if n, ended := begun(t, env, runs); n != 2 || ended != 1 {
				t.Errorf("after 90 minutes %d have begun, %d have ended", n, ended)
			}
			for i := len(runs) - 1; i >= 0; i-- {
				if out, err := kagzitest.Result(env, runs[i]); out != fmt.Sprint(i) || err != nil {
					t.Errorf("run %d: %q, %v", i, out, err)
				}
			}
			if took := env.Now().Sub(from).Round(time.Minute); took != 3*time.Hour {
				t.Errorf("three runs took %v", took)
			}
		})
	}
}

// A pause does not hold up the clock. What it stops goes on when it ends.
func TestPausedRunsStandStill(t *testing.T) {
	t.Parallel()
	for name, target := range map[string]admin.Target{
		"All": {All: true}, "Queue": {Queue: "default"}, "Workflow": {Workflow: trial.Name()},
		"Key": {Queue: "default", Key: "ada"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := napping(t)
			mustSet(t, admin.New(env.Client).Pauses.Set(t.Context(), target))
			run := kagzitest.Start(env, trial, "x", kagzi.Key("ada"))
			env.Advance(24 * time.Hour)
			if info := infoOf(t, env, run.ID()); !info.StartedAt.IsZero() {
				t.Errorf("the run has begun: %+v", info)
			}
			mustSet(t, admin.New(env.Client).Pauses.End(t.Context(), target))
			if out, err := kagzitest.Result(env, run); out != "x" || err != nil {
				t.Error(out, err)
			}
		})
	}

	t.Run("Run", func(t *testing.T) {
		t.Parallel()
		env := napping(t)
		run := kagzitest.Start(env, trial, "x")
		env.Advance(time.Minute)
		mustSet(t, admin.New(env.Client).Runs.Pause(t.Context(), run.ID()))
		env.Advance(24 * time.Hour)
		if info := infoOf(t, env, run.ID()); info.Status.Ended() {
			t.Errorf("the run has ended: %+v", info)
		}
		mustSet(t, admin.New(env.Client).Runs.Unpause(t.Context(), run.ID()))
		if out, err := kagzitest.Result(env, run); out != "x" || err != nil {
			t.Error(out, err)
		}
	})
}

// The runs of a schedule whose workflow has a key are executed one at a time.
func TestScheduleWithAKey(t *testing.T) {
	t.Parallel()
	env := kagzitest.New(t)
	mustSet(t, admin.New(env.Client).Queues.Set(t.Context(),
		admin.QueueLimits{Queue: "default", EachKey: admin.KeyLimits{MaxRunning: 1}, Hold: true}))
	report := kagzi.Define[struct{}, string]("report", kagzi.Key("reports"))
	kagzi.Handle(env.Worker, report, func(ctx kagzi.Context, _ struct{}) (string, error) {
		return "", kagzi.Sleep(ctx, "nap", 90*time.Minute)
	})
	env.StartWorker()
	mustSet(t, env.Client.Schedule(t.Context(), kagzi.Schedule{
		Name: "hourly", Cron: "@hourly",
		Run: report.With(struct{}{}),
	}))
	env.Advance(12 * time.Hour)
	page, err := env.Client.List(t.Context(), kagzi.RunFilter{Workflow: "report", Limit: 100})
	mustSet(t, err)
	active, over := 0, time.Time{}
	for i := len(page) - 1; i >= 0; i-- { // the oldest first
		r := page[i]
		if !r.StartedAt.IsZero() && r.StartedAt.Before(over.Add(-time.Minute)) {
			t.Errorf("run %d began at %v, before %v", i, r.StartedAt, over)
		}
		switch {
		case r.Status.Ended():
			over = r.EndedAt
		case !r.StartedAt.IsZero():
			active++
		}
	}
	if len(page) != 12 || active != 1 || over.IsZero() {
		t.Errorf("%d runs, %d of them active, the last one ended at %v", len(page), active, over)
	}
}
