package store

import (
	"testing"
	"time"

	"github.com/google/uuid"
)

// A run that waits for several starts has a key: it begins with the last input, or all items, and the limit of its key
// holds.
func TestKeyAndWindow(t *testing.T) {
	t.Parallel()
	// handOn claims after the run has ended, as the worker that ended it does.
	handOn := func(t *testing.T, s *Store, r *ClaimedRun) []*ClaimedRun {
		t.Helper()
		flush(t, s, &Flush{Finishes: []*Finish{finish(r)}})
		req := keyedRequest(9)
		req.Keys.Freed = []FreedKey{{Key: r.Key}}
		return claim(t, s, req).Runs
	}
	wantRun := func(t *testing.T, s *Store, runs []*ClaimedRun, id uuid.UUID, input string) {
		t.Helper()
		if len(runs) != 1 || runs[0].RunID != id || inputOf(t, s, id) != input {
			t.Fatalf("claimed %v, want %v with %q; it has %q", runIDs(runs), id, input, inputOf(t, s, id))
		}
	}
	for name, key := range map[string]func(*NewRun){"Key": ofKey("a"), "Group": inGroup("a")} {
		t.Run("Debounce"+name, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			limitKeys(t, s, 1, false)
			typed := func(input string) NewRun {
				return newRun(key, debounced("doc", time.Hour, 2*time.Hour), withInput(input))
			}
			id := wantNew(t, s, typed("a"))
			if c := claim(t, s, keyedRequest(9)); len(c.Runs) > 0 {
				t.Fatalf("claimed %v before it is due", runIDs(c.Runs))
			}
			wantJoined(t, s, id, typed("b"))
			wantJoined(t, s, id, withDelayOf(typed("c"), 0)) // due at once: the claim must learn of it
			first := claim(t, s, keyedRequest(9)).Runs
			wantRun(t, s, first, id, "c")

			next := wantNew(t, s, typed("d")) // it has begun
			wantJoined(t, s, next, withDelayOf(typed("e"), 0))
			if c := claim(t, s, keyedRequest(9)); len(c.Runs) > 0 {
				t.Fatalf("claimed %v above the limit", runIDs(c.Runs))
			}
			wantJoined(t, s, next, withDelayOf(typed("f"), 0)) // it still waits for the slot
			wantRun(t, s, handOn(t, s, first[0]), next, "f")
		})
		t.Run("Batch"+name, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			limitKeys(t, s, 1, false)
			item := func(input string) NewRun { return newRun(key, batched("", 2), withInput(input)) }
			id := wantNew(t, s, item("a"))
			if c := claim(t, s, keyedRequest(9)); len(c.Runs) > 0 {
				t.Fatalf("claimed %v before it is due", runIDs(c.Runs))
			}
			wantJoined(t, s, id, item("b")) // it fills the batch
			first := claim(t, s, keyedRequest(9)).Runs
			wantRun(t, s, first, id, "ab")

			next := wantNew(t, s, item("c"))
			wantJoined(t, s, next, item("d"))
			last := wantNew(t, s, item("e")) // the full one waits for its slot, and takes no more
			wantJoined(t, s, last, item("f"))
			if c := claim(t, s, keyedRequest(9)); len(c.Runs) > 0 {
				t.Fatalf("claimed %v above the limit", runIDs(c.Runs))
			}
			second := handOn(t, s, first[0])
			wantRun(t, s, second, next, "cd")
			wantRun(t, s, handOn(t, s, second[0]), last, "ef")
		})
	}
}

func withDelayOf(r NewRun, d time.Duration) NewRun {
	r.Window.Delay = d
	return r
}
