package language_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/kind"
)

// TestAStepInFrontOfAFailedBranch deploys a new step in front of one that has failed in a branch while the run is
// asleep: nothing begins in the branch, and it fails with what it has failed with.
func TestAStepInFrontOfAFailedBranch(t *testing.T) {
	t.Parallel()
	both := func(ctx kagzi.Context, what func(kagzi.Context) error) error {
		return kagzi.Parallel(ctx, "trip", map[string]func(kagzi.Context) error{
			"flight": what,
			"hotel":  func(ctx kagzi.Context) error { return kit.Naps(ctx, 1) },
		}, kagzi.CollectErrors())
	}
	first := func(ctx kagzi.Context, what func(kagzi.Context) error) error {
		return kagzi.Parallel(ctx, "trip", map[string]func(kagzi.Context) error{"flight": what})
	}
	branch := func(ctx kagzi.Context, what func(kagzi.Context) error) error {
		_, err := kagzi.Go(ctx, "trip", func(ctx kagzi.Context) (int, error) { return 0, what(ctx) }).Result(ctx)
		return err
	}
	for name, group := range map[string]func(kagzi.Context, func(kagzi.Context) error) error{
		"All":   both,
		"First": first, "Go": branch,
	} {
		t.Run(name, func(t *testing.T) {
			k := kit.New(t)
			wf := kagzi.Define[int, string]("wf", kit.Twice)
			var books, seats atomic.Int64
			code := func(deployed bool) func(kagzi.Context, int) (string, error) {
				return func(ctx kagzi.Context, _ int) (string, error) {
					err := group(ctx, func(ctx kagzi.Context) error {
						if deployed {
							if err := kagzi.Do(ctx, "seat", func(context.Context) error {
								seats.Add(1)
								return nil
							}); err != nil {
								return err
							}
						}
						return kagzi.Do(ctx, "book", failsOnce(&books), kit.NoRetry)
					})
					if step, ok := errors.AsType[*kagzi.StepError](err); err != nil &&
						(!ok || step.Kind != kind.Unknown || step.Message != "not today") {
						t.Errorf("deployed: %v, failed with %v", deployed, err)
					}
					if e := kagzi.Sleep(ctx, "night", time.Hour); e != nil {
						return "", e
					}
					return "booked", err
				}
			}
			stop := kit.Serve(k, wf, code(false))
			run := kit.Begin(k, wf, 1)
			if name == "All" {
				k.WaitStatus(run.ID(), kagzi.StatusSleeping, "timer trip/hotel/nap0")
				k.Forward(run.ID())
			}
			k.WaitStatus(run.ID(), kagzi.StatusSleeping, "timer night")
			if err := stop(); err != nil {
				t.Fatal(err)
			}
			kit.Serve(k, wf, code(true))
			k.Forward(run.ID())
			if got := kit.ResultOf(k, run); got != "booked" || books.Load() != 2 || seats.Load() != 1 {
				t.Errorf("got %q with %d bookings and %d seats", got, books.Load(), seats.Load())
			}
		})
	}
}

// TestAStepInFrontOfAWinner deploys a new step before the race's winner, on a branch that failed after the race.
func TestAStepInFrontOfAWinner(t *testing.T) {
	k := kit.New(t)
	wf := kagzi.Define[int, int]("wf", kit.NoRetry)
	var deployed atomic.Bool
	kit.Serve(k, wf, func(ctx kagzi.Context, _ int) (int, error) {
		_, err := kagzi.Go(ctx, "trip", func(ctx kagzi.Context) (int, error) {
			if _, _, err := kagzi.Race(ctx, "offers",
				map[string]func(kagzi.Context) (int, error){"a": func(ctx kagzi.Context) (int, error) {
					if deployed.Load() {
						if err := kagzi.Do(ctx, "new", func(context.Context) error { return nil }); err != nil {
							return 0, err
						}
					}
					return 0, kagzi.Do(ctx, "ask", func(context.Context) error { return nil })
				}}); err != nil {
				return 0, err
			}
			return 0, kagzi.Do(ctx, "book", failing)
		}).Result(ctx)
		if e := kit.Naps(ctx, 1); e != nil {
			return 0, e
		}
		return 0, err
	})
	run := kit.Begin(k, wf, 1)
	k.WaitStatus(run.ID(), kagzi.StatusSleeping, "timer nap0")
	deployed.Store(true)
	k.Forward(run.ID())
	if re := kit.FailureOf(k, run, kagzi.StatusFailed); re.Kind != kind.Unknown {
		t.Errorf("the run ended with %v", re)
	}
}
