package undo_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/kit"
)

// TestRegisteredAnewByADeploy deploys other code while a run sleeps: its compensations are registered once more, and
// the last input counts, even if a later replay stops before it.
func TestRegisteredAnewByADeploy(t *testing.T) {
	k := kit.New(t)
	j := &kit.Journal{}
	var deployed, stops atomic.Bool
	kit.Serve(k, kit.Travel, func(ctx kagzi.Context, _ int) (int, error) {
		inputs := []string{"a", "b"}
		if deployed.Load() {
			inputs = []string{"A", "B"}
		}
		for _, in := range inputs {
			kagzi.Compensate(ctx, "x", kit.CancelBooking.With(in))
			if stops.Load() {
				return 0, errors.New("broken")
			}
		}
		return 0, kit.Naps(ctx, 3)
	})
	kit.ServeCancellations(k, j, nil)
	run := kit.Begin(k, kit.Travel, 1)
	k.WaitStatus(run.ID(), kagzi.StatusSleeping, "timer nap0")
	deployed.Store(true)
	k.ThroughNaps(run.ID(), 0, 1)
	k.WaitStatus(run.ID(), kagzi.StatusSleeping, "timer nap2")
	stops.Store(true)
	k.Forward(run.ID())
	kit.FailureOf(k, run, kagzi.StatusFailed)
	if a := k.Steps(run.ID())["x#compensation"]; len(a) != 4 {
		t.Errorf("x has %d registrations, want 4: %+v", len(a), a)
	}
	j.Want(t, "cancel:B")
}

// TestADeployChangesWhatIsRegisteredBeforeAStep: the step has registered its result, and that counts.
func TestADeployChangesWhatIsRegisteredBeforeAStep(t *testing.T) {
	k := kit.New(t)
	j := &kit.Journal{}
	var deployed atomic.Bool
	kit.Serve(k, kit.Travel, func(ctx kagzi.Context, _ int) (int, error) {
		order := "order 7"
		if deployed.Load() {
			order = "order seven"
		}
		kagzi.Compensate(ctx, "flight", kit.CancelBooking.With(order))
		if _, err := kagzi.Step(ctx, "flight", func(context.Context) (string, error) { return "LH 1", nil },
			kagzi.UndoneBy(kit.CancelBooking)); err != nil {
			return 0, err
		}
		return 0, kit.Naps(ctx, 3)
	})
	kit.ServeCancellations(k, j, nil)
	run := kit.Begin(k, kit.Travel, 1)
	k.WaitStatus(run.ID(), kagzi.StatusSleeping, "timer nap0")
	deployed.Store(true)
	k.ThroughNaps(run.ID(), 0, 1)
	k.WaitStatus(run.ID(), kagzi.StatusSleeping, "timer nap2")
	k.Cancel(run.ID())
	kit.FailureOf(k, run, kagzi.StatusCancelled)
	if a := k.Steps(run.ID())["flight#compensation"]; len(a) != 4 {
		t.Errorf("flight has %d registrations, want 4", len(a))
	}
	j.Want(t, "cancel:LH 1")
}
