package kagzi

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// TestUndoneBy registers a compensation together with the result of its step, which is its input.
func TestUndoneBy(t *testing.T) {
	k := newKit(t)
	j := &journal{}
	var attempts atomic.Int64
	serve(k, travel, func(ctx Context, _ int) (int, error) {
		Compensate(ctx, "hotel", cancelBooking.With("hotel?"))
		Compensate(ctx, "car", cancelBooking.With("car?"))
		if _, err := Step(ctx, "flight", func(context.Context) (string, error) {
			if attempts.Add(1) == 1 {
				return "", errors.New("not yet")
			}
			return "LH1", nil
		}, UndoneBy(cancelBooking), soon); err != nil {
			return 0, err
		}
		if err := Sleep(ctx, "night", time.Hour); err != nil {
			return 0, err
		}
		if _, err := StepTx(ctx, "hotel", func(context.Context, pgx.Tx) (string, error) { return "Ritz", nil }, UndoneBy(cancelBooking)); err != nil {
			return 0, err
		}
		if err := Sleep(ctx, "another night", time.Hour); err != nil {
			return 0, err
		}
		_, err := Step(ctx, "car", func(context.Context) (string, error) { return "", Permanent(errors.New("no car")) }, UndoneBy(cancelBooking))
		return 0, err
	})
	serveCancellations(k, j, nil)
	run := begin(k, travel, 1)
	for _, night := range []string{"timer night", "timer another night"} {
		k.waitStatus(run.ID(), StatusSleeping, night)
		k.forward(run.ID())
	}
	failureOf(k, run, StatusFailed)
	j.want(t, "cancel:Ritz cancel:LH1 cancel:car?")
	for step, n := range map[string]int{"flight#compensation": 1, "hotel#compensation": 2, "car#compensation": 1} {
		if a := k.steps(run.ID())[step]; len(a) != n {
			t.Errorf("%s has %d registrations, want %d: %+v", step, len(a), n, a)
		}
	}
}

// TestRegisteredAgain: the last registration under a name counts, replays register nothing, and an earlier input that
// comes back is registered again.
func TestRegisteredAgain(t *testing.T) {
	k := newKit(t)
	j := &journal{}
	serve(k, travel, func(ctx Context, _ int) (int, error) {
		for i, input := range []string{"a", "b", "b", "a"} {
			Compensate(ctx, "x", cancelBooking.With(input))
			if i == 0 {
				Compensate(ctx, "y", cancelBooking.With("y"))
			}
			if err := Sleep(ctx, fmt.Sprint("night ", i), time.Hour); err != nil {
				return 0, err
			}
		}
		return 0, errors.New("broken")
	})
	serveCancellations(k, j, nil)
	run := begin(k, travel, 1)
	for i := range 4 {
		k.waitStatus(run.ID(), StatusSleeping, fmt.Sprint("timer night ", i))
		k.forward(run.ID())
	}
	failureOf(k, run, StatusFailed)
	j.want(t, "cancel:a cancel:y")
	if a := k.steps(run.ID())["x#compensation"]; len(a) != 3 {
		t.Errorf("x has %d registrations, want 3: %+v", len(a), a)
	}
}

// TestWrongCompensations: a wrong call fails the run before anything is recorded.
func TestWrongCompensations(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		call func(Context) error
		says []string
	}{
		"Name":     {func(ctx Context) error { Compensate(ctx, "a/b", cancelBooking.With("")); return nil }, []string{"compensation", "'/'"}},
		"NoCall":   {func(ctx Context) error { Compensate(ctx, "a", Call{}); return nil }, []string{"workflow", "empty"}},
		"ID":       {func(ctx Context) error { Compensate(ctx, "a", cancelBooking.With("", ID("x"))); return nil }, []string{"takes no ID"}},
		"Detached": {func(ctx Context) error { Compensate(ctx, "a", cancelBooking.With("", Detached())); return nil }, []string{"takes no Detached"}},
		"Message": {func(ctx Context) error {
			Compensate(ctx, "a", cancelBooking.With("", DefineSignal[int]("s").With(1)))
			return nil
		}, []string{"takes no Message"}},
		"Input": {func(ctx Context) error { Compensate(ctx, "a", Define[any, int]("x").With(func() {})); return nil }, []string{"cannot be encoded"}},
		"OtherType": {func(ctx Context) error {
			_, err := Step(ctx, "s", func(context.Context) (int, error) { return 1, nil }, UndoneBy(cancelBooking))
			return err
		}, []string{"takes string", "returns int"}},
		"UndoneByOptions": {func(ctx Context) error {
			_, err := Step(ctx, "s", func(context.Context) (string, error) { t.Error("the step was executed"); return "", nil }, UndoneBy(cancelBooking, ID("x")))
			return err
		}, []string{"takes no ID"}},
		"UndoneByNothing": {func(ctx Context) error {
			_, err := Step(ctx, "s", func(context.Context) (string, error) { t.Error("the step was executed"); return "", nil }, UndoneBy(Workflow[string, int]{}))
			return err
		}, []string{"workflow", "empty"}},
		"NoResult": {func(ctx Context) error {
			return Do(ctx, "s", func(context.Context) error { return nil }, UndoneBy(cancelBooking))
		}, []string{"takes string", "use Step"}},
	} {
		t.Run(name, func(t *testing.T) {
			k := newKit(t)
			re := refused(k, func(ctx Context) (int, error) { return 0, tt.call(ctx) })
			mustContain(t, re, tt.says...)
			if n := k.count(`SELECT count(*) FROM kagzi.step_runs`); n > 0 {
				t.Errorf("%d records", n)
			}
		})
	}
}
