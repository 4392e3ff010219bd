package store

import (
	"slices"
	"testing"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/dbtest"
)

// failedToCompensate returns a run whose compensation has failed.
func failedToCompensate(t *testing.T, s *Store, change ...func(*NewRun)) uuid.UUID {
	t.Helper()
	id := start(t, s, newRun(change...))[0]
	r := claim(t, s, keyedRequest(9)).Runs[0]
	flush(t, s, &Flush{Records: []*Record{registering(r, "a", 1)}})
	flushEnds(t, s, failing(r))
	compensate(t, s, id)
	flushEnds(t, s, failing(claimUndo(t, s)))
	compensate(t, s, id)
	return id
}

// A caller's transaction that resumes a run whose key has no row any more holds up no claim.
func TestResumeInATransactionHoldsUpNoClaim(t *testing.T) {
	t.Parallel()
	s := open(t)
	mustSetQueue(t, s, QueueLimits{EachKey: KeyLimits{MaxRunning: 2}, Held: true})
	id := failedToCompensate(t, s, ofKey("a"))
	exec(t, s.pool, `DELETE FROM kagzi.run_keys`) // as pruneKeys does
	tx := begin(t, s)
	if _, err := s.Runs.Resume(t.Context(), tx, id, Why{}); err != nil {
		t.Fatal(err)
	}
	ids := start(t, s, newRun(ofKey("a")), newRun(ofKey("a")), newRun(ofKey("b")))
	if got := runIDs(claim(t, s, keyedRequest(9)).Runs); !slices.Equal(got, ids[2:]) {
		t.Errorf("claimed %v of %v while the key is locked", got, ids)
	}
	commit(t, tx)
	if got := runIDs(claim(t, s, keyedRequest(9)).Runs); !slices.Equal(got, ids[:1]) {
		t.Errorf("then claimed %v of %v", got, ids)
	}
}

// A resume locks its key also if the row is deleted meanwhile: else a claim gives the slots to others.
func TestResumeLocksAKeyThatIsDeleted(t *testing.T) {
	t.Parallel()
	s := open(t)
	mustSetQueue(t, s, QueueLimits{EachKey: KeyLimits{MaxRunning: 2}, Held: true})
	id := failedToCompensate(t, s, ofKey("a"))
	pruning, tx := begin(t, s), begin(t, s)
	exec(t, pruning, `DELETE FROM kagzi.run_keys`)
	resumed := make(chan error)
	go func() {
		_, err := s.Runs.Resume(t.Context(), tx, id, Why{})
		resumed <- err
	}()
	dbtest.AwaitLockWaiter(t, s.pool)
	commit(t, pruning)
	if err := <-resumed; err != nil {
		t.Fatal(err)
	}
	ids := start(t, s, newRun(ofKey("a")), newRun(ofKey("a")))
	if got := runIDs(claim(t, s, keyedRequest(9)).Runs); len(got) > 0 {
		t.Errorf("claimed %v of %v while the key is locked", got, ids)
	}
	commit(t, tx)
	if got := runIDs(claim(t, s, keyedRequest(9)).Runs); !slices.Equal(got, ids[:1]) {
		t.Errorf("then claimed %v of %v", got, ids)
	}
}
