package kagzitest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/kagzitest"
	"github.com/kagzi/kagzi/kind"
)

func TestEachDatabaseHasItsOwnTime(t *testing.T) {
	t.Parallel()
	one, other := kagzitest.New(t), kagzitest.New(t)
	for _, env := range []*kagzitest.Env{one, other} {
		kagzi.Handle(env.Worker, trial, threeMonths)
	}
	late := kagzitest.Start(other, trial, "late")
	early := kagzitest.Start(one, trial, "early")
	one.Advance(91 * day)
	if _, err := early.Result(t.Context()); err != nil {
		t.Fatal(err)
	}
	other.Advance(0)
	mustEqual(t, "status of the other", infoOf(t, other, late.ID()).Status, kagzi.StatusSleeping)
	if ahead := one.Now().Sub(other.Now()); ahead < 90*day {
		t.Errorf("one is ahead by %v only", ahead)
	}
	if behind := time.Until(other.Now()); behind < -time.Hour || behind > time.Hour {
		t.Errorf("the other's time is off by %v", behind)
	}
}

func TestTheApplicationsTablesHaveTheTimeToo(t *testing.T) {
	t.Parallel()
	env := kagzitest.New(t)
	if _, err := env.Pool.Exec(t.Context(),
		`CREATE TABLE orders (id int, created_at timestamptz NOT NULL DEFAULT now())`); err != nil {
		t.Fatal(err)
	}
	kagzi.Handle(env.Worker, trial, func(ctx kagzi.Context, _ string) (string, error) { return "", nil })
	env.Advance(365 * day)
	var schema string
	if err := env.Pool.QueryRow(t.Context(), `SELECT current_schema()`).Scan(&schema); err != nil {
		t.Fatal(err)
	}
	mustEqual(t, "schema", schema, "public")
	var age time.Duration
	var created time.Time
	if err := env.Pool.QueryRow(t.Context(), `INSERT INTO orders VALUES (1) RETURNING now() - created_at, created_at`).
		Scan(&age, &created); err != nil {
		t.Fatal(err)
	}
	mustEqual(t, "age", age, 0)
	if time.Until(created) < 364*day {
		t.Errorf("created at %v", created)
	}
}

// A gate is a step function that waits until the test opens it.
type gate struct{ reached, open chan struct{} }

func newGate() *gate { return &gate{make(chan struct{}, 100), make(chan struct{})} }

func (g *gate) pass(context.Context) error {
	g.reached <- struct{}{}
	<-g.open
	return nil
}

// besideSlow gives env code whose run stays in memory, because a step waits at the gate. Another branch sleeps three
// times, each time followed by a step.
func (g *gate) besideSlow(env *kagzitest.Env, branch, step string, wait func(kagzi.Context) error) {
	kagzi.Handle(env.Worker, trial, func(ctx kagzi.Context, _ string) (string, error) {
		return "", kagzi.Parallel(ctx, "both", map[string]func(kagzi.Context) error{
			"busy": func(ctx kagzi.Context) error { return kagzi.Do(ctx, "slow", g.pass) },
			branch: func(ctx kagzi.Context) error {
				for range 3 {
					if err := wait(ctx); err != nil {
						return err
					}
					if err := kagzi.Do(ctx, step, func(context.Context) error { return nil }); err != nil {
						return err
					}
				}
				return nil
			},
		})
	})
}

func TestARunKeepsItsLeaseWhileTimeGoesOn(t *testing.T) {
	t.Parallel()
	env := kagzitest.New(t)
	g := newGate()
	kagzi.Handle(env.Worker, trial, func(ctx kagzi.Context, _ string) (string, error) {
		return "", kagzi.Do(ctx, "slow", g.pass)
	})
	run := kagzitest.Start(env, trial, "")
	await.Receive(t, g.reached)
	worker := infoOf(t, env, run.ID()).Worker
	for range 5 {
		env.Advance(10 * day)
	}
	info := infoOf(t, env, run.ID())
	mustEqual(t, "status", info.Status, kagzi.StatusRunning)
	mustEqual(t, "worker", info.Worker, worker)
	mustEqual(t, "recoveries", info.Recoveries, 0)
	workers, _, err := admin.New(env.Client).Workers.List(t.Context(), admin.WorkerFilter{})
	if err != nil {
		t.Fatal(err)
	}
	if len(workers) != 1 || workers[0].Status != "ONLINE" || workers[0].HeartbeatAt.Before(env.Now().Add(-time.Hour)) {
		t.Errorf("workers: %+v", workers)
	}
	close(g.open)
	if _, err := run.Result(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustSteps(t, env, run.ID(), "slow")
}

func TestWaitsInMemoryEndWhenTheirTimeHasCome(t *testing.T) {
	t.Parallel()
	env := kagzitest.New(t)
	g := newGate()
	g.besideSlow(env, "asleep", "tick", func(ctx kagzi.Context) error { return kagzi.Sleep(ctx, "nap", day) })
	run := kagzitest.Start(env, trial, "")
	await.Receive(t, g.reached)
	env.Advance(50 * time.Hour)
	ran := env.Steps(run.ID())
	if len(ran) < 3 || ran[len(ran)-1] != "both/asleep/tick#2" {
		t.Errorf("after 50 hours: %q", ran)
	}
	env.Advance(50 * time.Hour)
	close(g.open)
	if _, err := run.Result(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestADeadlineEndsARunInItsStep(t *testing.T) {
	t.Parallel()
	env := kagzitest.New(t)
	reached := make(chan struct{}, 10)
	kagzi.Handle(env.Worker, trial, func(ctx kagzi.Context, _ string) (string, error) {
		return "", kagzi.Do(ctx, "slow", func(ctx context.Context) error {
			reached <- struct{}{}
			<-ctx.Done()
			return ctx.Err()
		})
	})
	run := kagzitest.Start(env, trial, "", kagzi.Timeout(day))
	await.Receive(t, reached)
	env.Advance(2 * day)
	mustEqual(t, "kind", infoOf(t, env, run.ID()).Kind, kind.Deadline)
}

func TestCompensationsRunWhenTheTimeIsOver(t *testing.T) {
	t.Parallel()
	env := kagzitest.New(t)
	kagzi.Handle(env.Worker, trial, func(ctx kagzi.Context, _ string) (string, error) {
		kagzi.Compensate(ctx, "reserve", release.With("table 7"))
		if err := kagzi.Do(ctx, "reserve", func(context.Context) error { return nil }); err != nil {
			return "", err
		}
		return "", kagzi.Sleep(ctx, "cooling-off", 30*day)
	})
	kagzi.Handle(env.Worker, release, func(ctx kagzi.Context, what string) (string, error) {
		return what, errors.Join(kagzi.Sleep(ctx, "notice", day),
			kagzi.Do(ctx, "free", func(context.Context) error { return errReal }))
	})
	released := 0
	kagzitest.MockDo(env, "free", func(context.Context) error { released++; return nil })
	run := kagzitest.Start(env, trial, "", kagzi.Timeout(14*day))
	if _, err := kagzitest.Result(env, run); !errors.Is(err, kind.Deadline) {
		t.Errorf("got %v, want a deadline", err)
	}
	mustEqual(t, "releases", released, 1)
	mustSteps(t, env, run.ID(), "reserve", "reserve#compensation")
	info := infoOf(t, env, run.ID())
	// the day's notice is waited for
	mustEqual(t, "how long it took", info.EndedAt.Sub(info.StartedAt).Round(time.Hour), 15*day)
}

func TestARunThatWaitsForTheOneBeforeIsWaitedFor(t *testing.T) {
	t.Parallel()
	env := kagzitest.New(t)
	kagzi.Handle(env.Worker, trial, func(ctx kagzi.Context, _ string) (string, error) {
		return "", kagzi.Sleep(ctx, "long", 36*time.Hour)
	})
	env.StartWorker()
	err := env.Client.Schedule(t.Context(), kagzi.Schedule{
		Name: "daily", Every: day, Run: trial.With(""),
		Overlap: kagzi.OverlapQueueOne,
	})
	if err != nil {
		t.Fatal(err)
	}
	env.Advance(12 * day)
	runs, err := env.Client.List(t.Context(),
		kagzi.RunFilter{Schedule: "daily", Status: []kagzi.Status{kagzi.StatusCompleted}})
	if err != nil {
		t.Fatal(err)
	}
	if len(runs) < 6 || len(runs) > 8 {
		t.Errorf("%d runs of 36 hours, one after the other, are done after 12 days", len(runs))
	}
}
