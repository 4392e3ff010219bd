package store

import (
	"slices"
	"testing"
	"time"
)

// A run that waits in the line of a limit has given up the slot of its key. A worker that calls it makes claims look at
// the key: its place in the line of keys is as late as the run would have come by itself.
func TestRunWithAKeyInTheLineOfALimit(t *testing.T) {
	t.Parallel()
	// parked returns two runs with keys: the first has a permit of the limit, the second sleeps because it has none.
	parked := func(t *testing.T, s *Store, l StepLimit) (held, waits *ClaimedRun) {
		t.Helper()
		setLimit(t, s, l)
		start(t, s, newRun(ofKey("a")), newRun(ofKey("b")))
		runs := claim(t, s, keyedRequest(2)).Runs
		slices.SortFunc(runs, func(a, b *ClaimedRun) int { return compareIDs(a.RunID, b.RunID) })
		answers := askLimit(t, s, "api", runs...)
		if !answers[0].Granted || answers[1].Granted {
			t.Fatalf("granted %+v", answers)
		}
		flush(t, s, &Flush{Suspensions: []*Suspension{{
			RunID: runs[1].RunID, Lease: runs[1].Lease, Status: Sleeping,
			Wake: time.Hour, Seen: runs[1].Wakeups, Need: 1,
		}}})
		serves(t, s, "queue", "type")
		req := keyedRequest(2)
		req.Keys.Freed = []FreedKey{{Key: runs[1].Key}}
		if c := claim(t, s, req); len(c.Runs) > 0 || c.Keys.Next.IsZero() {
			t.Fatalf("claimed %+v while the run sleeps", c)
		}
		return runs[0], runs[1]
	}
	wantClaimed := func(t *testing.T, s *Store, r *ClaimedRun) {
		t.Helper()
		if got := claim(t, s, keyedRequest(2)); len(got.Runs) != 1 || got.Runs[0].RunID != r.RunID {
			t.Errorf("claimed %v, want %v", runIDs(got.Runs), r.RunID)
		}
	}
	t.Run("CalledForASlot", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		held, waits := parked(t, s, StepLimit{Name: "api", MaxRunning: 1})
		if out := serve(t, s, "api", LimitRequest{Leaves: placesOf(held)}); len(out.Called) != 1 {
			t.Fatalf("called %+v", out.Called)
		}
		wantClaimed(t, s, waits)
	})
	t.Run("TheRateGrows", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		_, waits := parked(t, s, StepLimit{Name: "api", Every: time.Hour})
		setLimit(t, s, StepLimit{Name: "api"})
		if out := serve(t, s, "api", LimitRequest{}); len(out.Called) != 1 {
			t.Fatalf("called %+v", out.Called)
		}
		wantClaimed(t, s, waits)
	})
}

// No slot is kept for a step whose run waits for its key, because it could not begin now.
func TestStepWhoseKeyIsTaken(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		slots int // of the key
		keeps bool
	}{"Taken": {1, false}, "AnotherSlot": {2, true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			setLimit(t, s, StepLimit{Name: "api", MaxRunning: 1})
			mustSetQueue(t, s, QueueLimits{EachKey: KeyLimits{MaxRunning: c.slots}})
			begun := running(t, s, 2)
			askLimit(t, s, "api", begun[0])
			start(t, s, newRun(ofKey("a")))
			waits := claim(t, s, keyedRequest(1)).Runs
			askLimit(t, s, "api", waits...)
			park(t, s, waits[0])
			start(t, s, newRun(ofKey("a")))
			if holder := claim(t, s, keyedRequest(1)).Runs; len(holder) != 1 {
				t.Fatalf("claimed %v", runIDs(holder))
			}
			serves(t, s, "queue", "type")
			serve(t, s, "api", LimitRequest{Leaves: placesOf(begun[0])})
			if free := askLimit(t, s, "api", begun[1])[0].Granted; free == c.keeps {
				t.Errorf("the slot is given to the next step: %t", free)
			}
		})
	}
}
