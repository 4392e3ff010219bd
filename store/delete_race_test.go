package store

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/pg"
)

// Retention deletes a run while Delete waits for its lock. The run's children stay until they are old, too, and no
// record says that they were deleted.
func TestDeleteMeetsRetention(t *testing.T) {
	t.Parallel()
	s := open(t)
	parent := withRows(t, s, old(t, s, Failed, 2*day, withID("order-42")), 2)
	child := withRows(t, s, old(t, s, Completed, time.Hour, withParent(parent), withID("parcel-7")), 3)
	tx := begin(t, s)
	lockRow(t, tx, parent)
	exec(t, tx, deleteRuns, s.namespace, []uuid.UUID{parent})
	meetsLock(t, s, func(ctx context.Context) {
		wantError(t, second(s.Deletions.Delete(ctx, nil, parent, Why{"why", "who"}, false)), ErrRunNotFound)
	}, func() { commit(t, tx) })
	if left := rowsOf(t, s, child); left != "1 3 1 1" {
		t.Errorf("left of the child %s", left)
	}
	if n := one[int](t, s.pool, `SELECT count(*) FROM kagzi.run_events WHERE event = $1`, EventDeleted); n > 0 {
		t.Errorf("%d records of a deletion that was refused", n)
	}
}

// Two calls delete the same run, or a call and a coordinator. A transaction that deletes rows of a run has locked it:
// otherwise the one that begins with the steps and the one that begins with the messages would wait for each other.
func TestDeleteMeetsDelete(t *testing.T) {
	t.Parallel()
	s := open(t)
	id := withRows(t, s, old(t, s, Failed, time.Hour), 20)
	exec(t, s.pool, markDeleted, s.namespace, []uuid.UUID{id})
	tx := begin(t, s)
	exec(t, tx, `SELECT FROM kagzi.step_runs WHERE run_id = $1 AND step_id = 'step-5' FOR UPDATE`, id)
	var deleting sync.WaitGroup
	ctx := context.WithoutCancel(t.Context())
	// waits for tx, in the middle of the steps
	deleting.Go(func() { wantError(t, s.Deletions.deleteRows(ctx, []uuid.UUID{id}), nil) })
	waitForWaiter(t, s)
	deleting.Go(func() {
		if err := second(s.Deletions.Delete(ctx, nil, id, Why{}, false)); err != nil &&
			!errors.Is(err, ErrRunNotFound) {
			t.Error(err)
		}
	})
	await.True(t, "both wait", func() bool {
		return dbtest.LockWaiters(t, s.pool) == 2
	})
	if n := one[int](t, s.pool, `SELECT count(*) FROM (SELECT FROM kagzi.signals WHERE run_id = $1
		AND namespace_id = $2 FOR UPDATE SKIP LOCKED) x`, id, s.namespace); n != 1 {
		t.Error("the second call deletes messages, while the first one deletes steps, and goes on with the messages")
	}
	commit(t, tx)
	deleting.Wait()
	if n := one[int](t, s.pool, `SELECT count(*) FROM kagzi.workflow_runs`); n > 0 {
		t.Errorf("%d runs are left", n)
	}
}

// A portion that another transaction has deleted meanwhile was not the last one: without that, the rest would go in one
// transaction, however large it is.
func TestPruneStepsBesideAnother(t *testing.T) {
	t.Parallel()
	s := open(t)
	id := withRows(t, s, old(t, s, Failed, time.Hour), 10)
	exec(t, s.pool, markDeleted, s.namespace, []uuid.UUID{id})
	tx := begin(t, s)
	exec(t, tx, pruneSteps, s.namespace, id, 4)
	meetsLock(t, s, func(ctx context.Context) {
		if n, err := s.Deletions.pruneSteps(ctx, pg.Patient, id, 4); n == 0 || err != nil {
			t.Errorf("%d rows, %v; left %s", n, err, rowsOf(t, s, id))
		}
	}, func() { commit(t, tx) })
	for n := 1; n > 0; {
		var err error
		if n, err = s.Deletions.pruneSteps(t.Context(), pg.Patient, id, 4); err != nil {
			t.Fatal(err)
		}
	}
	if left := rowsOf(t, s, id); left != "1 0 0 1" {
		t.Errorf("left %s", left)
	}
}
