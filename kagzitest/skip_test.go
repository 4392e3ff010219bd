package kagzitest_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/kagzitest"
)

// A fatalTB is a fakeTB for a test that may call Fatal.
type fatalTB struct{ *fakeTB }

func (f fatalTB) Fatalf(format string, args ...any) {
	f.Errorf(format, args...)
	runtime.Goexit()
}

// reports returns the reports of the test.
func reports(t *testing.T, test func(env *kagzitest.Env), cfg ...kagzitest.Config) []string {
	t.Helper()
	fake := fatalTB{&fakeTB{TB: t}}
	over := make(chan struct{})
	go func() {
		defer close(over)
		test(kagzitest.New(fake, cfg...))
	}()
	await.Receive(t, over)
	return fake.end()
}

var (
	parcel   = kagzi.Define[string, string]("parcel")
	approved = kagzi.DefineSignal[bool]("approved")
)

// packed takes a day.
func packed(ctx kagzi.Context, item string) (string, error) {
	return "parcel of " + item, kagzi.Sleep(ctx, "pack", day)
}

func shipped(ctx kagzi.Context, item string) (string, error) {
	return kagzi.RunChild(ctx, "ship", parcel, item)
}

func TestAResumedParentWaitsForItsNewChild(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]func(*kagzi.Client, context.Context, kagzi.Ref) error{
		"Cancelled": func(c *kagzi.Client, ctx context.Context, ref kagzi.Ref) error { return c.Cancel(ctx, ref) },
		"Terminated": func(c *kagzi.Client, ctx context.Context, ref kagzi.Ref) error {
			return admin.New(c).Runs.Terminate(ctx, ref)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := kagzitest.New(t)
			kagzi.Handle(env.Worker, parcel, packed)
			kagzi.Handle(env.Worker, trial, shipped)
			again := func(how string) kagzi.RunID {
				run := kagzitest.Start(env, trial, how)
				env.Advance(0)
				if err := stop(env.Client, t.Context(), run.ID()); err != nil {
					t.Fatal(err)
				}
				if err := admin.New(env.Client).Runs.Resume(t.Context(), run.ID()); err != nil {
					t.Fatal(err)
				}
				return run.ID()
			}
			advanced := again("advanced")
			env.Advance(25 * time.Hour)
			mustEqual(t, "status after 25 hours", infoOf(t, env, advanced).Status, kagzi.StatusCompleted)
			skipped := again("skipped")
			mustEqual(t, "skipped", env.Skip(skipped).Round(time.Hour), day)
			mustEqual(t, "status", infoOf(t, env, skipped).Status, kagzi.StatusCompleted)
		})
	}
}

func TestChildrenThatEndOneAfterTheOther(t *testing.T) {
	t.Parallel()
	env := kagzitest.New(t)
	kagzi.Handle(env.Worker, parcel, packed)
	kagzi.Handle(env.Worker, trial, func(ctx kagzi.Context, _ string) (string, error) {
		for n := range 5 {
			if _, err := kagzi.RunChild(ctx, fmt.Sprint("ship ", n), parcel, "lamp"); err != nil {
				return "", err
			}
		}
		return "", nil
	})
	run := kagzitest.Start(env, trial, "")
	mustEqual(t, "skipped", env.Skip(run.ID()).Round(time.Hour), 5*day)
	mustEqual(t, "status", infoOf(t, env, run.ID()).Status, kagzi.StatusCompleted)
}

func TestAMessageToARunInMemoryIsWaitedFor(t *testing.T) {
	t.Parallel()
	env := kagzitest.New(t)
	g := newGate()
	g.besideSlow(env, "told", "note", func(ctx kagzi.Context) error {
		_, err := kagzi.WaitSignal(ctx, approved)
		return err
	})
	run := kagzitest.Start(env, trial, "")
	await.Receive(t, g.reached)
	for n := range 3 {
		if err := env.Client.Signal(t.Context(), run.ID(), approved.With(true)); err != nil {
			t.Fatal(err)
		}
		env.Advance(0)
		noted := 0
		for _, step := range env.Steps(run.ID()) {
			if strings.HasPrefix(step, "both/told/note") {
				noted++
			}
		}
		mustEqual(t, "messages noted", noted, n+1)
	}
	close(g.open)
	if _, err := kagzitest.Result(env, run); err != nil {
		t.Fatal(err)
	}
}

func TestResultSaysWhatARunWaitsFor(t *testing.T) {
	t.Parallel()
	got := reports(t, func(env *kagzitest.Env) {
		env.SetStuck(100 * time.Millisecond)
		kagzi.Handle(env.Worker, parcel, func(ctx kagzi.Context, _ string) (string, error) {
			_, err := kagzi.WaitSignal(ctx, approved.For("1"))
			return "", err
		})
		kagzi.Handle(env.Worker, trial, shipped)
		_, _ = kagzitest.Result(env, kagzitest.Start(env, trial, "lamp"))
	})
	mustReport(t, got, ` makes no progress: it is SLEEPING and waits for "child ship"; run `,
		` of parcel is SLEEPING and waits for "signal approved/1"; send it the message`)
}

func TestResultSaysThatNobodyHasTheCode(t *testing.T) {
	t.Parallel()
	got := reports(t, func(env *kagzitest.Env) {
		env.SetStuck(100 * time.Millisecond)
		kagzi.Handle(env.Worker, trial, threeMonths)
		_, _ = kagzitest.Result(env, kagzitest.Start(env, trial, "", kagzi.Version(9)))
	})
	mustReport(t, got,
		`it is PENDING and no worker on queue "default" has code for version 9 of workflow "trial": give it to `+
			`env.Worker with kagzi.Handle`)
	got = reports(t, func(env *kagzitest.Env) {
		env.SetStuck(100 * time.Millisecond)
		kagzi.Handle(env.Worker, trial, threeMonths)
		_, _ = kagzitest.Result(env, kagzitest.Start(env, kagzi.Define[string, string]("other"), ""))
	})
	mustReport(t, got,
		`it is PENDING and no worker on queue "default" has code for workflow "other": give it to env.Worker with `+
			`kagzi.Handle`)
	got = reports(t, func(env *kagzitest.Env) {
		env.SetStuck(100 * time.Millisecond)
		kagzi.Handle(env.Worker, trial, threeMonths)
		_, _ = kagzitest.Result(env, kagzitest.Start(env, trial, "", kagzi.Queue("shop")))
	})
	mustReport(t, got,
		`no worker on queue "shop" has code for workflow "trial": env.Worker serves queue "default"; set `+
			`Config.Worker.Queue`)
}

func TestResultDoesNotOutlastTheTest(t *testing.T) {
	t.Parallel()
	g := newGate()
	got := reports(t, func(env *kagzitest.Env) {
		env.SetUntil(time.Now())
		kagzi.Handle(env.Worker, trial, func(ctx kagzi.Context, _ string) (string, error) {
			return "", kagzi.Do(ctx, "endless", g.pass)
		})
		defer close(g.open)
		_, _ = kagzitest.Result(env, kagzitest.Start(env, trial, ""))
	})
	mustReport(t, got, ` has not ended, and the test's time is nearly over: it is RUNNING; running steps: endless`)
}

func TestSkipDoesNotFollowARunForEver(t *testing.T) {
	t.Parallel()
	got := reports(t, func(env *kagzitest.Env) {
		env.SetMoves(5)
		kagzi.Handle(env.Worker, trial, func(ctx kagzi.Context, _ string) (string, error) {
			for {
				if err := kagzi.Sleep(ctx, "poll", time.Hour); err != nil {
					return "", err
				}
			}
		})
		env.Skip(kagzitest.Start(env, trial, "").ID())
	})
	mustReport(t, got, ` has not ended after 5 moves of the clock and `,
		`waits for "timer poll#6": if it polls for ever, use Advance`)
}

func TestResultWaitsForAStepThatTakesLong(t *testing.T) {
	t.Parallel()
	env := kagzitest.New(t, kagzitest.Config{StepPatience: time.Millisecond})
	env.SetStuck(100 * time.Millisecond)
	g := newGate()
	kagzi.Handle(env.Worker, trial, func(ctx kagzi.Context, _ string) (string, error) {
		if err := kagzi.Do(ctx, "slow", g.pass); err != nil {
			return "", err
		}
		return "done", kagzi.Sleep(ctx, "rest", day)
	})
	run := kagzitest.Start(env, trial, "")
	time.AfterFunc(time.Second, func() { close(g.open) })
	got, err := kagzitest.Result(env, run)
	if err != nil || got != "done" {
		t.Fatalf("got %q, %v", got, err)
	}
}

func TestSkipToStopsBeforeAnApprovalTimesOut(t *testing.T) {
	t.Parallel()
	env := kagzitest.New(t)
	kagzi.Handle(env.Worker, trial, func(ctx kagzi.Context, _ string) (string, error) {
		if err := kagzi.Sleep(ctx, "rest", 3*day); err != nil {
			return "", err
		}
		ok, err := kagzi.WaitSignal(ctx, approved.For("1"), kagzi.Timeout(7*day))
		return fmt.Sprint(ok), err
	})
	run := kagzitest.Start(env, trial, "")
	mustEqual(t, "skipped", env.SkipTo(run.ID(), "signal approved/1").Round(time.Hour), 3*day)
	if err := env.Client.Signal(t.Context(), run.ID(), approved.For("1").With(true)); err != nil {
		t.Fatal(err)
	}
	if got, err := kagzitest.Result(env, run); err != nil || got != "true" {
		t.Fatalf("got %q, %v", got, err)
	}
	late := kagzitest.Start(env, trial, "")
	mustEqual(t, "skipped", env.Skip(late.ID()).Round(time.Hour), 10*day)
	mustSteps(t, env, late.ID(), "rest", "approved:1 (timeout)")
}

// A run whose branches wait for several things stops at each of them.
func TestSkipToOneOfSeveralWaits(t *testing.T) {
	t.Parallel()
	env := kagzitest.New(t)
	kagzi.Handle(env.Worker, trial, func(ctx kagzi.Context, _ string) (string, error) {
		if err := kagzi.Sleep(ctx, "rest", 3*day); err != nil {
			return "", err
		}
		_, got, err := kagzi.Race(ctx, "race", map[string]func(kagzi.Context) (string, error){
			"late": func(ctx kagzi.Context) (string, error) { return "late", kagzi.Sleep(ctx, "month", 30*day) },
			"asked": func(ctx kagzi.Context) (string, error) {
				ok, err := kagzi.WaitSignal(ctx, approved.For("1"))
				return fmt.Sprint(ok), err
			},
		})
		return got, err
	})
	run := kagzitest.Start(env, trial, "")
	mustEqual(t, "skipped", env.SkipTo(run.ID(), "signal approved/1").Round(time.Hour), 3*day)
	mustEqual(t, "skipped", env.SkipTo(run.ID(), "timer race/late/month"), 0)
	if err := env.Client.Signal(t.Context(), run.ID(), approved.For("1").With(true)); err != nil {
		t.Fatal(err)
	}
	if got, err := kagzitest.Result(env, run); err != nil || got != "true" {
		t.Fatalf("got %q, %v", got, err)
	}
}

func TestSkipToSaysWhereTheRunIs(t *testing.T) {
	t.Parallel()
	wait := func(env *kagzitest.Env, more ...kagzi.Timeout) kagzi.RunID {
		kagzi.Handle(env.Worker, trial, func(ctx kagzi.Context, _ string) (string, error) {
			_, err := kagzi.WaitSignal(ctx, approved, more...)
			return "", err
		})
		return kagzitest.Start(env, trial, "").ID()
	}
	got := reports(t, func(env *kagzitest.Env) { env.SkipTo(wait(env), "timer rest") })
	mustReport(t, got, ` did not come to wait for "timer rest": it is SLEEPING and waits for "signal approved"`)
	got = reports(t, func(env *kagzitest.Env) { env.SkipTo(wait(env, kagzi.Timeout(day)), "timer rest") })
	mustReport(t, got, ` did not come to wait for "timer rest": it is FAILED, and waited for "signal approved" before`)
}

func TestARunOfAVersionWithoutCodeIsLeft(t *testing.T) {
	t.Parallel()
	env := kagzitest.New(t)
	kagzi.Handle(env.Worker, trial, threeMonths)
	stranded := kagzitest.Start(env, trial, "", kagzi.Version(9))
	run := kagzitest.Start(env, trial, "")
	env.Advance(91 * day)
	mustEqual(t, "status", infoOf(t, env, run.ID()).Status, kagzi.StatusCompleted)
	mustEqual(t, "status of version 9", infoOf(t, env, stranded.ID()).Status, kagzi.StatusPending)
	all, err := admin.New(env.Client).Stranded(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 1 || all[0].Version != 9 {
		t.Errorf("stranded: %+v", all)
	}
}

func TestAHandleThatComesTooLateFailsTheTest(t *testing.T) {
	t.Parallel()
	got := reports(t, func(env *kagzitest.Env) {
		kagzi.Handle(env.Worker, trial, threeMonths)
		env.StartWorker()
		kagzi.Handle(env.Worker, parcel, packed)
	})
	mustReport(t, got, `kagzi.Handle of workflow "parcel" comes too late`)
}
