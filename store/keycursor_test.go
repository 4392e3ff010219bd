package store

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
)

// raise lets claims of the key "a" search from now on, as a claim does that finds no run which waits.
func raise(t *testing.T, s *Store) {
	t.Helper()
	exec(t, s.pool, `UPDATE kagzi.run_keys SET waits_from = clock_timestamp() WHERE run_key = 'a'`)
}

// suspendedBehind returns a run of the key "a" that was suspended until a time before the cursor.
func suspendedBehind(t *testing.T, s *Store) uuid.UUID {
	t.Helper()
	start(t, s, newRun(ofKey("a")))
	r := claim(t, s, keyedRequest(9)).Runs[0]
	flush(t, s, &Flush{Suspensions: []*Suspension{{
		RunID: r.RunID, Lease: r.Lease, Status: Sleeping, WakeAt: time.Now().Add(-time.Hour),
	}}})
	raise(t, s)
	return r.RunID
}

// A claim finds each run that waits for a slot of its key, although it reads on from where an earlier one has stopped.
func TestRunsBehindTheCursorOfAKey(t *testing.T) {
	t.Parallel()
	a := Key{Name: "a"}
	for name, come := range map[string]func(t *testing.T, s *Store) (id uuid.UUID, req ClaimRequest){
		"ALateCommit": func(t *testing.T, s *Store) (uuid.UUID, ClaimRequest) {
			tx := begin(t, s)
			started, err := s.Starts.Start(t.Context(), tx, []NewRun{newRun(ofKey("a"))})
			if err != nil {
				t.Fatal(err)
			}
			raise(t, s)
			commit(t, tx)
			return started[0].RunID, keyedRequest(9)
		},
		"OfAKeyInTheLine": func(t *testing.T, s *Store) (uuid.UUID, ClaimRequest) {
			id := start(t, s, newRun(ofKey("a")))[0]
			raise(t, s)
			exec(t, s.pool, `UPDATE kagzi.run_keys SET available_at = clock_timestamp()`)
			return id, keyedRequest(9)
		},
		"ASuspension": func(t *testing.T, s *Store) (uuid.UUID, ClaimRequest) {
			id := suspendedBehind(t, s)
			req := keyedRequest(9)
			req.Keys.Freed = []FreedKey{{Key: a}}
			return id, req
		},
		"ASuspensionThatIsLeftToOthers": func(t *testing.T, s *Store) (uuid.UUID, ClaimRequest) {
			id := suspendedBehind(t, s)
			if err := s.Claims.LeaveChanges(t.Context(), "queue", []FreedKey{{Key: a}}); err != nil {
				t.Fatal(err)
			}
			return id, keyedRequest(9)
		},
		"AnUnpause": func(t *testing.T, s *Store) (uuid.UUID, ClaimRequest) {
			id := start(t, s, newRun(ofKey("a")))[0]
			if err := s.Pauses.PauseRun(t.Context(), nil, id, Why{}); err != nil {
				t.Fatal(err)
			}
			claim(t, s, keyedRequest(9))
			raise(t, s)
			if err := second(s.Pauses.UnpauseRun(t.Context(), nil, id, Why{})); err != nil {
				t.Fatal(err)
			}
			return id, keyedRequest(9)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			mustSetQueue(t, s, QueueLimits{EachKey: KeyLimits{MaxRunning: 1}})
			start(t, s, newRun(ofKey("a")))
			flushEnds(t, s, finish(claim(t, s, keyedRequest(9)).Runs[0]))
			id, req := come(t, s)
			if got := runIDs(claim(t, s, req).Runs); !slices.Equal(got, []uuid.UUID{id}) {
				t.Errorf("claimed %v, want %v", got, id)
			}
		})
	}
}

// A key that others hold when it is freed keeps the place of its runs.
func TestCursorOfAKeyThatIsPutOff(t *testing.T) {
	t.Parallel()
	s := open(t)
	mustSetQueue(t, s, QueueLimits{EachKey: KeyLimits{MaxRunning: 1}})
	ids := start(t, s, newRun(ofKey("a")), newRun(ofKey("b")), newRun(ofKey("b")))
	exec(t, s.pool, `INSERT INTO kagzi.run_keys (key_scope, run_key, namespace_id, available_at, waits_from) VALUES
		('queue', 'a', $1, 'infinity', clock_timestamp()), ('queue', 'b', $1, now(), '-infinity')`, s.namespace)
	exec(t, s.pool, `DELETE FROM kagzi.key_changes`)
	req := keyedRequest(1)
	req.Keys.Freed = []FreedKey{{Key: Key{Name: "a"}}}
	first := claim(t, s, req) // the line has enough keys for it: a goes to its end
	if got := runIDs(first.Runs); !slices.Equal(got, ids[1:2]) {
		t.Fatalf("claimed %v of %v", got, ids)
	}
	if got := runIDs(claim(t, s, keyedRequest(9)).Runs); !slices.Equal(got, ids[:1]) {
		t.Errorf("then claimed %v of %v", got, ids)
	}
}

// The cursors follow a key's runs, and let each claim find those that hold its slots, whatever their IDs are.
func TestCursorsOfAKeyFollowItsRuns(t *testing.T) {
	t.Parallel()
	s := open(t)
	mustSetQueue(t, s, QueueLimits{EachKey: KeyLimits{MaxRunning: 2}})
	start(t, s, newRun(ofKey("a")))
	long := claim(t, s, keyedRequest(9)).Runs[0]
	cursors := func() (waits bool, slots string) {
		waits = one[bool](t, s.pool, `SELECT waits_from > '-infinity' FROM kagzi.run_keys`)
		return waits, one[string](t, s.pool, `SELECT slots_from::text FROM kagzi.run_keys`)
	}
	next := func(ended ...FreedKey) *ClaimedRun {
		t.Helper()
		ids := start(t, s, newRun(ofKey("a")), newRun(ofKey("a"), withDelay(time.Hour)))
		req := keyedRequest(9)
		req.Keys.Freed = ended
		runs := claim(t, s, req).Runs
		if got := runIDs(runs); !slices.Equal(got, ids[:1]) {
			t.Fatalf("claimed %v of %v", got, ids)
		}
		if got := runIDs(claim(t, s, req).Runs); len(got) > 0 {
			t.Fatalf("claimed %v beside the key's two runs", got)
		}
		return runs[0]
	}
	ended := FreedKey{Key: Key{Name: "a"}, Ended: true}
	for raised := false; !raised; { // it is by chance whether a claim does it
		flushEnds(t, s, finish(next(ended)))
		raised, _ = cursors()
	}
	if _, slots := cursors(); slots != long.RunID.String() {
		t.Errorf("claims count the slots from %s on, but run %v holds one", slots, long.RunID)
	}
	flushEnds(t, s, finish(long))
	for slots := long.RunID.String(); slots == long.RunID.String(); _, slots = cursors() {
		flushEnds(t, s, finish(next(ended)))
	}
	old := uuid.UUID{15: 1} // of a client whose clock is wrong
	exec(t, s.pool, `UPDATE kagzi.workflow_runs SET run_id = $1, available_at = clock_timestamp() WHERE run_id = (
		SELECT run_id FROM kagzi.workflow_runs WHERE status = 'PENDING' ORDER BY run_id LIMIT 1)`, old)
	req := keyedRequest(9)
	req.Keys.Freed = []FreedKey{{Key: Key{Name: "a"}}}
	if got := runIDs(claim(t, s, req).Runs); !slices.Equal(got, []uuid.UUID{old}) {
		t.Fatalf("claimed %v", got)
	}
	if _, slots := cursors(); slots != old.String() {
		t.Errorf("claims count the slots from %s on, but run %v holds one", slots, old)
	}
	next(ended)
}

// A run that is resumed to compensate takes its slot from no claim, and counts nevertheless.
func TestCursorOfAResumedRun(t *testing.T) {
	t.Parallel()
	s := open(t)
	mustSetQueue(t, s, QueueLimits{EachKey: KeyLimits{MaxRunning: 2}, Held: true})
	id := failedToCompensate(t, s, ofKey("a"))
	next := start(t, s, newRun(ofKey("a")), newRun(ofKey("a")))
	exec(t, s.pool, `UPDATE kagzi.run_keys SET slots_from = $1`, next[0])
	mustResume(t, s, id)
	if got := runIDs(claim(t, s, keyedRequest(9)).Runs); !slices.Equal(got, next[:1]) {
		t.Errorf("claimed %v of %v beside a run that compensates: the key has two slots", got, next)
	}
}

// Groups, and keys whose runs begin in the order of their starts, have no cursor: nothing may hide an earlier run.
func TestSequencesHaveNoCursor(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]func(*NewRun){"Group": inGroup("a"), "Key": ofKey("a")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			mustSetQueue(t, s, QueueLimits{EachKey: KeyLimits{MaxRunning: 1}, Held: true})
			for range 40 { // a claim gives a key a cursor by chance
				start(t, s, newRun(of, func(r *NewRun) { r.Timeout = time.Hour }))
				r := claim(t, s, keyedRequest(9)).Runs[0]
				if late := r.DeadlineAt.Sub(r.DueAt); late != time.Hour {
					t.Errorf("the run's deadline is %v after it was due", late)
				}
				flushEnds(t, s, finish(r))
			}
			if one[bool](t, s.pool, `SELECT waits_from > '-infinity' FROM kagzi.run_keys`) {
				t.Error("the key has a cursor")
			}
		})
	}
}
