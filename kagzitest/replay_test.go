package kagzitest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/kagzitest"
	"github.com/kagzi/kagzi/kind"
)

// A fakeTB replaces the testing.TB of a test that may fail.
type fakeTB struct {
	testing.TB
	mu       sync.Mutex
	errors   []string
	cleanups []func()
}

func (f *fakeTB) Helper()          {}
func (f *fakeTB) Cleanup(c func()) { f.cleanups = append(f.cleanups, c) }
func (f *fakeTB) Failed() bool     { f.mu.Lock(); defer f.mu.Unlock(); return len(f.errors) > 0 }
func (f *fakeTB) Error(args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.errors = append(f.errors, fmt.Sprint(args...))
}
func (f *fakeTB) Errorf(format string, args ...any) { f.Error(fmt.Sprintf(format, args...)) }

// end ends the test and returns its reports.
func (f *fakeTB) end() []string {
	for len(f.cleanups) > 0 {
		last := f.cleanups[len(f.cleanups)-1]
		f.cleanups = f.cleanups[:len(f.cleanups)-1]
		last()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.errors
}

func mustReport(t *testing.T, got []string, want ...string) {
	t.Helper()
	if len(got) != 1 {
		t.Fatalf("got %d reports, want one:\n%s", len(got), strings.Join(got, "\n"))
	}
	for _, w := range want {
		if !strings.Contains(got[0], w) {
			t.Errorf("the report is %q, and does not contain %q", got[0], w)
		}
	}
}

// total sets a variable in the closure of a step.
func total(ctx kagzi.Context, _ string) (string, error) {
	var sum int
	if err := kagzi.Do(ctx, "add up", func(context.Context) error { sum = 42; return nil }); err != nil {
		return "", err
	}
	return fmt.Sprint(sum), nil
}

func TestAVariableSetInAStepIsFound(t *testing.T) {
	t.Parallel()
	fake := &fakeTB{TB: t}
	env := kagzitest.New(fake)
	kagzi.Handle(env.Worker, trial, total)
	run := kagzitest.Start(env, trial, "")
	got, err := kagzitest.Result(env, run)
	if err != nil || got != "42" {
		t.Fatalf("got %q, %v", got, err)
	}
	mustReport(t, fake.end(), string(run.ID()), `it completed with "0"; the run completed with "42"`,
		"take what differs from the result of a step")
}

func TestNoReplayLeavesItOut(t *testing.T) {
	t.Parallel()
	fake := &fakeTB{TB: t}
	env := kagzitest.New(fake, kagzitest.Config{NoReplay: "it is wrong on purpose"})
	kagzi.Handle(env.Worker, trial, total)
	if _, err := kagzitest.Result(env, kagzitest.Start(env, trial, "")); err != nil {
		t.Fatal(err)
	}
	if got := fake.end(); len(got) > 0 {
		t.Errorf("reported: %q", got)
	}
}

type code = func(kagzi.Context, string) (string, error)

func do(ctx kagzi.Context, name string) error {
	return kagzi.Do(ctx, name, func(context.Context) error { return nil })
}

func fail(ctx kagzi.Context, name string) error {
	return kagzi.Do(ctx, name, func(context.Context) error { return kagzi.Permanent(errors.New("declined")) })
}

func TestAdditionsAreMeant(t *testing.T) {
	t.Parallel()
	was := func(ctx kagzi.Context, _ string) (string, error) { return "done", do(ctx, "a") }
	for name, c := range map[string]struct {
		now  code
		want []string
	}{
		"InFront": {now: func(ctx kagzi.Context, _ string) (string, error) {
			return "done", errors.Join(do(ctx, "new"), do(ctx, "a"))
		}},
		"InABranch": {now: func(ctx kagzi.Context, _ string) (string, error) {
			_, err := kagzi.Go(ctx, "x", func(ctx kagzi.Context) (int, error) { return 0, do(ctx, "new") }).Result(ctx)
			return "done", errors.Join(err, do(ctx, "a"))
		}},
		"NotTheEnd": {
			func(ctx kagzi.Context, _ string) (string, error) { return "other", do(ctx, "a") },
			[]string{`it completed with "other"`},
		},
		"Contradicted": {
			func(ctx kagzi.Context, _ string) (string, error) { return "", kagzi.Sleep(ctx, "a", day) },
			[]string{`step "a" was recorded as a step`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := kagzitest.New(t)
			kagzi.Handle(env.Worker, trial, was)
			env.Skip(kagzitest.Start(env, trial, "").ID())
			fake := &fakeTB{TB: t}
			mustEqual(t, "replayed", kagzitest.Replay(fake, env.Client, trial, c.now, kagzi.RunFilter{},
				kagzi.AllowAdditions()), 1)
			if got := fake.end(); c.want == nil && len(got) > 0 {
				t.Errorf("reported: %q", got)
			} else if c.want != nil {
				mustReport(t, got, c.want...)
			}
		})
	}
}

// The same code repeats a run whose branches failed, were cancelled or lost a race, and begins nothing new on them.
func TestEndedBranchesAreReplayed(t *testing.T) {
	t.Parallel()
	env := kagzitest.New(t)
	kagzi.Handle(env.Worker, trial, func(ctx kagzi.Context, _ string) (string, error) {
		_, first := kagzi.Go(ctx, "trip", func(ctx kagzi.Context) (string, error) {
			kagzi.Go(ctx, "asleep", func(ctx kagzi.Context) (string, error) {
				return "", kagzi.Sleep(ctx, "long", 30*day)
			})
			if err := kagzi.Sleep(ctx, "nap", day); err != nil {
				return "", err
			}
			return "", fail(ctx, "flight")
		}).Result(ctx)
		winner, _, second := kagzi.Race(ctx, "race", map[string]func(kagzi.Context) (string, error){
			"a": func(ctx kagzi.Context) (string, error) { return "", kagzi.Sleep(ctx, "nap", day) },
			"b": func(ctx kagzi.Context) (string, error) { return "", kagzi.Sleep(ctx, "long", 30*day) },
			"c": func(ctx kagzi.Context) (string, error) { return "", fail(ctx, "c") },
		})
		third := kagzi.Parallel(ctx, "all", map[string]func(kagzi.Context) error{
			"a": func(ctx kagzi.Context) error { return kagzi.Sleep(ctx, "long", 30*day) },
			"b": func(ctx kagzi.Context) error { return errors.Join(kagzi.Sleep(ctx, "nap", day), fail(ctx, "b")) },
		})
		if err := kagzi.Sleep(ctx, "rest", 60*day); err != nil {
			return "", err
		}
		return winner, errors.Join(first, second, third)
	})
	run := kagzitest.Start(env, trial, "")
	if _, err := kagzitest.Result(env, run); err == nil {
		t.Error("no error")
	}
}

func TestTheLastAttemptOfARunIsReplayed(t *testing.T) {
	t.Parallel()
	env := kagzitest.New(t)
	kagzi.Handle(env.Worker, trial, func(ctx kagzi.Context, _ string) (string, error) {
		if err := do(ctx, "a"); err != nil {
			return "", err
		}
		err := kagzi.Do(ctx, "b", func(context.Context) error {
			if ctx.Attempt() < 3 {
				return kind.Unavailable
			}
			return nil
		}, kagzi.RetryPolicy{MaxAttempts: 1})
		return fmt.Sprint(ctx.Attempt()), err
	})
	run := kagzitest.Start(env, trial, "", kagzi.RetryPolicy{MaxAttempts: 3, Backoff: time.Hour})
	if got, err := kagzitest.Result(env, run); err != nil || got != "3" {
		t.Errorf("got %q, %v", got, err)
	}
	mustSteps(t, env, run.ID(), "a", "b (unavailable)", "b (unavailable)", "b")
	failing := kagzitest.Start(env, trial, "", kagzi.RetryPolicy{MaxAttempts: 2, Backoff: time.Hour})
	if _, err := kagzitest.Result(env, failing); !errors.Is(err, kind.Unavailable) {
		t.Errorf("got %v", err)
	}
}

func TestACancelledRunMayStopAnywhere(t *testing.T) {
	t.Parallel()
	env := kagzitest.New(t)
	kagzi.Handle(env.Worker, trial, threeMonths)
	run := kagzitest.Start(env, trial, "")
	env.Advance(40 * day)
	if err := run.Cancel(t.Context()); err != nil {
		t.Fatal(err)
	}
	fake := &fakeTB{TB: t}
	mustEqual(t, "replayed", kagzitest.Replay(fake, env.Client, trial, threeMonths, kagzi.RunFilter{}), 1)
	if got := fake.end(); len(got) > 0 {
		t.Errorf("reported: %q", got)
	}
	n := kagzitest.Replay(fake, env.Client, trial, func(ctx kagzi.Context, _ string) (string, error) {
		return "", do(ctx, "wait for first")
	}, kagzi.RunFilter{})
	mustEqual(t, "replayed", n, 1)
	mustReport(t, fake.end(),
		`step "wait for first" was recorded as a sleep, and the code now uses the name for a step`)
}

func TestReplayOfCodeThatHangs(t *testing.T) {
	t.Parallel()
	env := kagzitest.New(t)
	kagzi.Handle(env.Worker, trial, func(ctx kagzi.Context, _ string) (string, error) { return "", nil })
	run := kagzitest.Start(env, trial, "")
	env.Skip(run.ID())
	worker, err := kagzi.NewWorker(env.Client, kagzi.WorkerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	begun, release := make(chan struct{}), make(chan struct{})
	defer close(release)
	kagzi.Handle(worker, trial, func(ctx kagzi.Context, _ string) (string, error) {
		close(begun)
		await.Opened(t, release)
		return "", nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		await.Opened(t, begun)
		cancel()
	}()
	if err := worker.Replay(ctx, run.ID()); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestReplayRefuses(t *testing.T) {
	t.Parallel()
	env := kagzitest.New(t)
	kagzi.Handle(env.Worker, trial, threeMonths)
	run := kagzitest.Start(env, trial, "")
	if err := env.Worker.Replay(t.Context(), run.ID()); !errors.Is(err, kagzi.ErrRunActive) {
		t.Errorf("of an active run: %v", err)
	}
	if err := env.Worker.Replay(t.Context(), kagzi.ID("nobody")); !errors.Is(err, kagzi.ErrNotFound) {
		t.Errorf("of no run: %v", err)
	}
	env.Skip(run.ID())
	worker, err := kagzi.NewWorker(env.Client, kagzi.WorkerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	kagzi.Handle(worker, trial, threeMonths, kagzi.Version(2))
	if err := worker.Replay(t.Context(), run.ID()); err == nil ||
		!strings.Contains(err.Error(), `no handler for version 1 of workflow "trial"`) {
		t.Errorf("without code: %v", err)
	}
}

// A divergence names the step or the group at which code and history differ, whatever its text begins with.
func TestDivergenceNamesTheGroup(t *testing.T) {
	t.Parallel()
	items := func(items ...string) code {
		return func(ctx kagzi.Context, _ string) (string, error) {
			_, err := kagzi.Map(ctx, "each", items, func(ctx kagzi.Context, item string) (string, error) {
				return item, nil
			})
			return "", err
		}
	}
	either := func(won error, branches ...string) code {
		return func(ctx kagzi.Context, _ string) (string, error) {
			racers := map[string]func(kagzi.Context) (string, error){}
			for _, name := range branches {
				racers[name] = func(kagzi.Context) (string, error) { return name, won }
			}
			winner, _, err := kagzi.Race(ctx, "first", racers)
			return winner, err
		}
	}
	for name, c := range map[string]struct {
		was, now code
		step     string
	}{
		"MoreItems":   {items("a"), items("a", "b"), "each"},
		"OtherItem":   {items("a"), items("b"), "each"},
		"WinnerFails": {either(nil, "x"), either(errors.New("no"), "x"), "first"},
		"WinnerGone":  {either(nil, "x"), either(nil, "y"), "first"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := kagzitest.New(t)
			kagzi.Handle(env.Worker, trial, c.was)
			id := kagzitest.Start(env, trial, "").ID()
			env.Skip(id)
			w, err := kagzi.NewWorker(env.Client, kagzi.WorkerConfig{})
			if err != nil {
				t.Fatal(err)
			}
			kagzi.Handle(w, trial, c.now)
			var diverged *kagzi.DivergenceError
			if err := w.Replay(t.Context(), id); !errors.As(err, &diverged) || diverged.Step != c.step {
				t.Errorf("%v names %+v, want %q", err, diverged, c.step)
			}
		})
	}
}
