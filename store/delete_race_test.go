package store

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
)

// Retention deletes a run while Delete waits for its lock. The run's children stay until they are old, too, and no record says that
// somebody has deleted them.
func TestDeleteMeetsRetention(t *testing.T) {
	t.Parallel()
	s := open(t)
	parent := withRows(t, s, old(t, s, Failed, 2*day, withID("order-42")), 2)
	child := withRows(t, s, old(t, s, Completed, time.Hour, withParent(parent), withID("parcel-7")), 3)
	tx := begin(t, s)
	lockRow(t, tx, parent)
	exec(t, tx, deleteRuns, s.namespace, []uuid.UUID{parent})
	meetsLock(t, s, func(ctx context.Context) {
		wantError(t, second(s.Delete(ctx, nil, parent, Why{"why", "who"}, false)), ErrRunNotFound)
	}, func() { commit(t, tx) })
	if left := rowsOf(t, s, child); left != "1 3 1 1" {
		t.Errorf("left of the child %s", left)
	}
	if n := one[int](t, s.pool, `SELECT count(*) FROM kagzi.run_events WHERE event = $1`, EventDeleted); n > 0 {
		t.Errorf("%d records of a deletion that was refused", n)
	}
}
