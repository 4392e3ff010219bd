package kagzi

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
)

// TestRegisteredAnewByADeploy deploys other code while a run sleeps: its compensations are registered once more, and the
// last input counts, even if a later replay stops before it.
func TestRegisteredAnewByADeploy(t *testing.T) {
	k := newKit(t)
	j := &journal{}
	var deployed, stops atomic.Bool
	serve(k, travel, func(ctx Context, _ int) (int, error) {
		inputs := []string{"a", "b"}
		if deployed.Load() {
			inputs = []string{"A", "B"}
		}
		for _, in := range inputs {
			Compensate(ctx, "x", cancelBooking.With(in))
			if stops.Load() {
				return 0, errors.New("broken")
			}
		}
		return 0, naps(ctx, 3)
	})
	serveCancellations(k, j, nil)
	run := begin(k, travel, 1)
	k.waitStatus(run.ID(), StatusSleeping, "timer nap0")
	deployed.Store(true)
	k.throughNaps(run.ID(), 0, 1)
	k.waitStatus(run.ID(), StatusSleeping, "timer nap2")
	stops.Store(true)
	k.forward(run.ID())
	failureOf(k, run, StatusFailed)
	if a := k.steps(run.ID())["x#compensation"]; len(a) != 4 {
		t.Errorf("x has %d registrations, want 4: %+v", len(a), a)
	}
	j.want(t, "cancel:B")
}

// TestADeployChangesWhatIsRegisteredBeforeAStep: the step has registered its result, and that counts.
func TestADeployChangesWhatIsRegisteredBeforeAStep(t *testing.T) {
	k := newKit(t)
	j := &journal{}
	var deployed atomic.Bool
	serve(k, travel, func(ctx Context, _ int) (int, error) {
		order := "order 7"
		if deployed.Load() {
			order = "order seven"
		}
		Compensate(ctx, "flight", cancelBooking.With(order))
		if _, err := Step(ctx, "flight", func(context.Context) (string, error) { return "LH 1", nil }, UndoneBy(cancelBooking)); err != nil {
			return 0, err
		}
		return 0, naps(ctx, 3)
	})
	serveCancellations(k, j, nil)
	run := begin(k, travel, 1)
	k.waitStatus(run.ID(), StatusSleeping, "timer nap0")
	deployed.Store(true)
	k.throughNaps(run.ID(), 0, 1)
	k.waitStatus(run.ID(), StatusSleeping, "timer nap2")
	k.cancel(run.ID())
	failureOf(k, run, StatusCancelled)
	if a := k.steps(run.ID())["flight#compensation"]; len(a) != 4 {
		t.Errorf("flight has %d registrations, want 4", len(a))
	}
	j.want(t, "cancel:LH 1")
}
