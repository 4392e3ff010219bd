package undo_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/kit"
)

// TestUndoneBy registers a compensation together with the result of its step, which is its input.
func TestUndoneBy(t *testing.T) {
	k := kit.New(t)
	j := &kit.Journal{}
	var attempts atomic.Int64
	kit.Serve(k, kit.Travel, func(ctx kagzi.Context, _ int) (int, error) {
		kagzi.Compensate(ctx, "hotel", kit.CancelBooking.With("hotel?"))
		kagzi.Compensate(ctx, "car", kit.CancelBooking.With("car?"))
		if _, err := kagzi.Step(ctx, "flight", func(context.Context) (string, error) {
			if attempts.Add(1) == 1 {
				return "", errors.New("not yet")
			}
			return "LH1", nil
		}, kagzi.UndoneBy(kit.CancelBooking), kit.Soon); err != nil {
			return 0, err
		}
		if err := kagzi.Sleep(ctx, "night", time.Hour); err != nil {
			return 0, err
		}
		if _, err := kagzi.StepTx(ctx, "hotel", func(context.Context, pgx.Tx) (string, error) { return "Ritz", nil },
			kagzi.UndoneBy(kit.CancelBooking)); err != nil {
			return 0, err
		}
		if err := kagzi.Sleep(ctx, "another night", time.Hour); err != nil {
			return 0, err
		}
		_, err := kagzi.Step(ctx, "car", func(context.Context) (string, error) {
			return "", kagzi.Permanent(errors.New("no car"))
		}, kagzi.UndoneBy(kit.CancelBooking))
		return 0, err
	})
	kit.ServeCancellations(k, j, nil)
	run := kit.Begin(k, kit.Travel, 1)
	for _, night := range []string{"timer night", "timer another night"} {
		k.WaitStatus(run.ID(), kagzi.StatusSleeping, night)
		k.Forward(run.ID())
	}
	kit.FailureOf(k, run, kagzi.StatusFailed)
	j.Want(t, "cancel:Ritz cancel:LH1 cancel:car?")
	for step, n := range map[string]int{"flight#compensation": 1, "hotel#compensation": 2, "car#compensation": 1} {
		if a := k.Steps(run.ID())[step]; len(a) != n {
			t.Errorf("%s has %d registrations, want %d: %+v", step, len(a), n, a)
		}
	}
}

// TestRegisteredAgain: the last registration under a name counts, replays register nothing, and an earlier input that
// comes back is registered again.
func TestRegisteredAgain(t *testing.T) {
	k := kit.New(t)
	j := &kit.Journal{}
	kit.Serve(k, kit.Travel, func(ctx kagzi.Context, _ int) (int, error) {
		for i, input := range []string{"a", "b", "b", "a"} {
			kagzi.Compensate(ctx, "x", kit.CancelBooking.With(input))
			if i == 0 {
				kagzi.Compensate(ctx, "y", kit.CancelBooking.With("y"))
			}
			if err := kagzi.Sleep(ctx, fmt.Sprint("night ", i), time.Hour); err != nil {
				return 0, err
			}
		}
		return 0, errors.New("broken")
	})
	kit.ServeCancellations(k, j, nil)
	run := kit.Begin(k, kit.Travel, 1)
	for i := range 4 {
		k.WaitStatus(run.ID(), kagzi.StatusSleeping, fmt.Sprint("timer night ", i))
		k.Forward(run.ID())
	}
	kit.FailureOf(k, run, kagzi.StatusFailed)
	j.Want(t, "cancel:a cancel:y")
	if a := k.Steps(run.ID())["x#compensation"]; len(a) != 3 {
		t.Errorf("x has %d registrations, want 3: %+v", len(a), a)
	}
}

// TestWrongCompensations: a wrong call fails the run before anything is recorded.
func TestWrongCompensations(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		call func(kagzi.Context) error
		says []string
	}{
		"Name": {func(ctx kagzi.Context) error {
			kagzi.Compensate(ctx, "a/b", kit.CancelBooking.With(""))
			return nil
		}, []string{"compensation", "'/'"}},
		"NoCall": {
			func(ctx kagzi.Context) error { kagzi.Compensate(ctx, "a", kagzi.Call{}); return nil },
			[]string{"workflow", "empty"},
		},
		"ID": {func(ctx kagzi.Context) error {
			kagzi.Compensate(ctx, "a", kit.CancelBooking.With("", kagzi.ID("x")))
			return nil
		}, []string{"takes no ID"}},
		"Detached": {func(ctx kagzi.Context) error {
			kagzi.Compensate(ctx, "a", kit.CancelBooking.With("", kagzi.Detached()))
			return nil
		}, []string{"takes no Detached"}},
		"Message": {func(ctx kagzi.Context) error {
			kagzi.Compensate(ctx, "a", kit.CancelBooking.With("", kagzi.DefineSignal[int]("s").With(1)))
			return nil
		}, []string{"takes no Message"}},
		"Input": {func(ctx kagzi.Context) error {
			kagzi.Compensate(ctx, "a", kagzi.Define[any, int]("x").With(func() {}))
			return nil
		}, []string{"cannot be encoded"}},
		"OtherType": {func(ctx kagzi.Context) error {
			_, err := kagzi.Step(ctx, "s", func(context.Context) (int, error) { return 1, nil },
				kagzi.UndoneBy(kit.CancelBooking))
			return err
		}, []string{"takes string", "returns int"}},
		"UndoneByOptions": {func(ctx kagzi.Context) error {
			_, err := kagzi.Step(ctx, "s", func(context.Context) (string, error) {
				t.Error("the step was executed")
				return "", nil
			}, kagzi.UndoneBy(kit.CancelBooking, kagzi.ID("x")))
			return err
		}, []string{"takes no ID"}},
		"UndoneByNothing": {func(ctx kagzi.Context) error {
			_, err := kagzi.Step(ctx, "s", func(context.Context) (string, error) {
				t.Error("the step was executed")
				return "", nil
			}, kagzi.UndoneBy(kagzi.Workflow[string, int]{}))
			return err
		}, []string{"workflow", "empty"}},
		"NoResult": {func(ctx kagzi.Context) error {
			return kagzi.Do(ctx, "s", func(context.Context) error { return nil }, kagzi.UndoneBy(kit.CancelBooking))
		}, []string{"takes string", "use Step"}},
	} {
		t.Run(name, func(t *testing.T) {
			k := kit.New(t)
			re := kit.Refused(k, func(ctx kagzi.Context) (int, error) { return 0, tt.call(ctx) })
			kit.MustContain(t, re, tt.says...)
			if n := k.Count(`SELECT count(*) FROM kagzi.step_runs`); n > 0 {
				t.Errorf("%d records", n)
			}
		})
	}
}
