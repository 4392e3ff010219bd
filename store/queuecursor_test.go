package store

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
)

// The cursor of a queue follows the runs that hold its slots, whatever their IDs are, and claims find all of them.
func TestCursorOfAQueueFollowsItsRuns(t *testing.T) {
	t.Parallel()
	s := open(t)
	mustSetQueue(t, s, QueueLimits{MaxRunning: 2})
	settleAll(t, s)
	start(t, s, newRun())
	long := claim(t, s, keyedRequest(9)).Runs[0]
	from := func() uuid.UUID { return one[uuid.UUID](t, s.pool, `SELECT slots_from FROM kagzi.queues`) }
	next := func() *ClaimedRun {
		t.Helper()
		ids := start(t, s, newRun(), newRun())
		runs := claim(t, s, keyedRequest(9)).Runs
		if got := runIDs(runs); !slices.Equal(got, ids[:1]) {
			t.Fatalf("claimed %v of %v", got, ids)
		}
		if got := runIDs(claim(t, s, keyedRequest(9)).Runs); len(got) > 0 {
			t.Fatalf("claimed %v beside the queue's two runs", got)
		}
		exec(t, s.pool, `DELETE FROM kagzi.workflow_runs WHERE run_id = $1`, ids[1])
		return runs[0]
	}
	for from() == (uuid.UUID{}) { // it is by chance whether a claim raises it
		flushEnds(t, s, finish(next()))
	}
	if from() != long.RunID {
		t.Errorf("claims count the slots from %v on, but run %v holds one", from(), long.RunID)
	}
	flushEnds(t, s, finish(long))
	for from() == long.RunID {
		start(t, s, newRun())
		flushEnds(t, s, finish(claim(t, s, keyedRequest(1)).Runs[0]))
	}
	old := start(t, s, newRun())[0]
	exec(t, s.pool, `UPDATE kagzi.workflow_runs SET run_id = $2 WHERE run_id = $1`, old, uuid.UUID{15: 1})
	if got := runIDs(claim(t, s, keyedRequest(9)).Runs); !slices.Equal(got, []uuid.UUID{{15: 1}}) {
		t.Fatalf("claimed %v", got)
	}
	if from() != (uuid.UUID{15: 1}) {
		t.Errorf("claims count the slots from %v on, but the run of a client whose clock is wrong holds one", from())
	}
	next()
	mustSetQueue(t, s, QueueLimits{MaxRunning: 3})
	if from() != (uuid.UUID{}) {
		t.Errorf("after a change of the limit, claims count the slots from %v on", from())
	}
}

// A compensation holds a slot beside its parent, and counts although a wrong clock has made the parent's ID.
func TestCursorOfAQueueFindsCompensations(t *testing.T) {
	t.Parallel()
	s := open(t)
	mustSetQueue(t, s, QueueLimits{MaxRunning: 2, Held: true})
	id := uuid.Max
	exec(t, s.pool, `UPDATE kagzi.workflow_runs SET run_id = $2 WHERE run_id = $1`, start(t, s, newRun())[0], id)
	r := claim(t, s, keyedRequest(9)).Runs[0]
	flush(t, s, &Flush{Records: []*Record{registering(r, "a", 1)}})
	exec(t, s.pool, `UPDATE kagzi.queues SET slots_from = $1`, id)
	flushEnds(t, s, failing(r))
	compensate(t, s, id)
	start(t, s, newRun())
	if got := runIDs(claim(t, s, keyedRequest(9)).Runs); len(got) > 0 {
		t.Errorf("claimed %v beside a run and its compensation, which hold both slots", got)
	}
}

// The compensation of a run with a key has none, and holds a slot of the queue beside its parent.
func TestCursorOfAQueueFindsCompensationsOfKeys(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*NewRun){"Key": ofKey("a"), "Group": inGroup("g")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			mustSetQueue(t, s, QueueLimits{MaxRunning: 4, Held: true})
			settleAll(t, s)
			id := start(t, s, newRun(change))[0]
			r := claim(t, s, keyedRequest(9)).Runs[0]
			flush(t, s, &Flush{Records: []*Record{registering(r, "a", 1)}})
			ahead := func(n byte) NewRun { // by another process, whose clock is ahead
				run := newRun()
				run.RunID = uuid.Max
				run.RunID[15] = n
				return run
			}
			start(t, s, ahead(0))
			claim(t, s, keyedRequest(1))
			for n := range byte(60) { // one claim in four raises the cursor
				start(t, s, ahead(1+n))
				flushEnds(t, s, finish(claim(t, s, keyedRequest(1)).Runs[0]))
			}
			flushEnds(t, s, failing(r))
			compensate(t, s, id)
			next := start(t, s, newRun(), newRun())
			if got := runIDs(claim(t, s, keyedRequest(9)).Runs); !slices.Equal(got, next[:1]) {
				t.Errorf("claimed %v of %v beside two runs and a compensation, which hold three of four slots", got,
					next)
			}
		})
	}
}

// Claims that began before the queue had a limit hold no lock, and do not see each other's runs.
func TestCursorOfAQueueWithANewLimit(t *testing.T) {
	t.Parallel()
	s := open(t)
	for range 40 { // one claim in four raises a cursor
		exec(t, s.pool, `DELETE FROM kagzi.queues`)
		exec(t, s.pool, `DELETE FROM kagzi.workflow_runs`)
		ids := start(t, s, newRun(), newRun())
		first, second := begin(t, s), begin(t, s)
		for _, tx := range []pgx.Tx{first, second} {
			exec(t, tx, lockQueue, s.namespace, "queue")
		}
		mustSetQueue(t, s, QueueLimits{MaxRunning: 2})
		exec(t, first, claimLimited, s.Claims.claimArgs(keyedRequest(1))...)
		claimed := make(chan error, 1)
		go func() {
			_, err := second.Exec(t.Context(), claimLimited, s.Claims.claimArgs(keyedRequest(1))...)
			claimed <- err
		}()
		await.True(t, "the second claim waits or is over", func() bool {
			return len(claimed) > 0 || dbtest.LockWaiters(t, s.pool) > 0
		})
		commit(t, first)
		if err := <-claimed; err != nil {
			t.Fatal(err)
		}
		commit(t, second)
		from := one[uuid.UUID](t, s.pool, `SELECT slots_from FROM kagzi.queues`)
		if bytes.Compare(from[:], ids[0][:]) > 0 {
			t.Fatalf("claims count the slots from %v on, but %v hold one", from, ids)
		}
	}
}

// Runs that get a slot from no claim of the queue count nevertheless.
func TestCursorOfAQueueFindsRunsThatNoClaimAdmits(t *testing.T) {
	t.Parallel()
	raise := func(t *testing.T, s *Store, to uuid.UUID) {
		t.Helper()
		exec(t, s.pool, `UPDATE kagzi.queues SET slots_from = $1`, to)
	}
	for name, admit := range map[string]func(t *testing.T, s *Store){
		"OfBeforeTheLimit": func(t *testing.T, s *Store) {
			start(t, s, newRun())
			claim(t, s, request(1))
			mustSetQueue(t, s, QueueLimits{MaxRunning: 2})
			exec(t, s.pool, `UPDATE kagzi.workflow_runs SET slot = NULL`)
			raise(t, s, newID())
			if err := s.Limits.Settle(t.Context(), "queue"); err != nil {
				t.Fatal(err)
			}
		},
		"TakenOver": func(t *testing.T, s *Store) {
			id := start(t, s, newRun())[0]
			claim(t, s, request(1))
			mustSetQueue(t, s, QueueLimits{MaxRunning: 2})
			exec(t, s.pool, `UPDATE kagzi.workflow_runs SET slot = NULL, available_at = now()`)
			raise(t, s, newID())
			if got := runIDs(claim(t, s, keyedRequest(1)).Runs); !slices.Equal(got, []uuid.UUID{id}) {
				t.Fatalf("took over %v, want %v", got, id)
			}
		},
		"Resumed": func(t *testing.T, s *Store) {
			mustSetQueue(t, s, QueueLimits{MaxRunning: 2, Held: true})
			id := failedToCompensate(t, s)
			raise(t, s, newID())
			mustResume(t, s, id)
			exec(t, s.pool, `DELETE FROM kagzi.workflow_runs WHERE parent_run_id = $1`, id)
		},
		"MovedWithTheSlotOfItsGroup": func(t *testing.T, s *Store) {
			elsewhere := newRun(inGroup("g"))
			elsewhere.Queue = "other"
			id := start(t, s, elsewhere)[0]
			req := keyedRequest(1)
			req.Queue = "other"
			r := claim(t, s, req).Runs[0]
			flush(t, s, &Flush{Suspensions: []*Suspension{sleep(r, time.Hour)}})
			mustSetQueue(t, s, QueueLimits{MaxRunning: 2})
			raise(t, s, newID())
			if _, err := s.Runs.Update(t.Context(), nil, id, RunUpdate{Queue: "queue"}, Why{}); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			register(t, s)
			admit(t, s)
			next := start(t, s, newRun(), newRun())
			if got := runIDs(claim(t, s, keyedRequest(9)).Runs); !slices.Equal(got, next[:1]) {
				t.Errorf("claimed %v of %v beside a run that holds one of two slots", got, next)
			}
		})
	}
}

// A resume in a transaction of a caller that ends long after the queue got a limit has not locked the queue, and gives
// the run no slot: claims would not find it.
func TestResumeInATransactionBesideANewLimit(t *testing.T) {
	t.Parallel()
	s := open(t)
	mustSetQueue(t, s, QueueLimits{Held: true, EachKey: KeyLimits{MaxRunning: 2}})
	id := failedToCompensate(t, s)
	tx := begin(t, s)
	if _, err := s.Runs.Resume(t.Context(), tx, id, Why{}); err != nil {
		t.Fatal(err)
	}
	mustSetQueue(t, s, QueueLimits{Held: true, MaxRunning: 2})
	settleAll(t, s)
	start(t, s, newRun())
	long := claim(t, s, keyedRequest(1)).Runs[0].RunID
	exec(t, s.pool, `UPDATE kagzi.queues SET slots_from = $1`, long)
	commit(t, tx)
	undo := types(WorkflowVersions{"undo", []int{1}, 1})
	req := keyedRequest(9)
	undo(&req)
	if got := claim(t, s, req).Runs; len(got) != 1 {
		t.Fatalf("claimed %v", runIDs(got))
	}
	start(t, s, newRun())
	if got := runIDs(claim(t, s, keyedRequest(9)).Runs); len(got) > 0 {
		t.Errorf("claimed %v beside a run and a compensation, which hold both slots", got)
	}
}

// The next claim from a queue with a limit goes on from where one got to, and that is nowhere if it had no room.
func TestClaimOfALimitedQueueGoesOn(t *testing.T) {
	t.Parallel()
	s := open(t)
	mustSetQueue(t, s, QueueLimits{MaxRunning: 2})
	ids := start(t, s, many(3)...)
	exec(t, s.pool, `UPDATE kagzi.workflow_runs SET available_at = now() - (array_position($1, run_id) * -10 + 100)
		* interval '1 min'`, ids)
	reached := func(c Claim, want ...time.Duration) {
		t.Helper()
		if len(c.Reached) != len(want) {
			t.Errorf("reached %v, want %d pairs", c.Reached, len(want))
		}
		for i, ago := range want {
			got := c.Now.Sub(c.Reached[Pair{"type", int16(i + 1)}])
			if got < ago || got > ago+time.Minute {
				t.Errorf("reached %v ago in priority %d, want %v", got, i+1, ago)
			}
		}
	}
	first := claim(t, s, keyedRequest(9))
	if got := runIDs(first.Runs); !slices.Equal(got, ids[:2]) {
		t.Fatalf("claimed %v of %v", got, ids)
	}
	reached(first, LateCommit, LateCommit, 80*time.Minute)
	reached(claim(t, s, keyedRequest(9)))
	keysOnly := keyedRequest(9)
	keysOnly.Keys.Plain, keysOnly.Queue = 0, "without limits"
	reached(claim(t, s, keysOnly))
	flushEnds(t, s, finish(first.Runs[0]))
	req := keyedRequest(9)
	req.Since = first.Reached
	last := claim(t, s, req)
	if got := runIDs(last.Runs); !slices.Equal(got, ids[2:]) {
		t.Fatalf("claimed %v of %v", got, ids)
	}
	flushEnds(t, s, finish(first.Runs[1]))
	req.Since = last.Reached
	reached(claim(t, s, req), LateCommit, LateCommit, LateCommit, LateCommit)
}
