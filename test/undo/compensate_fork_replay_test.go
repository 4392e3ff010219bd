package undo_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
)

// shipment is a child.
var shipment = kagzi.Define[int, int]("shipment", kit.NoRetry)

// TestForkUndoesWhatItBegins forks runs at an operation whose compensation was registered before a step that is copied.
func TestForkUndoesWhatItBegins(t *testing.T) {
	t.Parallel()
	for name, what := range map[string]func(kagzi.Context) error{
		"Step":  func(ctx kagzi.Context) error { return kit.DoLine(ctx, &kit.Journal{}, "ship") },
		"Child": func(ctx kagzi.Context) error { _, err := kagzi.RunChild(ctx, "ship", shipment, 1); return err },
		"Start": func(ctx kagzi.Context) error { _, err := kagzi.StartChild(ctx, "ship", shipment, 1); return err },
		"Go": func(ctx kagzi.Context) error {
			_, err := kagzi.Go(ctx, "ship", func(ctx kagzi.Context) (int, error) {
				return 1, kit.DoLine(ctx, &kit.Journal{}, "pack")
			}).Result(ctx)
			return err
		},
		"Sleep": func(ctx kagzi.Context) error { return kagzi.Sleep(ctx, "ship", time.Millisecond) },
		"Group": func(ctx kagzi.Context) error {
			return kagzi.Parallel(ctx, "ship", map[string]func(kagzi.Context) error{"a": func(ctx kagzi.Context) error {
				return kit.DoLine(ctx, &kit.Journal{}, "pack")
			}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := kit.New(t)
			j := &kit.Journal{}
			var again atomic.Bool
			w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{})
			kagzi.Handle(w, shipment, func(ctx kagzi.Context, _ int) (int, error) { return 1, nil })
			kagzi.Handle(w, kit.Travel, func(ctx kagzi.Context, _ int) (int, error) {
				kagzi.Compensate(ctx, "ship", kit.CancelBooking.With("ship"))
				if err := errors.Join(kit.DoLine(ctx, &kit.Journal{}, "pay"), what(ctx)); err != nil {
					return 0, err
				}
				if again.Load() {
					return 0, errors.New("broken")
				}
				return 1, nil
			})
			kit.StartWorker(t, w)
			kit.ServeCancellations(k, j, nil)
			run := kit.Begin(k, kit.Travel, 1)
			kit.ResultOf(k, run)
			again.Store(true)
			endsUndone(k, run, "ship", nil, j, "cancel:ship")
		})
	}
}

// TestForkThatGoesAnotherWay forks runs whose history has a step that the fork does not reach: the compensations that
// the fork registers after it are its own.
func TestForkThatGoesAnotherWay(t *testing.T) {
	t.Parallel()
	t.Run("Deploy", func(t *testing.T) {
		k := kit.New(t)
		j := &kit.Journal{}
		var again atomic.Bool
		kit.Serve(k, kit.Travel, func(ctx kagzi.Context, _ int) (int, error) {
			if !again.Load() {
				if err := kit.DoLine(ctx, &kit.Journal{}, "legacy"); err != nil {
					return 0, err
				}
			}
			if err := kit.DoLine(ctx, &kit.Journal{}, "pay"); err != nil {
				return 0, err
			}
			kagzi.Compensate(ctx, "booking", kit.CancelBooking.With("booking"))
			if err := kit.DoLine(ctx, &kit.Journal{}, "book"); err != nil {
				return 0, err
			}
			return 1, endsIn(ctx, "mail", &again)
		})
		kit.ServeCancellations(k, j, nil)
		run := kit.Begin(k, kit.Travel, 1)
		kit.ResultOf(k, run)
		again.Store(true)
		endsUndone(k, run, "book", nil, j, "cancel:booking")
	})
	t.Run("Forgotten", func(t *testing.T) {
		k := kit.New(t)
		j := &kit.Journal{}
		var down, again atomic.Bool
		down.Store(true)
		kit.Serve(k, kit.Travel, func(ctx kagzi.Context, _ int) (int, error) {
			err := kagzi.Do(ctx, "card", func(context.Context) error {
				if down.Load() {
					return kagzi.Permanent(errors.New("down"))
				}
				return nil
			})
			if err != nil {
				if e := kit.DoLine(ctx, &kit.Journal{}, "tell-support"); e != nil {
					return 0, e
				}
				return 0, err
			}
			kagzi.Compensate(ctx, "booking", kit.CancelBooking.With("booking"))
			if err := kit.DoLine(ctx, &kit.Journal{}, "book"); err != nil {
				return 0, err
			}
			return 1, endsIn(ctx, "mail", &again)
		})
		kit.ServeCancellations(k, j, nil)
		run := kit.Begin(k, kit.Travel, 1)
		kit.EndsAs(k, run, kagzi.StatusFailed)
		down.Store(false)
		k.Resume(run.ID(), admin.Forget("card"))
		await.True(t, "completed", func() bool { return k.InfoOf(run.ID()).Status == kagzi.StatusCompleted })
		again.Store(true)
		endsUndone(k, run, "book", nil, j, "cancel:booking")
	})
}

// TestForkRegistersInOrder forks a run that had registered twice under a name, once before a step that is copied: a
// replay of the fork registers nothing again, and so changes no order.
func TestForkRegistersInOrder(t *testing.T) {
	t.Parallel()
	for name, replays := range map[string]bool{"NoReplay": false, "Replay": true} {
		t.Run(name, func(t *testing.T) {
			k := kit.New(t)
			j := &kit.Journal{}
			var again atomic.Bool
			fn := func(ctx kagzi.Context, _ int) (int, error) {
				kagzi.Compensate(ctx, "hotel", kit.CancelBooking.With("hotel of order 7"))
				if err := kit.DoLine(ctx, &kit.Journal{}, "search"); err != nil {
					return 0, err
				}
				kagzi.Compensate(ctx, "hotel", kit.CancelBooking.With("Ritz"))
				if err := kit.DoLine(ctx, &kit.Journal{}, "hotel"); err != nil {
					return 0, err
				}
				kagzi.Compensate(ctx, "car", kit.CancelBooking.With("car"))
				if err := kit.DoLine(ctx, &kit.Journal{}, "car"); err != nil {
					return 0, err
				}
				d := time.Millisecond
				if replays {
					d = time.Second
				}
				if err := kagzi.Sleep(ctx, "nap", d); err != nil {
					return 0, err
				}
				return 1, endsIn(ctx, "mail", &again)
			}
			w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{})
			kagzi.Handle(w, kit.Travel, fn)
			kit.StartWorker(t, w)
			kit.ServeCancellations(k, j, nil)
			run := kit.Begin(k, kit.Travel, 1)
			kit.ResultOf(k, run)
			again.Store(true)
			id, err := admin.New(k.Client).Runs.Fork(k.Ctx, run.ID(), "hotel")
			if err != nil {
				t.Fatal(err)
			}
			if replays {
				k.WaitStatus(id, kagzi.StatusSleeping)
			}
			await.True(k.T, "the fork has ended", func() bool { return k.InfoOf(id).Status == kagzi.StatusFailed })
			j.Want(t, "cancel:car cancel:Ritz")
		})
	}
}

// TestReplayOfAFork replays forks that have completed, with their own code.
func TestReplayOfAFork(t *testing.T) {
	t.Parallel()
	for name, fn := range map[string]func(ctx kagzi.Context) error{
		"SameName": func(ctx kagzi.Context) error {
			kagzi.Compensate(ctx, "hotel", kit.CancelBooking.With("order 7"))
			if err := kit.DoLine(ctx, &kit.Journal{}, "search"); err != nil {
				return err
			}
			kagzi.Compensate(ctx, "hotel", kit.CancelBooking.With("Ritz"))
			return kit.DoLine(ctx, &kit.Journal{}, "hotel")
		},
		"OwnName": func(ctx kagzi.Context) error {
			kagzi.Compensate(ctx, "stock", kit.CancelBooking.With("a"))
			if err := kit.DoLine(ctx, &kit.Journal{}, "search"); err != nil {
				return err
			}
			kagzi.Compensate(ctx, "stock", kit.CancelBooking.With("a, b"))
			return kit.DoLine(ctx, &kit.Journal{}, "hotel")
		},
		"Once": func(ctx kagzi.Context) error {
			kagzi.Compensate(ctx, "hotel", kit.CancelBooking.With("a"))
			return errors.Join(kit.DoLine(ctx, &kit.Journal{}, "search"), kit.DoLine(ctx, &kit.Journal{}, "hotel"))
		},
		"Child": func(ctx kagzi.Context) error {
			kagzi.Compensate(ctx, "hotel", kit.CancelBooking.With("ship"))
			if err := kit.DoLine(ctx, &kit.Journal{}, "search"); err != nil {
				return err
			}
			_, err := kagzi.StartChild(ctx, "hotel", shipment, 1)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := kit.New(t)
			w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{})
			kagzi.Handle(w, shipment, func(ctx kagzi.Context, _ int) (int, error) { return 1, nil })
			kagzi.Handle(w, kit.Travel, func(ctx kagzi.Context, _ int) (int, error) { return 1, fn(ctx) })
			kit.StartWorker(t, w)
			run := kit.Begin(k, kit.Travel, 1)
			kit.ResultOf(k, run)
			if err := w.Replay(k.Ctx, run.ID()); err != nil {
				t.Errorf("of the old run: %v", err)
			}
			id, err := admin.New(k.Client).Runs.Fork(k.Ctx, run.ID(), "hotel")
			if err != nil {
				t.Fatal(err)
			}
			await.True(t, "completed", func() bool { return k.InfoOf(id).Status == kagzi.StatusCompleted })
			if err := w.Replay(k.Ctx, id); err != nil {
				t.Errorf("of the fork: %v", err)
			}
		})
	}
}
