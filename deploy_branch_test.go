package kagzi

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"
)

// TestAStepInFrontOfAFailedBranch deploys a new step in front of one that has failed in a branch while the run is asleep:
// nothing begins in the branch, and it fails with what it has failed with.
func TestAStepInFrontOfAFailedBranch(t *testing.T) {
	t.Parallel()
	both := func(ctx Context, what func(Context) error) error {
		return Parallel(ctx, "trip", map[string]func(Context) error{"flight": what, "hotel": func(ctx Context) error { return naps(ctx, 1) }}, CollectErrors())
	}
	first := func(ctx Context, what func(Context) error) error {
		return Parallel(ctx, "trip", map[string]func(Context) error{"flight": what})
	}
	branch := func(ctx Context, what func(Context) error) error {
		_, err := Go(ctx, "trip", func(ctx Context) (int, error) { return 0, what(ctx) }).Result(ctx)
		return err
	}
	for name, group := range map[string]func(Context, func(Context) error) error{"All": both, "First": first, "Go": branch} {
		t.Run(name, func(t *testing.T) {
			k := newKit(t)
			wf := Define[int, string]("wf", twice)
			var books, seats atomic.Int64
			code := func(deployed bool) func(Context, int) (string, error) {
				return func(ctx Context, _ int) (string, error) {
					err := group(ctx, func(ctx Context) error {
						if deployed {
							if err := Do(ctx, "seat", func(context.Context) error { seats.Add(1); return nil }); err != nil {
								return err
							}
						}
						return Do(ctx, "book", failsOnce(&books), noRetry)
					})
					if step, ok := errors.AsType[*StepError](err); err != nil && (!ok || step.Kind != KindUnknown || step.Message != "not today") {
						t.Errorf("deployed: %v, failed with %v", deployed, err)
					}
					if e := Sleep(ctx, "night", time.Hour); e != nil {
						return "", e
					}
					return "booked", err
				}
			}
			stop := serve(k, wf, code(false))
			run := begin(k, wf, 1)
			if name == "All" {
				k.waitStatus(run.ID(), StatusSleeping, "timer trip/hotel/nap0")
				k.forward(run.ID())
			}
			k.waitStatus(run.ID(), StatusSleeping, "timer night")
			if err := stop(); err != nil {
				t.Fatal(err)
			}
			serve(k, wf, code(true))
			k.forward(run.ID())
			if got := resultOf(k, run); got != "booked" || books.Load() != 2 || seats.Load() != 1 {
				t.Errorf("got %q with %d bookings and %d seats", got, books.Load(), seats.Load())
			}
		})
	}
}

// TestAStepInFrontOfAWinner deploys a new step in front of what has won a race, on a branch that has failed after it.
func TestAStepInFrontOfAWinner(t *testing.T) {
	k := newKit(t)
	wf := Define[int, int]("wf", noRetry)
	var deployed atomic.Bool
	serve(k, wf, func(ctx Context, _ int) (int, error) {
		_, err := Go(ctx, "trip", func(ctx Context) (int, error) {
			if _, _, err := Race(ctx, "offers", map[string]func(Context) (int, error){"a": func(ctx Context) (int, error) {
				if deployed.Load() {
					if err := Do(ctx, "new", func(context.Context) error { return nil }); err != nil {
						return 0, err
					}
				}
				return 0, Do(ctx, "ask", func(context.Context) error { return nil })
			}}); err != nil {
				return 0, err
			}
			return 0, Do(ctx, "book", failing)
		}).Result(ctx)
		if e := naps(ctx, 1); e != nil {
			return 0, e
		}
		return 0, err
	})
	run := begin(k, wf, 1)
	k.waitStatus(run.ID(), StatusSleeping, "timer nap0")
	deployed.Store(true)
	k.forward(run.ID())
	if re := failureOf(k, run, StatusFailed); re.Kind != KindUnknown {
		t.Errorf("the run ended with %v", re)
	}
}
