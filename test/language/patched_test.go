package language_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/kind"
)

// TestPatchedAsksTheHistory deploys code with a Patched to runs that are at different places, and to new ones.
func TestPatchedAsksTheHistory(t *testing.T) {
	t.Parallel()
	a, b, c := aStep("a", 1), aStep("b", 1), aStep("c", 1)
	said := make(map[string]chan bool)
	patched := func(name string) func(kagzi.Context, *atomic.Int64) error {
		return func(ctx kagzi.Context, _ *atomic.Int64) error {
			said[name] <- kagzi.Patched(ctx, "change")
			return nil
		}
	}
	in := func(name string) func(kagzi.Context, *atomic.Int64) error { // a branch that asks
		return func(ctx kagzi.Context, calls *atomic.Int64) error {
			_, err := kagzi.Go(ctx, "x", func(ctx kagzi.Context) (int, error) {
				if err := patched(name)(ctx, calls); err != nil {
					return 0, err
				}
				return 1, aStep("s", 1)(ctx, calls)
			}).Result(ctx)
			return err
		}
	}
	for _, tt := range []struct {
		name     string
		old      func(kagzi.Context, *atomic.Int64) error // the run then sleeps
		new      func(name string) func(kagzi.Context, *atomic.Int64) error
		want     bool // for the run that is there; a new one always gets true
		executed int64
	}{
		{"AtTheBeginning", a, func(n string) func(kagzi.Context, *atomic.Int64) error {
			return inOrder(patched(n), a)
		}, false, 0},
		{"Between", inOrder(a, b), func(n string) func(kagzi.Context, *atomic.Int64) error {
			return inOrder(a, patched(n), b)
		}, false, 0},
		{"BeforeTheSleep", a, func(n string) func(kagzi.Context, *atomic.Int64) error {
			return inOrder(a, patched(n))
		}, false, 0},
		{"BehindAnAddedStep", inOrder(a, b), func(n string) func(kagzi.Context, *atomic.Int64) error {
			return inOrder(a, c, patched(n), b)
		}, false, 1},
		{"BehindTwoAddedSteps", a, func(n string) func(kagzi.Context, *atomic.Int64) error {
			return inOrder(c, aStep("d", 1), patched(n), a)
		}, false, 2},
		{"BeforeABranch", aBranch("x", 1), func(n string) func(kagzi.Context, *atomic.Int64) error {
			return inOrder(patched(n), aBranch("x", 1))
		}, false, 0},
		{"BeforeAParallel", aParallel("x", 1), func(n string) func(kagzi.Context, *atomic.Int64) error {
			return inOrder(patched(n), aParallel("x", 1))
		}, false, 0},
		{"InABranchThatWasThere", aBranch("x", 1), in, false, 0},
		{"InANewBranch", a, func(n string) func(kagzi.Context, *atomic.Int64) error {
			return inOrder(a, in(n))
		}, true, 1},
	} {
		said[tt.name], said[tt.name+" behind"] = make(chan bool, 10), make(chan bool, 10)
		t.Run(tt.name, func(t *testing.T) {
			k := kit.New(t)
			var calls atomic.Int64
			change := codeChange{old: tt.old}
			run, wake := change.begun(k, &calls)
			before := calls.Load()
			wake(tt.new(tt.name))
			if got := await.Receive(t, said[tt.name]); got != tt.want {
				t.Errorf("the old run gets %v", got)
			}
			kit.ResultOf(k, run)
			if n := calls.Load() - before; n != tt.executed {
				t.Errorf("%d steps were executed, want %d", n, tt.executed)
			}
			fresh := kit.Begin(k, kagzi.Define[int, string]("wf", kit.NoRetry), 2)
			if !await.Receive(t, said[tt.name]) {
				t.Error("the new run gets false")
			}
			k.WaitStatus(fresh.ID(), kagzi.StatusSleeping)
			k.Forward(fresh.ID()) // and replays
			kit.ResultOf(k, fresh)
			if !await.Receive(t, said[tt.name]) {
				t.Error("the new run gets false in its replay")
			}
		})
	}
}

// TestPatchedBehindTheHistory asks where the old code has not been yet.
func TestPatchedBehindTheHistory(t *testing.T) {
	k := kit.New(t)
	wf := kagzi.Define[int, string]("wf", kit.NoRetry)
	code := func(ask func(kagzi.Context) bool) func(kagzi.Context, int) (string, error) {
		return func(ctx kagzi.Context, _ int) (string, error) {
			if err := kagzi.Sleep(ctx, "nap", time.Hour); err != nil {
				return "", err
			}
			answer := ask(ctx)
			if err := kagzi.Sleep(ctx, "another", time.Hour); err != nil {
				return "", err
			}
			return fmt.Sprint(answer), nil
		}
	}
	stop := kit.Serve(k, wf, code(func(kagzi.Context) bool { return false }))
	run := kit.Begin(k, wf, 1)
	k.WaitStatus(run.ID(), kagzi.StatusSleeping)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	kit.Serve(k, wf, code(func(ctx kagzi.Context) bool { return kagzi.Patched(ctx, "change") }))
	k.Forward(run.ID())
	await.True(t, "the run sleeps again", func() bool { return len(k.Steps(run.ID())["another"]) == 1 })
	k.WaitStatus(run.ID(), kagzi.StatusSleeping)
	k.Forward(run.ID())
	if got := kit.ResultOf(k, run); got != "true" {
		t.Errorf("Patched said %s", got)
	}
}

// TestPatchedBehindAWait asks a run that waits for a message behind the place of the change. A wait without a timeout
// leaves no record, in a branch neither, and a compensation does not count.
func TestPatchedBehindAWait(t *testing.T) {
	t.Parallel()
	answer := kagzi.DefineSignal[string]("answer")
	wait := func(timeout ...kagzi.Timeout) func(kagzi.Context) error {
		return func(ctx kagzi.Context) error {
			_, err := kagzi.WaitSignal(ctx, answer, timeout...)
			return err
		}
	}
	for _, tt := range []struct {
		name string
		old  func(kagzi.Context) error
		want string
	}{
		{"WithoutTimeout", wait(), "true"},
		{"WithTimeout", wait(kagzi.Timeout(time.Hour)), "false"},
		{"Compensation", func(ctx kagzi.Context) error {
			kagzi.Compensate(ctx, "undo", kagzi.Define[int, int]("undo").With(1))
			return wait()(ctx)
		}, "true"},
		{"InAGroup", func(ctx kagzi.Context) error {
			return kagzi.Parallel(ctx, "group", map[string]func(kagzi.Context) error{"branch": wait()})
		}, "true"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k := kit.New(t)
			wf := kagzi.Define[int, string]("wf", kit.NoRetry)
			stop := kit.Serve(k, wf, func(ctx kagzi.Context, _ int) (string, error) { return "", tt.old(ctx) })
			run := kit.Begin(k, wf, 1)
			k.WaitStatus(run.ID(), kagzi.StatusSleeping)
			if err := stop(); err != nil {
				t.Fatal(err)
			}
			kit.Serve(k, wf, func(ctx kagzi.Context, _ int) (string, error) {
				patched := kagzi.Patched(ctx, "change")
				return fmt.Sprint(patched), tt.old(ctx)
			})
			if err := k.Client.Signal(k.Ctx, run.ID(), answer.With("yes")); err != nil {
				t.Fatal(err)
			}
			if got := kit.ResultOf(k, run); got != tt.want {
				t.Errorf("Patched said %s, want %s", got, tt.want)
			}
		})
	}
}

// TestPatchedIsRememberedOnce asks again and again: in a loop, in replays and in a later attempt of the run.
func TestPatchedIsRememberedOnce(t *testing.T) {
	t.Parallel()
	for _, old := range []bool{false, true} {
		t.Run(fmt.Sprintf("Old=%v", old), func(t *testing.T) {
			k := kit.New(t)
			wf := kagzi.Define[int, []bool]("wf", kagzi.RetryPolicy{Backoff: time.Millisecond})
			tail := func(ctx kagzi.Context) error {
				if err := kagzi.Do(ctx, "s", func(context.Context) error { return nil }); err != nil {
					return err
				}
				return kagzi.Sleep(ctx, "nap", time.Hour)
			}
			code := func(ctx kagzi.Context, _ int) (answers []bool, err error) {
				for range 3 {
					answers = append(answers, kagzi.Patched(ctx, "change"))
				}
				answers = append(answers, kagzi.Patched(ctx, "another"))
				if err := tail(ctx); err != nil {
					return nil, err
				}
				if ctx.Attempt() == 1 {
					return nil, errors.New("not yet")
				}
				return append(answers, kagzi.Patched(ctx, "change")),
					kagzi.Do(ctx, "end", func(context.Context) error { return nil })
			}
			first := code
			if old {
				first = func(ctx kagzi.Context, _ int) ([]bool, error) { return nil, tail(ctx) }
			}
			stop := kit.Serve(k, wf, first)
			run := kit.Begin(k, wf, 1)
			k.WaitStatus(run.ID(), kagzi.StatusSleeping)
			if err := stop(); err != nil {
				t.Fatal(err)
			}
			kit.Serve(k, wf, code)
			k.Forward(run.ID())
			if got, want := kit.ResultOf(k, run), slices.Repeat([]bool{!old}, 5); !slices.Equal(got, want) {
				t.Errorf("Patched said %v, want %v", got, want)
			}
			if n := k.Count(`SELECT count(*) FROM kagzi.step_runs WHERE step_kind = 'MARKER'
				AND status = 'COMPLETED'`); n != 2 {
				t.Errorf("%d records, want one of each change", n)
			}
			for _, id := range []string{"#patched:change", "#patched:another"} {
				if s := k.Steps(run.ID())[id]; len(s) != 1 || string(s[0].Output) != fmt.Sprint(!old) {
					t.Errorf("%s: %+v", id, s)
				}
			}
		})
	}
}

// A transactional step sees the answer of Patched in the table, so that a crash after the step does not make the run
// take the old code path.
func TestPatchedIsRecordedBeforeWhatFollows(t *testing.T) {
	k := kit.New(t)
	n := kit.Complete(k, func(ctx kagzi.Context) (int, error) {
		kagzi.Patched(ctx, "change")
		return kagzi.StepTx(ctx, "tx", func(ctx context.Context, tx pgx.Tx) (n int, err error) {
			err = tx.QueryRow(ctx, `SELECT count(*) FROM kagzi.step_runs WHERE step_id = '#patched:change'`).Scan(&n)
			return n, err
		})
	})
	if n != 1 {
		t.Error("the step began before the answer was recorded")
	}
}

// TestPatchedInBranches has each branch decide for itself, under its own name.
func TestPatchedInBranches(t *testing.T) {
	k := kit.New(t)
	wf := kagzi.Define[int, []bool]("wf", kit.NoRetry)
	code := func(ask func(kagzi.Context) bool, items ...int) func(kagzi.Context, int) ([]bool, error) {
		return func(ctx kagzi.Context, _ int) ([]bool, error) {
			var futures []*kagzi.Future[bool]
			for _, i := range items {
				futures = append(futures, kagzi.Go(ctx, fmt.Sprint("b", i), func(ctx kagzi.Context) (bool, error) {
					answer := ask(ctx)
					return answer, kagzi.Do(ctx, "s", func(context.Context) error { return nil })
				}))
			}
			var answers []bool
			for _, f := range futures {
				answer, err := f.Result(ctx)
				if err != nil {
					return nil, err
				}
				answers = append(answers, answer)
			}
			return answers, kagzi.Sleep(ctx, "nap", time.Hour)
		}
	}
	stop := kit.Serve(k, wf, code(func(kagzi.Context) bool { return false }, 1, 2))
	run := kit.Begin(k, wf, 1)
	k.WaitStatus(run.ID(), kagzi.StatusSleeping)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	kit.Serve(k, wf, code(func(ctx kagzi.Context) bool { return kagzi.Patched(ctx, "change") }, 1, 2, 3))
	k.Forward(run.ID())
	if got, want := kit.ResultOf(k, run), []bool{false, false, true}; !slices.Equal(got, want) {
		t.Errorf("Patched said %v, want %v", got, want)
	}
	for _, id := range []string{"b1/#patched:change", "b2/#patched:change", "b3/#patched:change"} {
		if len(k.Steps(run.ID())[id]) != 1 {
			t.Errorf("no record of %s", id)
		}
	}
}

// TestPatchedOfALostRun does not outlive the lease: no answer is given to a run that others execute.
func TestPatchedOfALostRun(t *testing.T) {
	k := kit.New(t)
	wf := kagzi.Define[int, int]("wf", kit.NoRetry)
	var begun, answered atomic.Int64
	held := make(chan struct{})
	kit.Serve(k, wf, func(ctx kagzi.Context, n int) (int, error) {
		if begun.Add(1) > 1 {
			return n, nil
		}
		await.Opened(t, held)
		kagzi.Patched(ctx, "change")
		answered.Add(1)
		return n, nil
	})
	run := kit.Begin(k, wf, 3)
	await.True(t, "the run begins", func() bool { return begun.Load() == 1 })
	k.Exec(`UPDATE kagzi.workflow_runs SET lease = gen_random_uuid(), status = 'PENDING', available_at = now()`)
	kit.WakeWorkers(k.T, k.Pool)
	close(held)
	if got := kit.ResultOf(k, run); got != 3 {
		t.Errorf("got %d", got)
	}
	if answered.Load() != 0 || k.Count(`SELECT count(*) FROM kagzi.step_runs`) != 0 {
		t.Error("an execution without lease got an answer, or recorded one")
	}
}

func TestPatchedMisused(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		code func(kagzi.Context) (int, error)
		want string
	}{
		{
			"NoName", func(ctx kagzi.Context) (int, error) { kagzi.Patched(ctx, ""); return 1, nil },
			"Patched: the change's name is empty",
		},
		{
			"BadName", func(ctx kagzi.Context) (int, error) { kagzi.Patched(ctx, "a/b"); return 1, nil },
			`change "a/b" contains '/'`,
		},
		{
			"InAStep", func(outer kagzi.Context) (int, error) {
				return kagzi.Step(outer, "s", func(context.Context) (int, error) {
					kagzi.Patched(outer, "change")
					return 1, nil
				})
			},
			`Patched "change": a durable operation inside of a step: call it before or after the step, in the ` +
				`workflow function`,
		},
		{"OtherGoroutine", func(ctx kagzi.Context) (int, error) {
			done := make(chan bool)
			go func() { done <- kagzi.Patched(ctx, "change") }()
			await.Opened(t, done)
			return 1, nil
		}, "Context in use by another goroutine"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k := kit.New(t)
			wf := kagzi.Define[int, int]("wf")
			var attempts atomic.Int64
			kit.Serve(k, wf, func(ctx kagzi.Context, _ int) (int, error) {
				attempts.Add(1)
				return tt.code(ctx)
			})
			failure := kit.FailureOf(k, kit.Begin(k, wf, 1), kagzi.StatusFailed)
			kit.MustContain(t, failure, tt.want)
			if failure.Kind != kind.BadRequest || attempts.Load() != 1 {
				t.Errorf("kind %q after %d attempts", failure.Kind, attempts.Load())
			}
		})
	}
	t.Run("NilContext", func(t *testing.T) {
		t.Parallel()
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		kagzi.Patched(nil, "change")
	})
}
