package kagzi

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
)

// TestForkInheritsNoCompensations forks runs that have completed, and lets the forks fail: what belongs to steps that the
// fork has from the old run is the old run's to undo, unless it is inherited.
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
		"AtTheEnd":        {"mail", nil, "cancel:van"}, // nothing of this name, and nothing after it, is the old run's
		"Later":           {"bill", nil, ""},
		"InheritedHotel":  {"hotel", inherited, "cancel:van cancel:Ritz cancel:LH1"},
		"InheritedCar":    {"car", inherited, "cancel:van cancel:Ritz cancel:LH1"},
		"InheritedAll":    {"bill", inherited, "cancel:van cancel:Ritz cancel:LH1"},
	} {
		t.Run(name, func(t *testing.T) {
			k := newKit(t)
			wf := Define[int, int]("trip", noRetry)
			j := &journal{}
			var fail atomic.Bool
			serve(k, wf, func(ctx Context, _ int) (int, error) {
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
			run := begin(k, wf, 7)
			resultOf(k, run)
			fail.Store(true)
			endsUndone(k, run, tt.from, tt.opts, j, tt.want)
		})
	}
}

// endsUndone forks the run and fails the test unless the fork fails and cancels what is wanted.
func endsUndone(k *kit, run *Run[int], from string, opts []RestartOption, j *journal, want string) {
	k.t.Helper()
	id, err := k.c.Fork(k.ctx, run.ID(), from, opts...)
	if err != nil {
		k.t.Fatal(err)
	}
	waitFor(k.t, "the fork has ended", func() bool { return k.infoOf(id).Status == StatusFailed })
	if got := j.String(); got != want {
		k.t.Errorf("happened: %q, want %q", got, want)
	}
}

// TestForkWhileABranchIsAtItsStep forks a run from a moment when another branch has registered the compensation of the step
// that it is at: the fork executes that step, and so has the compensation, whatever was recorded elsewhere meanwhile.
func TestForkWhileABranchIsAtItsStep(t *testing.T) {
	k := newKit(t)
	wf := Define[int, int]("trip", noRetry)
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
	serve(k, wf, func(ctx Context, _ int) (int, error) {
		err := Parallel(ctx, "legs", map[string]func(Context) error{
			"air": func(ctx Context) error {
				Compensate(ctx, "flight", cancelBooking.With("flight"))
				Patched(ctx, "seats") // recorded with what follows, and nothing that was done
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
	run := begin(k, wf, 1)
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
