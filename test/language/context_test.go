package language_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/testhook"
	"github.com/kagzi/kagzi/internal/testlog"
	"github.com/kagzi/kagzi/kind"
)

// everyOperation calls all durable operations on ctx, and returns their errors.
func everyOperation(ctx kagzi.Context, f *kagzi.Future[int]) map[string]error {
	errs := map[string]error{}
	errs["Do"] = kagzi.Do(ctx, "x", func(context.Context) error { return nil })
	_, errs["Step"] = kagzi.Step(ctx, "x", func(context.Context) (int, error) { return 0, nil })
	errs["DoTx"] = kagzi.DoTx(ctx, "x", func(context.Context, pgx.Tx) error { return nil })
	_, errs["StepTx"] = kagzi.StepTx(ctx, "x", func(context.Context, pgx.Tx) (int, error) { return 0, nil })
	errs["Sleep"] = kagzi.Sleep(ctx, "x", time.Hour)
	errs["SleepUntil"] = kagzi.SleepUntil(ctx, "x", time.Now())
	errs["Parallel"] = kagzi.Parallel(ctx, "x", map[string]func(kagzi.Context) error{"a": func(kagzi.Context) error {
		return nil
	}})
	_, errs["Map"] = kagzi.Map(ctx, "x", []int{1}, func(kagzi.Context, int) (int, error) { return 0, nil })
	_, _, errs["Race"] = kagzi.Race(ctx, "x",
		map[string]func(kagzi.Context) (int, error){"a": func(kagzi.Context) (int, error) { return 0, nil }})
	_, errs["Result"] = f.Result(ctx)
	return errs
}

// ofAnotherGoroutine reports whether err says that a Context was used in another goroutine, or in its own step.
func ofAnotherGoroutine(err error) bool {
	return kagzi.KindOf(err) == kind.BadRequest &&
		(strings.Contains(err.Error(), "Context in use by another goroutine or by its own step") ||
			strings.Contains(err.Error(), "a durable operation inside of a step"))
}

func TestContextOfAnotherGoroutine(t *testing.T) {
	t.Parallel()
	check := func(t *testing.T, errs map[string]error) {
		t.Helper()
		if len(errs) == 0 {
			t.Error("the goroutine was ended")
		}
		for op, err := range errs {
			if !ofAnotherGoroutine(err) {
				t.Errorf("%s: %v", op, err)
			}
		}
	}
	branch := func(ctx kagzi.Context) (int, error) { return 0, nil }
	t.Run("WhileTheRunRuns", func(t *testing.T) {
		k := kit.New(t)
		kit.Refused(k, func(ctx kagzi.Context) (int, error) {
			f := kagzi.Go(ctx, "b", branch)
			var errs map[string]error
			var all sync.WaitGroup
			all.Go(func() { errs = everyOperation(ctx, f) })
			all.Wait()
			check(t, errs)
			return f.Result(ctx)
		})
	})
	t.Run("InAStepOfItsOwn", func(t *testing.T) {
		k := kit.New(t)
		kit.Complete(k, func(ctx kagzi.Context) (int, error) {
			f := kagzi.Go(ctx, "b", branch)
			err := kagzi.Do(ctx, "s", func(context.Context) error { check(t, everyOperation(ctx, f)); return nil })
			kit.MustContain(t, err, "inside of a step")
			err = kagzi.DoTx(ctx, "tx", func(context.Context, pgx.Tx) error {
				check(t, everyOperation(ctx, f))
				return nil
			})
			kit.MustContain(t, err, "inside of a step")
			return f.Result(ctx)
		})
	})
	t.Run("OfTheRunInABranch", func(t *testing.T) {
		k := kit.New(t)
		kit.Refused(k, func(ctx kagzi.Context) (int, error) {
			f := kagzi.Go(ctx, "b", branch)
			return kagzi.Go(ctx, "c", func(kagzi.Context) (int, error) {
				check(t, everyOperation(ctx, f))
				return 0, nil
			}).Result(ctx)
		})
	})
	t.Run("GoReportsItThroughItsFuture", func(t *testing.T) {
		k := kit.New(t)
		wf := kagzi.Define[struct{}, int]("wf", kit.NoRetry)
		kit.Serve(k, wf, func(ctx kagzi.Context, _ struct{}) (int, error) {
			var all sync.WaitGroup
			all.Go(func() { kagzi.Go(ctx, "b", branch) })
			all.Wait()
			return 0, nil
		})
		kit.MustContain(t, kit.FailureOf(k, kit.Begin(k, wf, struct{}{}), kagzi.StatusFailed), "another goroutine",
			"kagzi.Go")
	})
	t.Run("AfterTheRunEnded", func(t *testing.T) {
		k := kit.New(t)
		wf := kagzi.Define[struct{}, int]("wf")
		var leaked []kagzi.Context
		var future *kagzi.Future[int]
		kit.Serve(k, wf, func(ctx kagzi.Context, _ struct{}) (int, error) {
			branch := make(chan kagzi.Context, 1)
			future = kagzi.Go(ctx, "b", func(ctx kagzi.Context) (int, error) { branch <- ctx; return 0, nil })
			leaked = []kagzi.Context{ctx, <-branch}
			return future.Result(ctx)
		})
		kit.ResultOf(k, kit.Begin(k, wf, struct{}{}))
		// The runtime uses the memory of ended goroutines again, so no goroutine may be taken for the branch's.
		for _, ctx := range leaked {
			if id := ctx.(testhook.Branch).Goroutine(); id != 0 {
				t.Errorf("a branch that has ended still claims goroutine %#x", id)
			}
		}
		for range 200 {
			var all sync.WaitGroup
			for _, ctx := range leaked {
				all.Go(func() {
					ended := true
					defer func() {
						if ended {
							t.Error("a goroutine that is not the engine's was ended")
						}
					}()
					if _, err := future.Result(ctx); !ofAnotherGoroutine(err) {
						t.Errorf("got %v", err)
					}
					if err := kagzi.Do(ctx, "x", func(context.Context) error { return nil }); !ofAnotherGoroutine(err) {
						t.Errorf("got %v", err)
					}
					ended = false
				})
			}
			all.Wait()
		}
	})
	t.Run("WhileTheRunSleeps", func(t *testing.T) {
		k := kit.New(t)
		wf := kagzi.Define[struct{}, int]("wf")
		leaked := make(chan kagzi.Context, 1)
		kit.Serve(k, wf, func(ctx kagzi.Context, _ struct{}) (int, error) {
			leaked <- ctx
			return 0, kagzi.Sleep(ctx, "long", time.Hour)
		})
		run := kit.Begin(k, wf, struct{}{})
		k.WaitStatus(run.ID(), kagzi.StatusSleeping)
		ctx := <-leaked
		if err := kagzi.Do(ctx, "x", func(context.Context) error { return nil }); !ofAnotherGoroutine(err) {
			t.Errorf("got %v", err)
		}
	})
}

func TestContextSaysTheSameInAReplay(t *testing.T) {
	k := kit.New(t)
	wf := kagzi.Define[struct{}, int]("wf")
	type saw struct {
		Times   []string
		Attempt int
		Run     kagzi.RunID
	}
	seen := make(chan saw, 10)
	kit.Serve(k, wf, func(ctx kagzi.Context, _ struct{}) (int, error) {
		s := saw{Attempt: ctx.Attempt(), Run: ctx.RunID()}
		note := func(ctx kagzi.Context) {
			now := ctx.Now()
			if now.Location() != time.UTC { // a step named after it would have another name in another zone
				t.Errorf("Now is in the zone %v", now.Location())
			}
			s.Times = append(s.Times, now.Format(time.RFC3339Nano))
		}
		note(ctx)
		_ = kagzi.Do(ctx, "a", func(context.Context) error { return nil })
		note(ctx)
		_ = kagzi.Do(ctx, "fails", failing)
		note(ctx)
		_ = kagzi.DoTx(ctx, "tx", func(context.Context, pgx.Tx) error { return nil })
		note(ctx)
		_ = kagzi.Sleep(ctx, "short", time.Millisecond)
		note(ctx)
		_, _ = kagzi.Go(ctx, "b", func(ctx kagzi.Context) (int, error) {
			note(ctx)
			return kagzi.Step(ctx, "s", func(context.Context) (int, error) { return 1, nil })
		}).Result(ctx)
		note(ctx)
		_, _ = kagzi.Map(ctx, "m", []int{1, 2}, func(ctx kagzi.Context, n int) (int, error) {
			return 0, kagzi.Sleep(ctx, "nap", time.Duration(n)*10*time.Millisecond)
		})
		note(ctx)
		if err := kagzi.Sleep(ctx, "first", 250*time.Millisecond); err != nil {
			return 0, err
		}
		note(ctx)
		if !slices.IsSorted(s.Times) {
			t.Errorf("Now goes back: %v", s.Times)
		}
		seen <- s
		return 0, kagzi.Sleep(ctx, "second", time.Hour)
	})
	run := kit.Begin(k, wf, struct{}{})
	k.WaitStatus(run.ID(), kagzi.StatusSleeping)
	first := <-seen
	for range 2 {
		k.WaitStatus(run.ID(), kagzi.StatusSleeping, "timer second")
		k.Wake(run.ID())
		if again := <-seen; fmt.Sprint(again) != fmt.Sprint(first) {
			t.Errorf("first:    %v\nreplayed: %v", first, again)
		}
	}
	if first.Attempt != 1 || first.Run != run.ID() {
		t.Errorf("got %+v", first)
	}
}

func TestLoggerIsSilentInAReplay(t *testing.T) {
	t.Parallel()
	for name, fn := range map[string]func(ctx kagzi.Context, say func(kagzi.Context, string)) error{
		"Steps": func(ctx kagzi.Context, say func(kagzi.Context, string)) error {
			say(ctx, "begin")
			_ = kagzi.Do(ctx, "a", func(context.Context) error { return nil })
			say(ctx, "between")
			_ = kagzi.Do(ctx, "fails", failing)
			say(ctx, "failed")
			return kagzi.Sleep(ctx, "long", time.Hour)
		},
		"ABranchAlone": func(ctx kagzi.Context, say func(kagzi.Context, string)) error {
			say(ctx, "begin")
			f := kagzi.Go(ctx, "b", func(ctx kagzi.Context) (int, error) {
				say(ctx, "in the branch")
				err := kagzi.Do(ctx, "a", func(context.Context) error { return nil })
				say(ctx, "still in the branch")
				return 0, errors.Join(err, kagzi.Sleep(ctx, "long", time.Hour))
			})
			say(ctx, "started")
			_, err := f.Result(ctx)
			return err
		},
		"FutureOfOthers": func(ctx kagzi.Context, say func(kagzi.Context, string)) error {
			var inner *kagzi.Future[int]
			outer := kagzi.Go(ctx, "outer", func(ctx kagzi.Context) (int, error) {
				inner = kagzi.Go(ctx, "inner", func(ctx kagzi.Context) (int, error) {
					return 0, kagzi.Do(ctx, "a", func(context.Context) error { return nil })
				})
				return 0, nil
			})
			_, err := outer.Result(ctx)
			// at the same time
			reader := kagzi.Go(ctx, "reader", func(ctx kagzi.Context) (int, error) { return inner.Result(ctx) })
			_, errInner := inner.Result(ctx)
			_, errReader := reader.Result(ctx)
			errStep := kagzi.Do(ctx, "b", func(context.Context) error { return nil })
			say(ctx, "after the step")
			return errors.Join(err, errInner, errReader, errStep, kagzi.Sleep(ctx, "long", time.Hour))
		},
		"Groups": func(ctx kagzi.Context, say func(kagzi.Context, string)) error {
			say(ctx, "begin")
			_ = kagzi.Parallel(ctx, "p", map[string]func(kagzi.Context) error{"x": func(ctx kagzi.Context) error {
				say(ctx, "in parallel")
				return kagzi.Do(ctx, "a", func(context.Context) error { return nil })
			}})
			say(ctx, "between")
			_, _ = kagzi.Map(ctx, "m", []int{1}, func(kagzi.Context, int) (int, error) { return 1, nil })
			say(ctx, "mapped")
			_, _, _ = kagzi.Race(ctx, "r",
				map[string]func(kagzi.Context) (int, error){"x": func(kagzi.Context) (int, error) { return 1, nil }})
			say(ctx, "raced")
			return kagzi.Sleep(ctx, "long", time.Hour)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out testlog.Buffer
			k := kit.NewWith(t, kagzi.ClientConfig{Logger: slog.New(slog.NewTextHandler(&out, nil))})
			wf := kagzi.Define[struct{}, int]("wf")
			executed := make(chan struct{}, 10)
			var mu sync.Mutex
			said := map[string]bool{}
			kit.Serve(k, wf, func(ctx kagzi.Context, _ struct{}) (int, error) {
				executed <- struct{}{}
				err := fn(ctx, func(ctx kagzi.Context, text string) {
					mu.Lock()
					said[text] = true
					mu.Unlock()
					ctx.Logger().With("k", "v").WithGroup("g").Info("user: "+text, "x", 1)
				})
				ctx.Logger().Info("user: end")
				return 0, err
			})
			run := kit.Begin(k, wf, struct{}{})
			for range 3 {
				await.Receive(t, executed)
				k.WaitStatus(run.ID(), kagzi.StatusSleeping)
				k.Wake(run.ID())
			}
			await.Receive(t, executed)
			k.WaitStatus(run.ID(), kagzi.StatusSleeping)
			k.Forward(run.ID())
			kit.ResultOf(k, run)
			said["end"] = true
			for text := range said {
				if n := strings.Count(out.String(), `"user: `+text+`"`); n != 1 {
					t.Errorf("%q was logged %d times", text, n)
				}
			}
			kit.MustContain(t, errors.New(out.String()), "k=v", "g.x=1", "run="+string(run.ID()), "workflow=wf",
				"run_attempt=1")
			if t.Failed() {
				t.Log(out.String())
			}
		})
	}
}

func TestContextOfACancelledBranch(t *testing.T) {
	k := kit.New(t)
	kit.Complete(k, func(ctx kagzi.Context) (int, error) {
		if ctx.Err() != nil {
			t.Errorf("Err of a run under way: %v", ctx.Err())
		}
		err := kagzi.Parallel(ctx, "p", map[string]func(kagzi.Context) error{
			"bad": func(ctx kagzi.Context) error { return kagzi.Do(ctx, "s", failing) },
			"waits": func(ctx kagzi.Context) error {
				<-ctx.Done()
				if !errors.Is(ctx.Err(), kind.Cancelled) {
					t.Errorf("Err of a cancelled branch: %v", ctx.Err())
				}
				// Operations return the cause, as ordinary errors.
				for op, err := range map[string]error{
					"Do":    kagzi.Do(ctx, "x", func(context.Context) error { t.Error("executed"); return nil }),
					"Sleep": kagzi.Sleep(ctx, "y", time.Hour),
				} {
					if !errors.Is(err, kind.Cancelled) {
						t.Errorf("%s: %v", op, err)
					}
				}
				return ctx.Err()
			},
		})
		if be, ok := errors.AsType[*kagzi.BranchError](err); !ok || be.Name != "bad" {
			t.Errorf("got %v", err)
		}
		return 0, nil
	})
}

// TestLoggerOfTheParentInABranch uses a logger in a branch while the goroutine that it belongs to continues. The race
// detector checks it.
func TestLoggerOfTheParentInABranch(t *testing.T) {
	t.Parallel() // before the kit, whose time begins with it
	k := kit.NewWith(t, kagzi.ClientConfig{Logger: slog.New(slog.NewTextHandler(&testlog.Buffer{}, nil))})
	kit.Complete(k, func(ctx kagzi.Context) (int, error) {
		log, done := ctx.Logger(), make(chan struct{})
		f := kagzi.Go(ctx, "b", func(ctx kagzi.Context) (int, error) {
			for {
				log.Info("still there")
				select {
				case <-done:
					return 0, nil
				case <-ctx.Done():
					return 0, nil
				default:
				}
			}
		})
		for range 20 {
			if err := kagzi.Do(ctx, "a", func(context.Context) error { return nil }); err != nil {
				return 0, err
			}
		}
		close(done)
		return f.Result(ctx)
	})
}
