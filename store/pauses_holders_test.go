package store

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
)

// A run that keeps its slot while it sleeps, or was parked, is not in its key's line. A pause of its key or group stops
// it, too.
func TestPausedKeyOfAHolder(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		of    func(*NewRun)
		pause Pause
	}{
		"Key":   {ofKey("a"), Pause{Queue: "queue", Key: Key{Name: "a"}, Parks: true}},
		"Group": {inGroup("a"), Pause{Key: Key{Name: "a", Group: true}, Parks: true}},
	} {
		for _, limit := range []int{0, 1} { // of the queue
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				s := open(t)
				exec(t, s.pool, `INSERT INTO kagzi.queues (task_queue, namespace_id, key_max_running, held, max_running)
					VALUES ('queue', $1, 1, true, NULLIF($2::int, 0))`, s.namespace, limit)
				ids := start(t, s, newRun(c.of), newRun(c.of))
				r := claim(t, s, keyedRequest(10)).Runs[0]
				pause(t, s, c.pause)
				pause(t, s, Pause{Queue: "queue", Key: Key{Name: "b"}})
				pause(t, s, Pause{Key: Key{Name: "b", Group: true}})
				p := &Suspension{RunID: r.RunID, Lease: r.Lease, Status: Pending, WaitingOn: "pause"}
				flush(t, s, &Flush{Suspensions: []*Suspension{p}})
				if got := claim(t, s, keyedRequest(10)); p.Outcome != Done || len(got.Runs) > 0 || !got.Next.IsZero() ||
					!got.Keys.Next.IsZero() {
					t.Errorf("claimed %v, next %v and %v", runIDs(got.Runs), got.Next, got.Keys.Next)
				}
				req := keyedRequest(10)
				req.Since = map[Pair]time.Time{{"type", 3}: time.Now().Add(time.Hour)}
				if missed, err := s.Missed(t.Context(), req); err != nil || len(missed) != 0 {
					t.Errorf("missed %v, %v", missed, err)
				}
				unpause(t, s, c.pause, 0)
				if got := claim(t, s, keyedRequest(10)); !slices.Equal(runIDs(got.Runs), ids[:1]) {
					t.Errorf("then claimed %v of %v", runIDs(got.Runs), ids)
				}
			})
		}
	}
}

// The first pause of a key stops none of the others.
func TestPausedKeysOfManyHolders(t *testing.T) {
	t.Parallel()
	s := open(t)
	exec(t, s.pool, `INSERT INTO kagzi.queues (task_queue, namespace_id, held) VALUES ('queue', $1, true)`, s.namespace)
	ids := start(t, s, newRun(ofKey("a")), newRun(ofKey("b")), newRun(inGroup("a")), newRun(inGroup("b")), newRun())
	for _, r := range claim(t, s, keyedRequest(10)).Runs {
		flush(t, s, &Flush{Suspensions: []*Suspension{{RunID: r.RunID, Lease: r.Lease, Status: Pending}}})
	}
	pause(t, s, Pause{Queue: "queue", Key: Key{Name: "a"}})
	pause(t, s, Pause{Key: Key{Name: "b", Group: true}})
	got := runIDs(claim(t, s, keyedRequest(10)).Runs)
	if want := []uuid.UUID{ids[1], ids[2], ids[4]}; !slices.Equal(sorted(got), want) {
		t.Errorf("claimed %v of %v", got, ids)
	}
}

// What is said to stop a run that holds a slot of a paused key.
func TestObstacleOfASlotHolder(t *testing.T) {
	t.Parallel()
	s := open(t)
	limitKeys(t, s, 1, true)
	ids := start(t, s, newRun(ofKey("a")))
	r := claim(t, s, keyedRequest(1)).Runs[0]
	flush(t, s,
		&Flush{Suspensions: []*Suspension{{RunID: r.RunID, Lease: r.Lease, Status: Pending, WaitingOn: "retry"}}})
	pause(t, s, Pause{Queue: "queue", Key: Key{Name: "a"}})
	if got := claim(t, s, keyedRequest(1)); len(got.Runs) > 0 {
		t.Errorf("claimed %v", runIDs(got.Runs))
	}
	if o, err := s.Obstacle(t.Context(), ids[0]); err != nil || !o.Paused || o.Pause.Key.Name != "a" {
		t.Errorf("obstacle %+v, %v", o, err)
	}
}

// A run that is released goes on in spite of a pause of its queue, but not of its key: no claim takes it, so its
// execution stops.
func TestReleasedRunOfAPausedKey(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		pause Pause
		parks bool
	}{
		"Queue": {Pause{Queue: "queue", Parks: true}, false},
		"Key":   {Pause{Queue: "queue", Key: Key{Name: "a"}, Parks: true}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			start(t, s, newRun(ofKey("a")))
			r := claim(t, s, keyedRequest(1)).Runs[0]
			pause(t, s, c.pause)
			if _, err := s.UnpauseRun(t.Context(), nil, r.RunID, Why{}); err != nil {
				t.Fatal(err)
			}
			states, err := s.HeldStates(t.Context(), s.pool, []HeldRun{{r.RunID, r.Lease}}, nil)
			if err != nil || states[0].Paused != c.parks {
				t.Errorf("%+v, %v; want paused %v", states, err, c.parks)
			}
		})
	}
}

// A run that keeps its slot of a paused key is no due run that workers overlook.
func TestDueWorkOfAPausedKey(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		of    func(*NewRun)
		pause Pause
	}{
		"Key":   {ofKey("a"), Pause{Queue: "queue", Key: Key{Name: "a"}, Parks: true}},
		"Group": {inGroup("a"), Pause{Key: Key{Name: "a", Group: true}, Parks: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			limitKeys(t, s, 1, true)
			start(t, s, newRun(c.of))
			r := claim(t, s, keyedRequest(1)).Runs[0]
			flush(t, s,
				&Flush{Suspensions: []*Suspension{{
					RunID: r.RunID, Lease: r.Lease, Status: Sleeping,
					WaitingOn: "limit",
				}}})
			exec(t, s.pool, `INSERT INTO kagzi.limits (limit_name, namespace_id, max_running, next_at, line_at,
				last_place) VALUES ('limit', $1, 1, now(), now(), 1)`, s.namespace)
			exec(t, s.pool, `INSERT INTO kagzi.limit_places (run_id, step_id, namespace_id, limit_name, place,
				called_at) VALUES ($2, 'a#1', $1, 'limit', 1, now() - interval '1 hour')`, s.namespace, r.RunID)
			for _, paused := range []bool{false, true} {
				if paused {
					pause(t, s, c.pause)
				}
				due, err := s.DueWork(t.Context(), s.pool)
				if err != nil || (len(due) == 0) != paused {
					t.Errorf("paused %t: due work %+v, %v", paused, due, err)
				}
				stuck, err := s.StuckLimits(t.Context(), s.pool, time.Minute)
				if err != nil || (len(stuck) == 0) != paused {
					t.Errorf("paused %t: stuck limits %+v, %v", paused, stuck, err)
				}
				want := "due 1/false keyed 0 running 0 sleeping 0 delayed 0 more false paused 0"
				if paused {
					want = "due 0/false keyed 0 running 0 sleeping 0 delayed 0 more false paused 1"
				}
				if got := countsOf(readStats(t, s), "queue", "type"); got != want {
					t.Errorf("paused %t: %s, want %s", paused, got, want)
				}
			}
		})
	}
}
