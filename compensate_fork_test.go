package kagzi

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
)

// TestForkInheritsNoCompensations forks completed runs and lets the forks fail: the compensations of steps copied from the
// old run stay with the old run, unless they are inherited.
func TestForkInheritsNoCompensations(t *testing.T) {
	t.Parallel()
	inherited := []RestartOption{InheritCompensations()}
	for name, tt := range map[string]struct {
		from string
		opts []RestartOption
		want string
	}{
		"Before":          {"flight", nil, "cancel:van cancel:Ritz cancel:LH1"},
		"RegisteredTwice": {"hotel", nil, "cancel:van cancel:Ritz"},
		"AfterBoth":       {"car", nil, "cancel:van"},
		"AtTheEnd":        {"mail", nil, "cancel:van"}, // the old run registered nothing under this name or after it
		"Later":           {"bill", nil, ""},
		"InheritedHotel":  {"hotel", inherited, "cancel:van cancel:Ritz cancel:LH1"},
		"InheritedCar":    {"car", inherited, "cancel:van cancel:Ritz cancel:LH1"},
		"InheritedAll":    {"bill", inherited, "cancel:van cancel:Ritz cancel:LH1"},
	} {
		t.Run(name, func(t *testing.T) {
			k := newKit(t)
			j := &journal{}
			var fail atomic.Bool
			serve(k, travel, func(ctx Context, _ int) (int, error) {
				Compensate(ctx, "flight", cancelBooking.With("a flight")) // replaced by what the step returns
				if _, err := Step(ctx, "flight", func(context.Context) (string, error) { return "LH1", nil }, UndoneBy(cancelBooking)); err != nil {
					return 0, err
				}
				Compensate(ctx, "hotel", cancelBooking.With("a hotel"))
				hotel, err := Step(ctx, "hotel", func(context.Context) (string, error) { return "Ritz", nil })
				if err != nil {
					return 0, err
				}
				Compensate(ctx, "hotel", cancelBooking.With(hotel))
				if err := doLine(ctx, &journal{}, "car"); err != nil {
					return 0, err
				}
				Compensate(ctx, "rental", cancelBooking.With("van")) // under a name of its own
				if err := doLine(ctx, &journal{}, "mail"); err != nil {
					return 0, err
				}
				return 1, Do(ctx, "bill", func(context.Context) error {
					if fail.Load() {
						return Permanent(errors.New("broken"))
					}
					return nil
				})
			})
			serveCancellations(k, j, nil)
			run := begin(k, travel, 7)
			resultOf(k, run)
			fail.Store(true)
			endsUndone(k, run, tt.from, tt.opts, j, tt.want)
		})
	}
}

// endsUndone forks the run and fails the test unless the fork fails and j is then as wanted.
func endsUndone(k *kit, run *Run[int], from string, opts []RestartOption, j *journal, want string) {
	k.t.Helper()
	id, err := k.c.Fork(k.ctx, run.ID(), from, opts...)
	if err != nil {
		k.t.Fatal(err)
	}
	waitFor(k.t, "the fork has ended", func() bool { return k.infoOf(id).Status == StatusFailed })
	j.want(k.t, want)
}

// TestForkWhileABranchIsAtItsStep forks a run as of a moment when a branch has registered a compensation and is at its
// step: the fork executes that step, and so has the compensation, whatever other branches recorded meanwhile.
func TestForkWhileABranchIsAtItsStep(t *testing.T) {
	k := newKit(t)
	j := &journal{}
	booking, boarding := make(chan struct{}), make(chan struct{})
	var again atomic.Bool
	leg := func(ctx Context, name string, opens, waits chan struct{}) error {
		return Do(ctx, name, func(context.Context) error {
			if again.Load() {
				return nil
			}
			if opens != nil {
				close(opens)
			}
			if waits != nil {
				<-waits
			}
			return nil
		})
	}
	serve(k, travel, func(ctx Context, _ int) (int, error) {
		err := Parallel(ctx, "legs", map[string]func(Context) error{
			"air": func(ctx Context) error {
				Compensate(ctx, "flight", cancelBooking.With("flight"))
				Patched(ctx, "seats") // recorded with the next step, and executes nothing itself
				return leg(ctx, "book", booking, boarding)
			},
			"land": func(ctx Context) error {
				return errors.Join(leg(ctx, "train", nil, booking), leg(ctx, "bus", boarding, nil))
			},
		})
		if err == nil && again.Load() {
			err = errors.New("broken")
		}
		return 1, err
	})
	serveCancellations(k, j, nil)
	run := begin(k, travel, 1)
	resultOf(k, run)
	again.Store(true)
	endsUndone(k, run, "legs/land/bus", nil, j, "cancel:flight")
}

// TestInheritCompensationsIsForForks: a restart has nothing to inherit.
func TestInheritCompensationsIsForForks(t *testing.T) {
	k := newKit(t)
	wf := Define[int, int]("wf")
	serve(k, wf, func(Context, int) (int, error) { return 1, nil })
	run := begin(k, wf, 1)
	resultOf(k, run)
	_, err := k.c.Restart(k.ctx, run.ID(), InheritCompensations())
	mustContain(t, err, "InheritCompensations", "Fork")
}
