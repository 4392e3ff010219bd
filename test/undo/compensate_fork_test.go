package undo_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
)

// TestForkInheritsNoCompensations forks completed runs and lets the forks fail: the compensations of steps copied from
// the old run stay with the old run, unless they are inherited.
func TestForkInheritsNoCompensations(t *testing.T) {
	t.Parallel()
	inherited := []admin.RestartOption{admin.InheritCompensations()}
	for name, tt := range map[string]struct {
		from string
		opts []admin.RestartOption
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
			k := kit.New(t)
			j := &kit.Journal{}
			var fail atomic.Bool
			kit.Serve(k, kit.Travel, func(ctx kagzi.Context, _ int) (int, error) {
				kagzi.Compensate(ctx, "flight", kit.CancelBooking.With("a flight")) // replaced by what the step returns
				if _, err := kagzi.Step(ctx, "flight", func(context.Context) (string, error) { return "LH1", nil },
					kagzi.UndoneBy(kit.CancelBooking)); err != nil {
					return 0, err
				}
				kagzi.Compensate(ctx, "hotel", kit.CancelBooking.With("a hotel"))
				hotel, err := kagzi.Step(ctx, "hotel", func(context.Context) (string, error) { return "Ritz", nil })
				if err != nil {
					return 0, err
				}
				kagzi.Compensate(ctx, "hotel", kit.CancelBooking.With(hotel))
				if err := kit.DoLine(ctx, &kit.Journal{}, "car"); err != nil {
					return 0, err
				}
				kagzi.Compensate(ctx, "rental", kit.CancelBooking.With("van")) // under a name of its own
				if err := kit.DoLine(ctx, &kit.Journal{}, "mail"); err != nil {
					return 0, err
				}
				return 1, kagzi.Do(ctx, "bill", func(context.Context) error {
					if fail.Load() {
						return kagzi.Permanent(errors.New("broken"))
					}
					return nil
				})
			})
			kit.ServeCancellations(k, j, nil)
			run := kit.Begin(k, kit.Travel, 7)
			kit.ResultOf(k, run)
			fail.Store(true)
			if name != "InheritedAll" {
				endsUndone(k, run, tt.from, tt.opts, j, tt.want)
				return
			}
			forks, err := admin.New(k.Client).Runs.ForkAll(k.Ctx, kagzi.RunFilter{Workflow: "trip"}, tt.from,
				tt.opts...)
			if err != nil || len(forks.New) != 1 {
				t.Fatalf("%+v, %v", forks, err)
			}
			await.True(t, "the fork has ended", func() bool {
				return k.InfoOf(forks.New[run.ID()]).Status == kagzi.StatusFailed
			})
			j.Want(t, tt.want)
		})
	}
}

// endsUndone forks the run and fails the test unless the fork fails and j is then as wanted.
func endsUndone(k *kit.Kit, run *kagzi.Run[int], from string, opts []admin.RestartOption, j *kit.Journal, want string) {
	k.T.Helper()
	id, err := admin.New(k.Client).Runs.Fork(k.Ctx, run.ID(), from, opts...)
	if err != nil {
		k.T.Fatal(err)
	}
	await.True(k.T, "the fork has ended", func() bool { return k.InfoOf(id).Status == kagzi.StatusFailed })
	j.Want(k.T, want)
}

// TestForkWhileABranchIsAtItsStep forks a run as of a moment when a branch has registered a compensation and is at its
// step: the fork executes that step, and so has the compensation, whatever other branches recorded meanwhile.
func TestForkWhileABranchIsAtItsStep(t *testing.T) {
	k := kit.New(t)
	j := &kit.Journal{}
	booking, boarding := make(chan struct{}), make(chan struct{})
	var again atomic.Bool
	step := func(ctx kagzi.Context, name string, first func(context.Context)) error {
		return kagzi.Do(ctx, name, func(ctx context.Context) error {
			if !again.Load() {
				first(ctx)
			}
			return nil
		})
	}
	kit.Serve(k, kit.Travel, func(ctx kagzi.Context, _ int) (int, error) {
		err := kagzi.Parallel(ctx, "legs", map[string]func(kagzi.Context) error{
			"air": func(ctx kagzi.Context) error {
				kagzi.Compensate(ctx, "flight", kit.CancelBooking.With("flight"))
				kagzi.Patched(ctx, "seats") // recorded with the next step, and executes nothing itself
				return step(ctx, "book", func(context.Context) { close(booking); await.Opened(t, boarding) })
			},
			"land": func(ctx kagzi.Context) error {
				return errors.Join(step(ctx, "train", func(context.Context) { await.Opened(t, booking) }),
					step(ctx, "bus", func(ctx context.Context) {
						await.True(t, "the table says when the bus began", func() bool {
							return len(k.Steps(kagzi.CurrentStep(ctx).Run)["legs/land/bus"]) > 0
						})
						close(boarding)
					}))
			},
		})
		if err == nil && again.Load() {
			err = errors.New("broken")
		}
		return 1, err
	})
	kit.ServeCancellations(k, j, nil)
	run := kit.Begin(k, kit.Travel, 1)
	kit.ResultOf(k, run)
	again.Store(true)
	endsUndone(k, run, "legs/land/bus", nil, j, "cancel:flight")
}

// TestInheritCompensationsIsForForks: a restart has nothing to inherit.
func TestInheritCompensationsIsForForks(t *testing.T) {
	k := kit.New(t)
	wf := kagzi.Define[int, int]("wf")
	kit.Serve(k, wf, func(kagzi.Context, int) (int, error) { return 1, nil })
	run := kit.Begin(k, wf, 1)
	kit.ResultOf(k, run)
	_, err := admin.New(k.Client).Runs.Restart(k.Ctx, run.ID(), admin.InheritCompensations())
	kit.MustContain(t, err, "InheritCompensations", "Fork")
}

// TestForkWithAnotherInput forks a completed run, whose flight was booked with what the input says: that booking is the
// old run's, whatever the fork's input is.
func TestForkWithAnotherInput(t *testing.T) {
	t.Parallel()
	for name, after := range map[string]bool{"UndoneBy": false, "RegisteredAfter": true} {
		t.Run(name, func(t *testing.T) {
			k := kit.New(t)
			j := &kit.Journal{}
			var again atomic.Bool
			kit.Serve(k, kit.Travel, func(ctx kagzi.Context, order int) (int, error) {
				kagzi.Compensate(ctx, "flight", kit.CancelBooking.With(fmt.Sprint("order ", order)))
				var opts []kagzi.StepOption
				if !after {
					opts = append(opts, kagzi.UndoneBy(kit.CancelBooking))
				}
				booking, err := kagzi.Step(ctx, "flight", func(context.Context) (string, error) {
					return "LH1", nil
				}, opts...)
				if err != nil {
					return 0, err
				}
				if after {
					kagzi.Compensate(ctx, "flight", kit.CancelBooking.With(booking))
				}
				return 1, endsIn(ctx, "mail", &again)
			})
			kit.ServeCancellations(k, j, nil)
			run := kit.Begin(k, kit.Travel, 1)
			kit.ResultOf(k, run)
			again.Store(true)
			endsUndone(k, run, "mail", []admin.RestartOption{admin.NewInput(2)}, j, "")
		})
	}
}

// endsIn executes the last step of a run, which breaks it if again is set.
func endsIn(ctx kagzi.Context, name string, again *atomic.Bool) error {
	return kagzi.Do(ctx, name, func(context.Context) error {
		if again.Load() {
			return kagzi.Permanent(errors.New("broken"))
		}
		return nil
	})
}

// TestForkUndoesWhatItExecutes forks runs that had registered the compensation of a step, and had recorded other steps
// since: the fork executes the step, and compensates it.
func TestForkUndoesWhatItExecutes(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		fn   func(k *kit.Kit, ctx kagzi.Context, again bool) error
		from string
	}{
		"RegisteredUpFront": {func(k *kit.Kit, ctx kagzi.Context, again bool) error {
			kagzi.Compensate(ctx, "flight", kit.CancelBooking.With("flight"))
			kagzi.Compensate(ctx, "hotel", kit.CancelBooking.With("hotel"))
			return errors.Join(kit.DoLine(ctx, &kit.Journal{}, "flight"), kit.DoLine(ctx, &kit.Journal{}, "hotel"))
		}, "hotel"},
		"UndoneBy": {func(k *kit.Kit, ctx kagzi.Context, again bool) error {
			kagzi.Compensate(ctx, "hotel", kit.CancelBooking.With("a hotel"))
			if err := kit.DoLine(ctx, &kit.Journal{}, "flight"); err != nil {
				return err
			}
			_, err := kagzi.Step(ctx, "hotel", func(context.Context) (string, error) { return "hotel", nil },
				kagzi.UndoneBy(kit.CancelBooking))
			return err
		}, "hotel"},
		"NotReached": {func(k *kit.Kit, ctx kagzi.Context, again bool) error {
			kagzi.Compensate(ctx, "hotel", kit.CancelBooking.With("hotel"))
			if err := kit.DoLine(ctx, &kit.Journal{}, "flight"); err != nil || !again {
				return err
			}
			return kit.DoLine(ctx, &kit.Journal{}, "hotel")
		}, "end"},
		"Forgotten": {func(k *kit.Kit, ctx kagzi.Context, again bool) error {
			kagzi.Compensate(ctx, "hotel", kit.CancelBooking.With("hotel"))
			err := kagzi.Do(ctx, "hotel", func(context.Context) error {
				if !again {
					return errors.New("no room")
				}
				return nil
			}, kit.NoRetry)
			if e := kit.DoLine(ctx, &kit.Journal{}, "note"); e != nil || !again {
				return e
			}
			return err // of the fork's first attempt; its second one forgets it
		}, "end"},
		"OtherBranch": {func(k *kit.Kit, ctx kagzi.Context, again bool) error {
			registered := make(chan struct{})
			land := kagzi.Go(ctx, "land", func(ctx kagzi.Context) (int, error) {
				if !again {
					await.Opened(t, registered)
				}
				return 0, errors.Join(kit.DoLine(ctx, &kit.Journal{}, "train"), kit.DoLine(ctx, &kit.Journal{}, "bus"))
			})
			kagzi.Compensate(ctx, "hotel", kit.CancelBooking.With("hotel"))
			err := kagzi.Do(ctx, "hotel", func(context.Context) error {
				if !again {
					close(registered)
					await.True(k.T, "the bus is recorded", func() bool {
						return k.Count(`SELECT count(*) FROM kagzi.step_runs WHERE step_id = 'land/bus'
							AND status = 'COMPLETED'`) > 0
					})
				}
				return nil
			})
			_, failed := land.Result(ctx)
			return errors.Join(err, failed)
		}, "land/bus"},
	} {
		t.Run(name, func(t *testing.T) {
			k := kit.New(t)
			wf := kagzi.Define[int, int]("trip", kit.Twice)
			j := &kit.Journal{}
			var again atomic.Bool
			kit.Serve(k, wf, func(ctx kagzi.Context, _ int) (int, error) {
				if err := tt.fn(k, ctx, again.Load()); err != nil {
					return 0, err
				}
				return 1, endsIn(ctx, "end", &again)
			})
			kit.ServeCancellations(k, j, nil)
			run := kit.Begin(k, wf, 1)
			kit.ResultOf(k, run)
			again.Store(true)
			endsUndone(k, run, tt.from, nil, j, "cancel:hotel")
		})
	}
}

// TestForkInheritsFromALoser forks a run from behind a race, one of whose losers had registered a compensation and was
// at its step.
func TestForkInheritsFromALoser(t *testing.T) {
	k := kit.New(t)
	j := &kit.Journal{}
	var again atomic.Bool
	booking := make(chan struct{})
	kit.Serve(k, kit.Travel, func(ctx kagzi.Context, _ int) (int, error) {
		if _, _, err := kagzi.Race(ctx, "legs", map[string]func(kagzi.Context) (int, error){
			"air": func(ctx kagzi.Context) (int, error) {
				kagzi.Compensate(ctx, "flight", kit.CancelBooking.With("flight"))
				return 1, kagzi.Do(ctx, "flight", func(ctx context.Context) error {
					close(booking)
					<-ctx.Done()
					return ctx.Err()
				})
			},
			"land": func(ctx kagzi.Context) (int, error) {
				return 1, kagzi.Do(ctx, "train", func(context.Context) error { await.Opened(t, booking); return nil })
			},
		}); err != nil {
			return 0, err
		}
		return 1, endsIn(ctx, "mail", &again)
	})
	kit.ServeCancellations(k, j, nil)
	run := kit.Begin(k, kit.Travel, 1)
	kit.ResultOf(k, run)
	again.Store(true)
	endsUndone(k, run, "mail", []admin.RestartOption{admin.InheritCompensations()}, j, "cancel:flight")
}

// TestForkOfAForkCompensates forks a completed run, which completes, and the fork, which fails.
func TestForkOfAForkCompensates(t *testing.T) {
	t.Parallel()
	inherited := []admin.RestartOption{admin.InheritCompensations()}
	for name, tt := range map[string]struct {
		first, second string
		opts          []admin.RestartOption
		want          string
	}{
		"CopiedByTheFirst":   {"mail", "flight", nil, "cancel:car1 cancel:hotel1 cancel:flight1"},
		"ExecutedByTheFirst": {"flight", "mail", nil, ""},
		"Inherited":          {"hotel", "mail", inherited, "cancel:car1 cancel:hotel1"}, // the first fork has no other
		"NothingToInherit":   {"mail", "mail", inherited, ""},
		"Both":               {"car", "hotel", inherited, "cancel:car1 cancel:hotel1"},
	} {
		t.Run(name, func(t *testing.T) {
			k := kit.New(t)
			j := &kit.Journal{}
			var again atomic.Bool
			kit.Serve(k, kit.Travel, kit.Trip(&kit.Journal{}, func(ctx kagzi.Context) error {
				return endsIn(ctx, "mail", &again)
			}))
			kit.ServeCancellations(k, j, nil)
			run := kit.Begin(k, kit.Travel, 1)
			kit.ResultOf(k, run)
			id, err := admin.New(k.Client).Runs.Fork(k.Ctx, run.ID(), tt.first)
			if err != nil {
				t.Fatal(err)
			}
			fork, err := kagzi.Find(k.Ctx, k.Client, kit.Travel, id)
			if err != nil {
				t.Fatal(err)
			}
			kit.ResultOf(k, fork)
			again.Store(true)
			endsUndone(k, fork, tt.second, tt.opts, j, tt.want)
		})
	}
}

// TestForkBehindACancelledChild forks a run after it cancelled a child without waiting for its end: the fork starts and
// cancels a child of its own.
func TestForkBehindACancelledChild(t *testing.T) {
	k := kit.New(t)
	kid := kagzi.Define[int, int]("kid", kit.NoRetry)
	w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{})
	kagzi.Handle(w, kid, func(ctx kagzi.Context, _ int) (int, error) { return 1, kit.SleepLong(ctx) })
	kagzi.Handle(w, kit.Travel, func(ctx kagzi.Context, _ int) (int, error) {
		c, err := kagzi.StartChild(ctx, "kid", kid, 1)
		if err != nil {
			return 0, err
		}
		if err := errors.Join(kit.DoLine(ctx, &kit.Journal{}, "before"), c.Cancel(ctx)); err != nil {
			return 0, err
		}
		return 1, kit.DoLine(ctx, &kit.Journal{}, "mail")
	})
	kit.StartWorker(t, w)
	run := kit.Begin(k, kit.Travel, 1)
	kit.ResultOf(k, run)
	id, err := admin.New(k.Client).Runs.Fork(k.Ctx, run.ID(), "mail")
	if err != nil {
		t.Fatal(err)
	}
	fork, err := kagzi.Find(k.Ctx, k.Client, kit.Travel, id)
	if err != nil {
		t.Fatal(err)
	}
	kit.ResultOf(k, fork)
	await.True(t, "both children are cancelled", func() bool {
		return k.Count(`SELECT count(*) FROM kagzi.workflow_runs WHERE workflow_type = 'kid'
			AND status = 'CANCELLED'`) == 2
	})
}
