package kagzi

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"
)

// shipment is a child.
var shipment = Define[int, int]("shipment", noRetry)

// TestForkUndoesWhatItBegins forks runs at an operation whose compensation was registered before a step that is copied.
func TestForkUndoesWhatItBegins(t *testing.T) {
	t.Parallel()
	for name, what := range map[string]func(Context) error{
		"Step":  func(ctx Context) error { return doLine(ctx, &journal{}, "ship") },
		"Child": func(ctx Context) error { _, err := RunChild(ctx, "ship", shipment, 1); return err },
		"Start": func(ctx Context) error { _, err := StartChild(ctx, "ship", shipment, 1); return err },
		"Go": func(ctx Context) error {
			_, err := Go(ctx, "ship", func(ctx Context) (int, error) { return 1, doLine(ctx, &journal{}, "pack") }).Result(ctx)
			return err
		},
		"Sleep": func(ctx Context) error { return Sleep(ctx, "ship", time.Millisecond) },
		"Group": func(ctx Context) error {
			return Parallel(ctx, "ship", map[string]func(Context) error{"a": func(ctx Context) error { return doLine(ctx, &journal{}, "pack") }})
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := newKit(t)
			j := &journal{}
			var again atomic.Bool
			w := newTestWorker(t, k.c, WorkerConfig{})
			Handle(w, shipment, func(ctx Context, _ int) (int, error) { return 1, nil })
			Handle(w, travel, func(ctx Context, _ int) (int, error) {
				Compensate(ctx, "ship", cancelBooking.With("ship"))
				if err := errors.Join(doLine(ctx, &journal{}, "pay"), what(ctx)); err != nil {
					return 0, err
				}
				if again.Load() {
					return 0, errors.New("broken")
				}
				return 1, nil
			})
			startWorker(t, w)
			serveCancellations(k, j, nil)
			run := begin(k, travel, 1)
			resultOf(k, run)
			again.Store(true)
			endsUndone(k, run, "ship", nil, j, "cancel:ship")
		})
	}
}

// TestForkThatGoesAnotherWay forks runs whose history has a step that the fork does not come to: what the fork registers behind
// that is its own.
func TestForkThatGoesAnotherWay(t *testing.T) {
	t.Parallel()
	t.Run("Deploy", func(t *testing.T) {
		k := newKit(t)
		j := &journal{}
		var again atomic.Bool
		serve(k, travel, func(ctx Context, _ int) (int, error) {
			if !again.Load() {
				if err := doLine(ctx, &journal{}, "legacy"); err != nil {
					return 0, err
				}
			}
			if err := doLine(ctx, &journal{}, "pay"); err != nil {
				return 0, err
			}
			Compensate(ctx, "booking", cancelBooking.With("booking"))
			if err := doLine(ctx, &journal{}, "book"); err != nil {
				return 0, err
			}
			return 1, endsIn(ctx, "mail", &again)
		})
		serveCancellations(k, j, nil)
		run := begin(k, travel, 1)
		resultOf(k, run)
		again.Store(true)
		endsUndone(k, run, "book", nil, j, "cancel:booking")
	})
	t.Run("Forgotten", func(t *testing.T) {
		k := newKit(t)
		j := &journal{}
		var down, again atomic.Bool
		down.Store(true)
		serve(k, travel, func(ctx Context, _ int) (int, error) {
			err := Do(ctx, "card", func(context.Context) error {
				if down.Load() {
					return Permanent(errors.New("down"))
				}
				return nil
			})
			if err != nil {
				if e := doLine(ctx, &journal{}, "tell-support"); e != nil {
					return 0, e
				}
				return 0, err
			}
			Compensate(ctx, "booking", cancelBooking.With("booking"))
			if err := doLine(ctx, &journal{}, "book"); err != nil {
				return 0, err
			}
			return 1, endsIn(ctx, "mail", &again)
		})
		serveCancellations(k, j, nil)
		run := begin(k, travel, 1)
		endsAs(k, run, StatusFailed)
		down.Store(false)
		k.resume(run.ID(), Forget("card"))
		waitFor(t, "completed", func() bool { return k.infoOf(run.ID()).Status == StatusCompleted })
		again.Store(true)
		endsUndone(k, run, "book", nil, j, "cancel:booking")
	})
}

// TestForkRegistersInOrder forks a run that had registered twice under a name, once before a step that is copied: a replay of
// the fork registers nothing again, and so changes no order.
func TestForkRegistersInOrder(t *testing.T) {
	t.Parallel()
	for name, replays := range map[string]bool{"NoReplay": false, "Replay": true} {
		t.Run(name, func(t *testing.T) {
			k := newKit(t)
			j := &journal{}
			var again atomic.Bool
			fn := func(ctx Context, _ int) (int, error) {
				Compensate(ctx, "hotel", cancelBooking.With("hotel of order 7"))
				if err := doLine(ctx, &journal{}, "search"); err != nil {
					return 0, err
				}
				Compensate(ctx, "hotel", cancelBooking.With("Ritz"))
				if err := doLine(ctx, &journal{}, "hotel"); err != nil {
					return 0, err
				}
				Compensate(ctx, "car", cancelBooking.With("car"))
				if err := doLine(ctx, &journal{}, "car"); err != nil {
					return 0, err
				}
				d := time.Millisecond
				if replays {
					d = time.Second
				}
				if err := Sleep(ctx, "nap", d); err != nil {
					return 0, err
				}
				return 1, endsIn(ctx, "mail", &again)
			}
			w := newTestWorker(t, k.c, WorkerConfig{})
			Handle(w, travel, fn)
			startWorker(t, w)
			serveCancellations(k, j, nil)
			run := begin(k, travel, 1)
			resultOf(k, run)
			again.Store(true)
			id, err := k.c.Fork(k.ctx, run.ID(), "hotel")
			if err != nil {
				t.Fatal(err)
			}
			if replays {
				k.waitStatus(id, StatusSleeping)
			}
			waitFor(k.t, "the fork has ended", func() bool { return k.infoOf(id).Status == StatusFailed })
			j.want(t, "cancel:car cancel:Ritz")
		})
	}
}

// TestReplayOfAFork replays forks that have completed, with their own code.
func TestReplayOfAFork(t *testing.T) {
	t.Parallel()
	for name, fn := range map[string]func(ctx Context) error{
		"SameName": func(ctx Context) error {
			Compensate(ctx, "hotel", cancelBooking.With("order 7"))
			if err := doLine(ctx, &journal{}, "search"); err != nil {
				return err
			}
			Compensate(ctx, "hotel", cancelBooking.With("Ritz"))
			return doLine(ctx, &journal{}, "hotel")
		},
		"OwnName": func(ctx Context) error {
			Compensate(ctx, "stock", cancelBooking.With("a"))
			if err := doLine(ctx, &journal{}, "search"); err != nil {
				return err
			}
			Compensate(ctx, "stock", cancelBooking.With("a, b"))
			return doLine(ctx, &journal{}, "hotel")
		},
		"Once": func(ctx Context) error {
			Compensate(ctx, "hotel", cancelBooking.With("a"))
			return errors.Join(doLine(ctx, &journal{}, "search"), doLine(ctx, &journal{}, "hotel"))
		},
		"Child": func(ctx Context) error {
			Compensate(ctx, "hotel", cancelBooking.With("ship"))
			if err := doLine(ctx, &journal{}, "search"); err != nil {
				return err
			}
			_, err := StartChild(ctx, "hotel", shipment, 1)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := newKit(t)
			w := newTestWorker(t, k.c, WorkerConfig{})
			Handle(w, shipment, func(ctx Context, _ int) (int, error) { return 1, nil })
			Handle(w, travel, func(ctx Context, _ int) (int, error) { return 1, fn(ctx) })
			startWorker(t, w)
			run := begin(k, travel, 1)
			resultOf(k, run)
			if err := w.Replay(k.ctx, run.ID()); err != nil {
				t.Errorf("of the old run: %v", err)
			}
			id, err := k.c.Fork(k.ctx, run.ID(), "hotel")
			if err != nil {
				t.Fatal(err)
			}
			waitFor(t, "completed", func() bool { return k.infoOf(id).Status == StatusCompleted })
			if err := w.Replay(k.ctx, id); err != nil {
				t.Errorf("of the fork: %v", err)
			}
		})
	}
}
