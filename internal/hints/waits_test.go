package hints

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/testlog"
	"github.com/kagzi/kagzi/store"
)

// A run is queried when a caller comes to wait for it, after short pauses that grow, and when a hint names it. Runs
// that are waited for longer are not queried with it.
func TestRunsAreQueriedByTheirOwnPauses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &results{hints: &Hints{}, wake: make(chan struct{}, 1)}
		old, young := awaited{run: uuid.New()}, awaited{run: uuid.New()}
		var next time.Time
		query := func(what string, want ...awaited) {
			t.Helper()
			ids, _ := r.due(time.Now())
			if len(ids) != len(want) || len(ids) == 1 && ids[0] != want[0] {
				t.Errorf("%s: %d runs are queried, want %d", what, len(ids), len(want))
			}
			next = r.queried(ids, 0)
		}
		r.join(old, 0)
		query("somebody comes", old)
		for _, ms := range []int{1, 3, 9, 27, 81, 243, 250, 250} {
			if got := time.Until(next); got != time.Duration(ms)*time.Millisecond {
				t.Errorf("a pause of %v, want %d ms", got, ms)
			}
			time.Sleep(time.Until(next))
			query("the pause is over", old)
		}
		r.join(young, 0)
		query("somebody comes for another run", young)
		for range 4 {
			time.Sleep(time.Until(next))
			query("its pause is over", young)
		}
		r.refresh([]uuid.UUID{old.run, uuid.New()})
		query("a hint", old)
		r.refresh(nil)
		query("a hint for any run", old, young)
		time.Sleep(time.Second)
		query("both pauses are over", old, young)
		time.Sleep(time.Until(next) - time.Millisecond)
		query("nothing")
		request := awaited{run: old.run, request: "request"}
		r.join(request, time.Hour)
		query("still nothing")
		r.refresh([]uuid.UUID{old.run})
		query("a hint for the run of a request", old, request)
		r.refreshWhileOn([]uuid.UUID{old.run})
		query("the run has answered", request)
	})
}

// While notifications arrive, a run that was just started is first queried when it is 10 ms old, or by a hint. A second
// waiter has it queried at once.
func TestAYoungRunIsQueriedLater(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &results{hints: &Hints{}, wake: make(chan struct{}, 1)}
		queried := func() bool {
			ids, _ := r.due(time.Now())
			r.queried(ids, 0)
			return len(ids) == 1
		}
		run := madeAt(time.Now())
		time.Sleep(2 * time.Millisecond)
		r.join(awaited{run: run}, youth(run, time.Now()))
		if queried() {
			t.Error("it was queried at once")
		}
		if got := time.Until(r.next); got != 8*time.Millisecond {
			t.Errorf("a pause of %v, want 8 ms", got)
		}
		r.refresh([]uuid.UUID{run})
		if !queried() {
			t.Error("it was not queried when a hint came")
		}

		run = madeAt(time.Now())
		r.join(awaited{run: run}, youth(run, time.Now()))
		r.join(awaited{run: run}, youth(run, time.Now()))
		if !queried() {
			t.Error("it was not queried when somebody else came")
		}
		for name, id := range map[string]uuid.UUID{
			"old": madeAt(time.Now().Add(-youngest)), "of a clock that is ahead": madeAt(time.Now().Add(time.Second)),
			"without a time": uuid.New(),
		} {
			if got := youth(id, time.Now()); got != 0 {
				t.Errorf("a pause of %v for an ID that is %s", got, name)
			}
		}
	})
}

// A caller who comes while the end of its run is being written is too late for Deliver. The run is queried for it once
// that end is announced.
func TestLateWaiterLooksWhenTheEndIsAnnounced(t *testing.T) {
	t.Parallel()
	h := New(store.New(dbtest.Pool(t), "default"), testlog.New(t), nil)
	h.results.wake = make(chan struct{}, 1) // for no goroutine
	run := uuid.New()
	last := h.LastWaiter()
	h.results.join(awaited{run: run}, time.Hour)
	h.Deliver(store.Ended{RunID: run}, last)
	if all, _ := h.results.due(time.Now()); len(all) > 0 {
		t.Error("it is queried before the end is announced")
	}
	h.Ended(t.Context(), []uuid.UUID{run}, nil)
	h.Flush()
	if all, _ := h.results.due(time.Now()); len(all) != 1 {
		t.Error("it is not queried")
	}
}

// madeAt returns the ID of a run that was started then.
func madeAt(t time.Time) uuid.UUID {
	id := uuid.Must(uuid.NewV7())
	for i, ms := 5, t.UnixMilli(); i >= 0; i, ms = i-1, ms>>8 {
		id[i] = byte(ms)
	}
	return id
}
