package language_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
)

// reads executes so many repeatable steps of the function.
func reads(ctx kagzi.Context, n int, fn func(context.Context) (string, error),
	opts ...kagzi.StepOption,
) (all string, err error) {
	for i := range n {
		v, err := kagzi.Step(ctx, fmt.Sprint("r", i), fn, append(opts, kagzi.Repeatable())...)
		if err != nil {
			return "", err
		}
		all += v
	}
	return all, nil
}

func one(context.Context) (string, error) { return "1", nil }

const writtenReads = `SELECT count(*) FROM kagzi.step_runs WHERE split_part(step_id, '/', -1) LIKE 'r_'
	AND status = 'COMPLETED'`

// TestRepeatableStepsShareACommit counts the commits of a run. Five repeatable steps add none. An ordinary step adds
// one before its function, if results wait to be written. The last one is written with the end of the run.
func TestRepeatableStepsShareACommit(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ repeatable, ordinary, want int }{
		{0, 0, 1}, {5, 0, 1}, {0, 1, 1}, {0, 3, 3}, {5, 1, 2},
	} {
		t.Run(fmt.Sprint(tc.repeatable, "And", tc.ordinary), func(t *testing.T) {
			k := kit.New(t)
			wf := kagzi.Define[struct{}, string]("wf")
			w := kit.NewWorker(t, kit.NewClient(t, k.Pool), kit.Unmonitored)
			kagzi.Handle(w, wf, func(ctx kagzi.Context, _ struct{}) (string, error) {
				all, err := reads(ctx, tc.repeatable, one)
				for i := range tc.ordinary {
					name := fmt.Sprint("s", i)
					err = errors.Join(err, kagzi.Do(ctx, name, func(context.Context) error { return nil }))
				}
				return all, err
			})
			var commits atomic.Int32
			kit.Failpoint(t, w, func(point string, _ uuid.UUID) {
				if point == "before flush" {
					commits.Add(1)
				}
			})
			kit.StartWorker(t, w)
			if got := kit.ResultOf(k, kit.Begin(k, wf, struct{}{})); got != strings.Repeat("1", tc.repeatable) {
				t.Errorf("got %q", got)
			}
			if got := int(commits.Load()); got != tc.want {
				t.Errorf("%d commits, want %d", got, tc.want)
			}
			if got := k.Count(writtenReads); got != tc.repeatable {
				t.Errorf("%d steps are recorded", got)
			}
		})
	}
}

// TestResultsAreWrittenBeforeTheyAreSeen executes three repeatable steps, and then something that has effects outside
// of the run: their records are in the table by then.
func TestResultsAreWrittenBeforeTheyAreSeen(t *testing.T) {
	t.Parallel()
	type effect func(context.Context) (int, error) // returns how many results are written
	step := func(seen effect) func(kagzi.Context) (int, error) {
		return func(ctx kagzi.Context) (int, error) { return kagzi.Step(ctx, "s", seen) }
	}
	child := kagzi.Define[struct{}, int]("child", kagzi.Queue("kids"))
	three := func(ctx kagzi.Context) (string, error) { return reads(ctx, 3, one) }
	for name, fn := range map[string]func(kagzi.Context, effect) (int, error){
		"Step": func(ctx kagzi.Context, seen effect) (int, error) {
			_, err := three(ctx)
			n, e := step(seen)(ctx)
			return n, errors.Join(err, e)
		},
		"StepTx": func(ctx kagzi.Context, seen effect) (int, error) {
			_, err := three(ctx)
			n, e := kagzi.StepTx(ctx, "s", func(ctx context.Context, _ pgx.Tx) (int, error) { return seen(ctx) })
			return n, errors.Join(err, e)
		},
		"UndoneBy": func(ctx kagzi.Context, seen effect) (int, error) {
			_, err := three(ctx)
			undo := kagzi.Define[int, struct{}]("undo")
			n, e := kagzi.Step(ctx, "s", seen, kagzi.UndoneBy(undo))
			return n, errors.Join(err, e)
		},
		"Child": func(ctx kagzi.Context, seen effect) (int, error) {
			_, err := three(ctx)
			n, e := kagzi.RunChild(ctx, "child", child, struct{}{})
			return n, errors.Join(err, e)
		},
		"StepOfABranch": func(ctx kagzi.Context, seen effect) (int, error) {
			_, err := three(ctx)
			n, e := kagzi.Go(ctx, "b", step(seen)).Result(ctx)
			return n, errors.Join(err, e)
		},
		"StepAfterABranch": func(ctx kagzi.Context, seen effect) (int, error) {
			_, err := kagzi.Go(ctx, "b", three).Result(ctx)
			n, e := step(seen)(ctx)
			return n, errors.Join(err, e)
		},
		"StepOfAnotherBranch": func(ctx kagzi.Context, seen effect) (int, error) { // the first has not ended
			read, over := make(chan bool), make(chan bool)
			b := kagzi.Go(ctx, "b", func(ctx kagzi.Context) (string, error) {
				defer func() { <-over }()
				defer close(read)
				return three(ctx)
			})
			n, err := kagzi.Go(ctx, "c", func(ctx kagzi.Context) (int, error) {
				defer close(over)
				await.Opened(t, read)
				return step(seen)(ctx)
			}).Result(ctx)
			_, e := b.Result(ctx)
			return n, errors.Join(err, e)
		},
		"StepInARace": func(ctx kagzi.Context, seen effect) (int, error) {
			_, err := three(ctx)
			_, n, e := kagzi.Race(ctx, "race", map[string]func(kagzi.Context) (int, error){"a": step(seen)})
			return n, errors.Join(err, e)
		},
		"WithinARace": func(ctx kagzi.Context, seen effect) (int, error) { // the steps are recorded at once
			_, n, err := kagzi.Race(ctx, "race",
				map[string]func(kagzi.Context) (int, error){"a": func(ctx kagzi.Context) (int, error) {
					_, err := three(ctx)
					n, e := seen(t.Context())
					return n, errors.Join(err, e)
				}})
			return n, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := kit.New(t)
			seen := func(context.Context) (int, error) { return k.Count(writtenReads), nil }
			kit.ServeWith(k, kagzi.WorkerConfig{Queue: "kids", NoCoordinator: true}, child,
				func(ctx kagzi.Context, _ struct{}) (int, error) { return step(seen)(ctx) })
			if got := kit.Complete(k, func(ctx kagzi.Context) (int, error) { return fn(ctx, seen) }); got != 3 {
				t.Errorf("%d results are written, want 3", got)
			}
		})
	}
}

// TestCrashBeforeResultsAreWritten lets a worker execute three repeatable steps, and takes the run away before they are
// written. Another worker executes them again, and gets other results. No ordinary step has seen the first ones.
func TestCrashBeforeResultsAreWritten(t *testing.T) {
	t.Parallel()
	type reading func(kagzi.Context) (string, error)
	child := kagzi.Define[struct{}, int]("child", kagzi.Queue("kids"))
	for name, read := range map[string]func(kagzi.Context, reading) (string, error){
		"Alone": func(ctx kagzi.Context, three reading) (string, error) { return three(ctx) },
		"InABranch": func(ctx kagzi.Context, three reading) (string, error) {
			return kagzi.Go(ctx, "b", three).Result(ctx)
		},
		// with the start of a child, which no code waits for
		"OnTheWay": func(ctx kagzi.Context, three reading) (string, error) {
			all, err := three(ctx)
			_, e := kagzi.StartChild(ctx, "child", child, struct{}{})
			return all, errors.Join(err, e)
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := kit.New(t)
			j := &kit.Journal{}
			wf := kagzi.Define[struct{}, string]("wf")
			code := func(host string) func(kagzi.Context, struct{}) (string, error) {
				return func(ctx kagzi.Context, _ struct{}) (string, error) {
					all, err := read(ctx, func(ctx kagzi.Context) (string, error) {
						return reads(ctx, 3, func(context.Context) (string, error) {
							j.Add("read")
							return host, nil
						})
					})
					if err != nil {
						return "", err
					}
					return all, kagzi.Do(ctx, "pay", func(context.Context) error {
						j.Add("pay:" + all)
						return nil
					})
				}
			}
			w := kit.NewWorker(t, kit.NewClient(t, k.Pool), kit.Unmonitored)
			kagzi.Handle(w, wf, code("a"))
			hung, release := kit.HangAt(t, w, "before flush")
			stop := kit.StartWorker(t, w)
			run := kit.Begin(k, wf, struct{}{})
			await.Receive(t, hung)
			k.TakeAway(run.ID())
			kit.Rescue(k, wf, code("b"))
			if got := kit.ResultOf(k, run); got != "bbb" {
				t.Errorf("got %q", got)
			}
			release()
			if err := stop(); err != nil { // the first worker learns that it has lost the run
				t.Error(err)
			}
			j.Want(t, "read read read read read read pay:bbb")
		})
	}
}

// TestRepeatableResultsAreBounded executes so many repeatable steps, or one with so large a result, that one of them
// waits until all are written.
func TestRepeatableResultsAreBounded(t *testing.T) {
	k := kit.New(t)
	got := kit.Complete(k, func(ctx kagzi.Context) (string, error) {
		var counts []int
		count := func() {
			counts = append(counts, dbtest.QueryOne[int](t, k.Pool, `SELECT count(*) FROM kagzi.step_runs`))
		}
		for i := range 101 {
			if _, err := kagzi.Step(ctx, fmt.Sprint("r", i), one, kagzi.Repeatable()); err != nil {
				return "", err
			}
			if i >= 99 {
				count()
			}
		}
		for range 2 {
			if _, err := kagzi.Step(ctx, "large", func(context.Context) (string, error) {
				return strings.Repeat("x", 200<<10), nil
			}, kagzi.Repeatable()); err != nil {
				return "", err
			}
			count()
		}
		return fmt.Sprint(counts), nil
	})
	if want := "[0 101 101 103]"; got != want {
		t.Errorf("written after 100 and 101 steps, and after each large one: %s, want %s", got, want)
	}
}

// TestResultsBehindAChildAreBounded starts a child after each repeatable step: no code waits for the start, which takes
// the result along. While the run's row is locked, nothing is written. So few results pile up nevertheless.
func TestResultsBehindAChildAreBounded(t *testing.T) {
	k := kit.New(t)
	child, wf := kagzi.Define[int, int]("child"), kagzi.Define[int, int]("wf")
	const most = 3 // fit, and one waits until they are written
	var locked atomic.Bool
	var executed, tooMany atomic.Int64
	begun, lock := make(chan struct{}, 1), make(chan struct{})
	kit.Serve(k, wf, func(ctx kagzi.Context, _ int) (int, error) {
		for i := range 20 {
			if _, err := kagzi.Step(ctx, fmt.Sprint("r", i), func(context.Context) (string, error) {
				if i == 0 {
					begun <- struct{}{}
					await.Opened(t, lock)
				}
				if executed.Add(1) > most && locked.Load() {
					tooMany.Add(1)
				}
				return strings.Repeat("x", 100<<10), nil
			}, kagzi.Repeatable()); err != nil {
				return 0, err
			}
			if _, err := kagzi.StartChild(ctx, fmt.Sprint("c", i), child, i, kagzi.Queue("nobody")); err != nil {
				return 0, err
			}
		}
		return 1, nil
	})
	run := kit.Begin(k, wf, 1)
	await.Receive(t, begun)
	tx := k.CallersTx()
	if _, err := tx.Exec(t.Context(), kit.LockRuns); err != nil {
		t.Fatal(err)
	}
	locked.Store(true)
	close(lock)
	await.True(t, "the results are too many to go on", func() bool { return executed.Load() >= most })
	for range 50 {
		k.Count(`SELECT count(*) FROM kagzi.step_runs`)
	}
	locked.Store(false)
	kit.CommitTx(t, tx)
	if got, err := run.Result(kit.Context(t)); got != 1 || err != nil {
		t.Errorf("%d, %v", got, err)
	}
	if n := tooMany.Load(); n > 0 {
		t.Errorf("%d steps were executed although %d results waited", n, most)
	}
}

// TestLongStepShowsResults has a repeatable step run for long. The results before it are written when it is shown.
func TestLongStepShowsResults(t *testing.T) {
	k := kit.New(t)
	if got := kit.Complete(k, func(ctx kagzi.Context) (string, error) {
		if _, err := reads(ctx, 3, one); err != nil {
			return "", err
		}
		return kagzi.Step(ctx, "long", func(context.Context) (string, error) {
			await.True(t, "the results are written", func() bool { return k.Count(writtenReads) == 3 })
			return "done", nil
		}, kagzi.Repeatable())
	}); got != "done" {
		t.Errorf("got %q", got)
	}
}

// TestTimesOfRepeatableSteps compares the times that a function sees after repeatable steps with those of a replay, and
// with those in the table.
func TestTimesOfRepeatableSteps(t *testing.T) {
	k := kit.New(t)
	j := &kit.Journal{}
	wf := kagzi.Define[struct{}, string]("wf")
	w, _ := kit.ServeWith(k, kit.NotifiedOnly, wf, func(ctx kagzi.Context, _ struct{}) (string, error) {
		var times []string
		for i := range 6 {
			opts := []kagzi.StepOption{kagzi.Repeatable()}
			_, err := kagzi.Step(ctx, fmt.Sprint("r", i), func(context.Context) (string, error) { return "", nil },
				opts[:i%3%2]...)
			if err != nil {
				return "", err
			}
			times = append(times, ctx.Now().Format(time.RFC3339Nano))
		}
		j.Add(strings.Join(times, ","))
		return "", kagzi.Sleep(ctx, "long", time.Hour)
	})
	run := kit.Begin(k, wf, struct{}{})
	k.WaitStatus(run.ID(), kagzi.StatusSleeping)
	k.Forward(run.ID())
	kit.ResultOf(k, run)
	first, second, _ := strings.Cut(j.String(), " ")
	if first != second {
		t.Errorf("a replay sees other times:\n%s\n%s", first, second)
	}
	if err := w.Replay(k.Ctx, run.ID()); err != nil {
		t.Error(err)
	}
	if n := k.Count(`SELECT count(*) FROM (
		SELECT started_at, finished_at, lag(finished_at) OVER (ORDER BY position) AS before FROM kagzi.step_runs
			WHERE step_id LIKE 'r_') s
		WHERE started_at >= finished_at OR started_at < before - interval '1 microsecond'`); n != 0 {
		t.Errorf("%d steps begin before the step before them has ended, or end before they begin", n)
	}
}

// TestFailedRepeatableStep fails once: the failure is recorded, and the retry keeps its backoff.
func TestFailedRepeatableStep(t *testing.T) {
	k := kit.New(t)
	var calls atomic.Int32
	if got := kit.Complete(k, func(ctx kagzi.Context) (string, error) {
		v, err := reads(ctx, 1, func(context.Context) (string, error) {
			if calls.Add(1) == 1 {
				return "", errors.New("not today")
			}
			return fmt.Sprint("failed ", dbtest.QueryOne[int](t, k.Pool, `SELECT count(*) FROM kagzi.step_runs
				WHERE status = 'FAILED' AND wake_at IS NOT NULL`)), nil
		}, kit.Twice)
		return v, err
	}); got != "failed 1" {
		t.Errorf("got %q", got)
	}
}

func TestRepeatableIsRefused(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		call func(kagzi.Context) error
		want string
	}{
		"StepTx": {func(ctx kagzi.Context) error {
			return kagzi.DoTx(ctx, "s", func(context.Context, pgx.Tx) error { return nil }, kagzi.Repeatable())
		}, "a transactional step takes effect once"},
		"UndoneBy": {func(ctx kagzi.Context) error {
			_, err := reads(ctx, 1, one, kagzi.UndoneBy(kagzi.Define[string, struct{}]("undo")))
			return err
		}, "leave one of the two out"},
	} {
		t.Run(name, func(t *testing.T) {
			kit.MustContain(t, kit.Refused(kit.New(t), func(ctx kagzi.Context) (int, error) { return 0, tc.call(ctx) }),
				tc.want, `step "`)
		})
	}
}

// TestLoserActsOnNoUnwrittenResult has a racer begin a step after it has lost, before it is cancelled. Its writes are
// refused, so results that the step follows from may never be written: its function is not called.
func TestLoserActsOnNoUnwrittenResult(t *testing.T) {
	t.Parallel()
	for name, act := range map[string]func(ctx kagzi.Context, did func()) error{
		"Step": func(ctx kagzi.Context, did func()) error {
			return kagzi.Do(ctx, "s", func(context.Context) error { did(); return nil })
		},
		"StepTx": func(ctx kagzi.Context, did func()) error {
			return kagzi.DoTx(ctx, "s", func(context.Context, pgx.Tx) error { did(); return nil })
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := kit.New(t)
			wf := kagzi.Define[struct{}, string]("wf")
			stopped, over := make(chan struct{}), make(chan struct{})
			var called atomic.Bool
			w := kit.NewWorker(t, kit.NewClient(t, k.Pool), kit.Unmonitored)
			kagzi.Handle(w, wf, func(ctx kagzi.Context, _ struct{}) (string, error) {
				if _, err := reads(ctx, 3, one); err != nil {
					return "", err
				}
				winner, _, err := kagzi.Race(ctx, "race", map[string]func(kagzi.Context) (int, error){
					"wins": func(kagzi.Context) (int, error) { return 0, nil },
					"loses": func(ctx kagzi.Context) (int, error) {
						defer close(over)
						await.Opened(t, stopped)
						return 0, act(ctx, func() { called.Store(true) })
					},
				})
				return winner, err
			})
			kit.Failpoint(t, w, func(point string, _ uuid.UUID) {
				if point == "losers stopped" {
					close(stopped)
					await.Opened(t, over)
				}
			})
			kit.StartWorker(t, w)
			if got := kit.ResultOf(k, kit.Begin(k, wf, struct{}{})); got != "wins" {
				t.Errorf("got %q", got)
			}
			if called.Load() {
				t.Error("the loser's step was executed")
			}
		})
	}
}
