package kagzi

import (
	"context"
	"errors"
	"fmt"
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
			if name != "InheritedAll" {
				endsUndone(k, run, tt.from, tt.opts, j, tt.want)
				return
			}
			forks, err := k.c.ForkAll(k.ctx, RunFilter{Workflow: "trip"}, tt.from, tt.opts...)
			if err != nil || len(forks.New) != 1 {
				t.Fatalf("%+v, %v", forks, err)
			}
			waitFor(t, "the fork has ended", func() bool { return k.infoOf(forks.New[run.ID()]).Status == StatusFailed })
			j.want(t, tt.want)
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

// TestForkWithAnotherInput forks a completed run, whose flight was booked with what the input says: that booking is the old
// run's, whatever the fork's input is.
func TestForkWithAnotherInput(t *testing.T) {
	t.Parallel()
	for name, after := range map[string]bool{"UndoneBy": false, "RegisteredAfter": true} {
		t.Run(name, func(t *testing.T) {
			k := newKit(t)
			j := &journal{}
			var again atomic.Bool
			serve(k, travel, func(ctx Context, order int) (int, error) {
				Compensate(ctx, "flight", cancelBooking.With(fmt.Sprint("order ", order)))
				var opts []StepOption
				if !after {
					opts = append(opts, UndoneBy(cancelBooking))
				}
				booking, err := Step(ctx, "flight", func(context.Context) (string, error) { return "LH1", nil }, opts...)
				if err != nil {
					return 0, err
				}
				if after {
					Compensate(ctx, "flight", cancelBooking.With(booking))
				}
				return 1, endsIn(ctx, "mail", &again)
			})
			serveCancellations(k, j, nil)
			run := begin(k, travel, 1)
			resultOf(k, run)
			again.Store(true)
			endsUndone(k, run, "mail", []RestartOption{NewInput(2)}, j, "")
		})
	}
}

// endsIn executes the last step of a run, which breaks it if again is set.
func endsIn(ctx Context, name string, again *atomic.Bool) error {
	return Do(ctx, name, func(context.Context) error {
		if again.Load() {
			return Permanent(errors.New("broken"))
		}
		return nil
	})
}

// TestForkUndoesWhatItExecutes forks runs that had registered what undoes a step, and had recorded other steps since: the
// fork executes the step, and undoes it.
func TestForkUndoesWhatItExecutes(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		fn   func(k *kit, ctx Context, again bool) error
		from string
	}{
		"RegisteredUpFront": {func(k *kit, ctx Context, again bool) error {
			Compensate(ctx, "flight", cancelBooking.With("flight"))
			Compensate(ctx, "hotel", cancelBooking.With("hotel"))
			return errors.Join(doLine(ctx, &journal{}, "flight"), doLine(ctx, &journal{}, "hotel"))
		}, "hotel"},
		"UndoneBy": {func(k *kit, ctx Context, again bool) error {
			Compensate(ctx, "hotel", cancelBooking.With("a hotel"))
			if err := doLine(ctx, &journal{}, "flight"); err != nil {
				return err
			}
			_, err := Step(ctx, "hotel", func(context.Context) (string, error) { return "hotel", nil }, UndoneBy(cancelBooking))
			return err
		}, "hotel"},
		"NotReached": {func(k *kit, ctx Context, again bool) error {
			Compensate(ctx, "hotel", cancelBooking.With("hotel"))
			if err := doLine(ctx, &journal{}, "flight"); err != nil || !again {
				return err
			}
			return doLine(ctx, &journal{}, "hotel")
		}, "end"},
		"Forgotten": {func(k *kit, ctx Context, again bool) error {
			Compensate(ctx, "hotel", cancelBooking.With("hotel"))
			err := Do(ctx, "hotel", func(context.Context) error {
				if !again {
					return errors.New("no room")
				}
				return nil
			}, noRetry)
			if e := doLine(ctx, &journal{}, "note"); e != nil || !again {
				return e
			}
			return err // of the fork's first attempt; its second one forgets it
		}, "end"},
		"OtherBranch": {func(k *kit, ctx Context, again bool) error {
			registered := make(chan struct{})
			land := Go(ctx, "land", func(ctx Context) (int, error) {
				if !again {
					<-registered
				}
				return 0, errors.Join(doLine(ctx, &journal{}, "train"), doLine(ctx, &journal{}, "bus"))
			})
			Compensate(ctx, "hotel", cancelBooking.With("hotel"))
			err := Do(ctx, "hotel", func(context.Context) error {
				if !again {
					close(registered)
					waitFor(k.t, "the bus is recorded", func() bool {
						return k.count(`SELECT count(*) FROM kagzi.step_runs WHERE step_id = 'land/bus' AND status = 'COMPLETED'`) > 0
					})
				}
				return nil
			})
			_, failed := land.Result(ctx)
			return errors.Join(err, failed)
		}, "land/bus"},
	} {
		t.Run(name, func(t *testing.T) {
			k := newKit(t)
			wf := Define[int, int]("trip", twice)
			j := &journal{}
			var again atomic.Bool
			serve(k, wf, func(ctx Context, _ int) (int, error) {
				if err := tt.fn(k, ctx, again.Load()); err != nil {
					return 0, err
				}
				return 1, endsIn(ctx, "end", &again)
			})
			serveCancellations(k, j, nil)
			run := begin(k, wf, 1)
			resultOf(k, run)
			again.Store(true)
			endsUndone(k, run, tt.from, nil, j, "cancel:hotel")
		})
	}
}

// TestForkInheritsFromALoser forks a run from behind a race, one of whose losers had registered a compensation and was at its
// step.
func TestForkInheritsFromALoser(t *testing.T) {
	k := newKit(t)
	j := &journal{}
	var again atomic.Bool
	booking := make(chan struct{})
	serve(k, travel, func(ctx Context, _ int) (int, error) {
		if _, _, err := Race(ctx, "legs", map[string]func(Context) (int, error){
			"air": func(ctx Context) (int, error) {
				Compensate(ctx, "flight", cancelBooking.With("flight"))
				return 1, Do(ctx, "flight", func(ctx context.Context) error {
					close(booking)
					<-ctx.Done()
					return ctx.Err()
				})
			},
			"land": func(ctx Context) (int, error) {
				return 1, Do(ctx, "train", func(context.Context) error { <-booking; return nil })
			},
		}); err != nil {
			return 0, err
		}
		return 1, endsIn(ctx, "mail", &again)
	})
	serveCancellations(k, j, nil)
	run := begin(k, travel, 1)
	resultOf(k, run)
	again.Store(true)
	endsUndone(k, run, "mail", []RestartOption{InheritCompensations()}, j, "cancel:flight")
}

// TestForkOfAForkCompensates forks a completed run, which completes, and the fork, which fails.
func TestForkOfAForkCompensates(t *testing.T) {
	t.Parallel()
	inherited := []RestartOption{InheritCompensations()}
	for name, tt := range map[string]struct {
		first, second string
		opts          []RestartOption
		want          string
	}{
		"CopiedByTheFirst":   {"mail", "flight", nil, "cancel:car1 cancel:hotel1 cancel:flight1"},
		"ExecutedByTheFirst": {"flight", "mail", nil, ""},
		"Inherited":          {"hotel", "mail", inherited, "cancel:car1 cancel:hotel1"}, // the first fork has no other
		"NothingToInherit":   {"mail", "mail", inherited, ""},
		"Both":               {"car", "hotel", inherited, "cancel:car1 cancel:hotel1"},
	} {
		t.Run(name, func(t *testing.T) {
			k := newKit(t)
			j := &journal{}
			var again atomic.Bool
			serve(k, travel, trip(&journal{}, func(ctx Context) error { return endsIn(ctx, "mail", &again) }))
			serveCancellations(k, j, nil)
			run := begin(k, travel, 1)
			resultOf(k, run)
			id, err := k.c.Fork(k.ctx, run.ID(), tt.first)
			if err != nil {
				t.Fatal(err)
			}
			fork, err := Find(k.ctx, k.c, travel, id)
			if err != nil {
				t.Fatal(err)
			}
			resultOf(k, fork)
			again.Store(true)
			endsUndone(k, fork, tt.second, tt.opts, j, tt.want)
		})
	}
}

// TestForkBehindACancelledChild forks a run from behind the cancel of a child whose end nobody had asked for: the fork has a
// child of its own, and cancels that.
func TestForkBehindACancelledChild(t *testing.T) {
	k := newKit(t)
	kid := Define[int, int]("kid", noRetry)
	w := newTestWorker(t, k.c, WorkerConfig{})
	Handle(w, kid, func(ctx Context, _ int) (int, error) { return 1, sleepLong(ctx) })
	Handle(w, travel, func(ctx Context, _ int) (int, error) {
		c, err := StartChild(ctx, "kid", kid, 1)
		if err != nil {
			return 0, err
		}
		if err := errors.Join(doLine(ctx, &journal{}, "before"), c.Cancel(ctx)); err != nil {
			return 0, err
		}
		return 1, doLine(ctx, &journal{}, "mail")
	})
	startWorker(t, w)
	run := begin(k, travel, 1)
	resultOf(k, run)
	id, err := k.c.Fork(k.ctx, run.ID(), "mail")
	if err != nil {
		t.Fatal(err)
	}
	fork, err := Find(k.ctx, k.c, travel, id)
	if err != nil {
		t.Fatal(err)
	}
	resultOf(k, fork)
	waitFor(t, "both children are cancelled", func() bool {
		return k.count(`SELECT count(*) FROM kagzi.workflow_runs WHERE workflow_type = 'kid' AND status = 'CANCELLED'`) == 2
	})
}
