package ports_test

import (
	"errors"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/value"
)

var (
	stateful = kagzi.Define[struct{}, struct{}]("stateful")
	state    = value.Define[string]("state")
)

// TestQuery reads the state of a run, before, during and after its sleep. The run's code is not asked.
//
// Original: temporal samples-go/query, 58 lines; here 31.
func TestQuery(t *testing.T) {
	k := kit.New(t)
	kit.Serve(k, stateful, func(ctx kagzi.Context, _ struct{}) (struct{}, error) {
		err := value.Set(ctx, state, "waiting on timer")
		if err == nil {
			err = kagzi.Sleep(ctx, "two minutes", 2*time.Minute)
		}
		if err == nil {
			err = value.Set(ctx, state, "done")
		}
		return struct{}{}, err
	})
	run := kit.Begin(k, stateful, struct{}{})
	now, err := value.Wait(k.Ctx, k.Client, run, state, 0)
	if err != nil || now.Value != "waiting on timer" {
		t.Errorf("got %+v, %v", now, err)
	}
	k.WaitStatus(run, kagzi.StatusSleeping)
	k.Forward(run.ID())
	if now, err = value.Wait(k.Ctx, k.Client, run, state, now.Version); err != nil || now.Value != "done" {
		t.Errorf("got %+v, %v", now, err)
	}
	kit.ResultOf(k, run)
	if now, err = value.Get(k.Ctx, k.Client, run, state); err != nil || now.Value != "done" {
		t.Errorf("after the end: %+v, %v", now, err)
	}
}

var (
	alarm    = kagzi.Define[time.Time, time.Time]("alarm")
	postpone = kagzi.DefineSignal[time.Time]("postpone")
	wakesAt  = value.Define[time.Time]("wakes-at")
)

// TestUpdatableTimer has a run that sleeps until a time, which messages change while it sleeps.
//
// Original: temporal samples-go/updatabletimer, 86 lines; here 38.
func TestUpdatableTimer(t *testing.T) {
	k := kit.New(t)
	kit.Serve(k, alarm, func(ctx kagzi.Context, at time.Time) (time.Time, error) {
		for {
			if err := value.Set(ctx, wakesAt, at); err != nil {
				return at, err
			}
			left := max(at.Sub(ctx.Now()), time.Microsecond)
			next, err := kagzi.WaitSignal(ctx, postpone, kagzi.Timeout(left))
			if errors.Is(err, kagzi.ErrNoMessage) {
				return at, nil
			}
			if err != nil {
				return at, err
			}
			at = next
		}
	})
	tomorrow := time.Now().UTC().Add(24 * time.Hour)
	run := kit.Begin(k, alarm, tomorrow)
	now, err := value.Wait(k.Ctx, k.Client, run, wakesAt, 0)
	if err != nil || !now.Value.Equal(tomorrow) {
		t.Errorf("it sleeps until %v, %v", now.Value, err)
	}
	soon := time.Now().UTC()
	k.Signal(run, postpone.With(soon))
	if woke := kit.ResultOf(k, run); !woke.Equal(soon) {
		t.Errorf("woke at %v, want %v", woke, soon)
	}
	if now, err = value.Get(k.Ctx, k.Client, run, wakesAt); err != nil || !now.Value.Equal(soon) {
		t.Errorf("it slept until %v, %v", now.Value, err)
	}
}

var (
	traveller = kagzi.Define[int, struct{}]("traveller")
	trip      = kagzi.DefineSignal[int]("trip")
	trips     = value.Define[int]("trips")
)

// TestTrips has a run that counts the trips of a user, and continues after ten. Any program can read the number.
//
// Original: temporal samples-go/recovery, 71 lines; here 34. Only its trips and their query are counted.
func TestTrips(t *testing.T) {
	k := kit.New(t)
	kit.Serve(k, traveller, func(ctx kagzi.Context, n int) (struct{}, error) {
		for range 10 {
			if _, err := kagzi.WaitSignal(ctx, trip); err != nil {
				return struct{}{}, err
			}
			n++
			if err := value.Set(ctx, trips, n); err != nil {
				return struct{}{}, err
			}
		}
		return struct{}{}, kagzi.Continue(ctx, n)
	})
	for range 25 {
		kit.Begin(k, traveller, 0, kagzi.ID("user-7"), trip.With(12))
	}
	var now value.Current[int]
	for now.Value < 25 {
		var err error
		if now, err = value.Wait(k.Ctx, k.Client, kagzi.ID("user-7"), trips, now.Version); err != nil {
			t.Fatal(err)
		}
	}
	if info := k.InfoOf(kagzi.ID("user-7")); now.Value != 25 || info.Epoch != 2 {
		t.Errorf("%d trips in epoch %d", now.Value, info.Epoch)
	}
	k.Cancel(kagzi.ID("user-7"))
}
