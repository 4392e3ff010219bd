package store

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/internal/pgproxy"
	"github.com/kagzi/kagzi/store/internal/clause"
	"github.com/kagzi/kagzi/waits"
)

func mustDelete(t *testing.T, s *Store, id uuid.UUID) []uuid.UUID {
	t.Helper()
	ids, err := s.Deletions.Delete(t.Context(), nil, id, Why{"why", "who"}, false)
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

// deletionOf returns the event that a deleted run has left, and fails if that is not all that is left.
func deletionOf(t *testing.T, s *Store, id uuid.UUID) RunEvent {
	t.Helper()
	events, err := s.Runs.Events(t.Context(), id)
	if left := rowsOf(t, s, id); err != nil || left != "0 0 0 1" || len(events) != 1 ||
		events[0].Event != EventDeleted {
		t.Fatalf("left %s, events %+v, %v", left, events, err)
	}
	return events[0]
}

func TestDelete(t *testing.T) {
	t.Parallel()

	t.Run("WithWhatBelongsToIt", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		parent := withRows(t, s, old(t, s, Failed, time.Hour, withID("order-42")), 5)
		child := withRows(t, s, old(t, s, Completed, time.Hour, withParent(parent)), 3)
		grandchild := old(t, s, Cancelled, time.Hour, withParent(child))
		detached := old(t, s, Completed, time.Hour, withParent(parent))
		exec(t, s.pool, `UPDATE kagzi.workflow_runs SET detached = true WHERE run_id = $1`, detached)
		stranger := withRows(t, s, old(t, s, Failed, time.Hour), 2)
		dbtest.Audit(t, s.pool) // of the deletion, not of what the test has made up
		if got := mustDelete(t, s, parent); !slices.Equal(got, []uuid.UUID{parent, child, grandchild}) {
			t.Errorf("deleted %v", got)
		}
		e := deletionOf(t, s, parent)
		if e.Reason != "why" || e.Actor != "who" || e.Other != uuid.Nil || !slices.Equal(e.Changes,
			[]Changed{{"workflow", "type", ""}, {"status", Failed, ""}, {"id", "order-42", ""}}) {
			t.Errorf("event %+v", e)
		}
		if e := deletionOf(t, s, child); e.Other != parent || e.Actor != "who" {
			t.Errorf("event %+v", e)
		}
		deletionOf(t, s, grandchild)
		for _, id := range []uuid.UUID{detached, stranger} {
			if _, err := s.Runs.Get(t.Context(), id); err != nil {
				t.Errorf("another run: %v", err)
			}
		}
		if id, err := s.Deletions.Find(t.Context(), "order-42"); err != nil || id != parent {
			t.Errorf("found %v, %v", id, err)
		}
		wantError(t, second(s.Deletions.Find(t.Context(), "order-43")), ErrRunNotFound)
		wantError(t, second(New(s.pool, "other").Deletions.Find(t.Context(), "order-42")), ErrRunNotFound)
		wantError(t, second(s.Deletions.Delete(t.Context(), nil, parent, Why{}, false)), ErrRunNotFound)
		mustDelete(t, s, detached) // its parent does not need it any more
	})

	t.Run("Refused", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		parent := old(t, s, Failed, time.Hour)
		child := old(t, s, Completed, time.Hour, withParent(parent))
		active := start(t, s, newRun(withParent(child)))[0]
		try := func(id uuid.UUID) error { return second(s.Deletions.Delete(t.Context(), nil, id, Why{}, false)) }
		wantError(t, try(active), ErrRunActive)
		if e, ok := errors.AsType[*ActiveBelow](try(parent)); !ok || e.RunID != active {
			t.Errorf("%+v", e)
		}
		mustCancel(t, s, active, "")
		if e, ok := errors.AsType[*NeededRun](try(child)); !ok || e.Parent != parent {
			t.Errorf("%+v", e)
		}
		wantError(t, second(New(s.pool, "other").Deletions.Delete(t.Context(), nil, parent, Why{}, false)),
			ErrRunNotFound)
		if ids, err := s.Deletions.Delete(t.Context(), nil, parent, Why{}, true); err != nil || len(ids) != 3 {
			t.Errorf("a dry run: %v, %v", ids, err)
		}
		if n := one[int](t, s.pool, `SELECT count(*) FROM kagzi.workflow_runs`); n != 3 {
			t.Errorf("%d runs are left", n)
		}
		mustDelete(t, s, parent)
	})

	t.Run("LastRunOfAConsumer", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		c := consumerOf("c", "a")
		c.PauseOnFailure = true
		subscribe(t, s, c)
		r := due(t, s, "c")[0]
		e := finish(r)
		e.Status, e.ErrorKind, e.Error, e.Output = Failed, "kind", "error", nil
		flush(t, s, &Flush{Finishes: []*Finish{e}})
		if e, ok := errors.AsType[*NeededRun](second(s.Deletions.Delete(t.Context(), nil, r.RunID, Why{},
			false))); !ok ||
			e.Consumer != "c" {
			t.Errorf("%+v: the consumer would not learn that its run has failed", e)
		}
		if err := s.Consumers.Delete(t.Context(), nil, "c", Why{}); err != nil {
			t.Fatal(err)
		}
		mustDelete(t, s, r.RunID)
	})

	t.Run("InTx", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		id := withRows(t, s, old(t, s, Failed, time.Hour), deletedRows+10)
		tx := begin(t, s)
		if _, err := s.Deletions.Delete(t.Context(), tx, id, Why{}, false); err != nil {
			t.Fatal(err)
		}
		if n := one[int](t, tx, `SELECT count(*) FROM kagzi.step_runs`); n > 0 {
			t.Errorf("%d steps are left in the transaction", n)
		}
		rollback(t, tx)
		if left := rowsOf(t, s, id); left != "1 5010 1 1" {
			t.Errorf("left %s", left)
		}
	})
}

// A resume that comes first wins, and one that comes later finds no run.
func TestDeleteMeetsResume(t *testing.T) {
	t.Parallel()
	s := open(t)
	a, b := old(t, s, Failed, time.Hour), old(t, s, Failed, time.Hour)
	tx := begin(t, s)
	if _, err := s.Runs.Resume(t.Context(), tx, a, Why{}); err != nil {
		t.Fatal(err)
	}
	meetsLock(t, s, func(ctx context.Context) {
		wantError(t, second(s.Deletions.Delete(ctx, nil, a, Why{}, false)), ErrRunActive)
	}, func() { commit(t, tx) })
	tx = begin(t, s)
	if _, err := s.Deletions.Delete(t.Context(), tx, b, Why{}, false); err != nil {
		t.Fatal(err)
	}
	meetsLock(t, s, func(ctx context.Context) {
		wantError(t, second(s.Runs.Resume(ctx, nil, b, Why{})), ErrRunNotFound)
	}, func() { commit(t, tx) })
}

// A history of more than 5000 records does not go in the first transaction, which only decides. A process that dies
// then leaves a run that retention, another call, or the coordinator, deletes.
func TestDeleteInSeveralTransactions(t *testing.T) {
	t.Parallel()
	s := open(t)
	long := func(id string) uuid.UUID {
		return withRows(t, s, old(t, s, Failed, time.Hour, withID(id)), deletedRows)
	}
	parent := long("a")
	child := old(t, s, Completed, time.Hour, withParent(parent))
	mustDelete(t, s, parent)
	deletionOf(t, s, parent)
	deletionOf(t, s, child)

	for _, what := range []string{"Retention", "AnotherCall", "Coordinator"} {
		id := long(what)
		child := old(t, s, Completed, time.Hour, withParent(id))
		ctx, cancel := context.WithCancel(t.Context())
		dies := func(ids []uuid.UUID) error { cancel(); return ctx.Err() }
		if _, err := s.Deletions.deleteUntil(ctx, nil, id, Why{"why", "who"}, false, dies); !errors.Is(err,
			context.Canceled) {
			t.Fatal(err)
		}
		if row := readRow(t, s.pool, id); row.WaitingOn == nil || *row.WaitingOn != string(waits.Deletion) {
			t.Fatalf("row %+v", row)
		}
		if left := rowsOf(t, s, id); left != "1 5000 1 2" {
			t.Errorf("left %s", left)
		}
		wantError(t, second(s.Runs.Resume(t.Context(), nil, id, Why{})), ErrRunNotFound)
		switch what {
		case "AnotherCall":
			if _, err := s.Deletions.Delete(t.Context(), nil, id, Why{"another", "somebody"}, false); err != nil {
				t.Fatal(err)
			}
		case "Coordinator":
			if marked := markedOf(t, s); !slices.Equal(marked, []uuid.UUID{id, child}) {
				t.Errorf("marked %v, want %v and %v", marked, id, child)
			}
			finishDeletions(t, s, id, child)
			finishDeletions(t, s, id, child) // another coordinator has found them, too
		default:
			for more := 1; more > 0; {
				more, _ = s.Deletions.PruneSteps(t.Context(), id, deletedRows)
			}
			for range 2 { // parents first
				prune(t, s, Retention{Completed: 40 * day, Failed: 40 * day}, deletedRows, id, child)
			}
		}
		if e := deletionOf(t, s, id); e.Actor != "who" {
			t.Errorf("%s: %+v, which is not who has decided it", what, e)
		}
		deletionOf(t, s, child)
	}
}

func markedOf(t *testing.T, s *Store) []uuid.UUID {
	t.Helper()
	ids, err := s.Deletions.Marked(t.Context(), uuid.Nil, 10)
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

func finishDeletions(t *testing.T, s *Store, ids ...uuid.UUID) {
	t.Helper()
	if err := s.Deletions.Finish(t.Context(), ids); err != nil {
		t.Fatal(err)
	}
}

// A coordinator finds only marked runs, page by page, and does not wait for a run that another transaction has
// locked.
func TestMarkedRuns(t *testing.T) {
	t.Parallel()
	s := open(t)
	var ids []uuid.UUID
	for range 3 {
		ids = append(ids, old(t, s, Failed, time.Hour))
	}
	other := old(t, New(s.pool, "other"), Failed, time.Hour)
	exec(t, s.pool, `UPDATE kagzi.workflow_runs SET waiting_on = '`+clause.BeingDeleted+`' WHERE run_id <> $1`, ids[1])
	slices.SortFunc(ids, compareIDs)
	ids = slices.DeleteFunc(ids, func(id uuid.UUID) bool { return readRow(t, s.pool, id).WaitingOn == nil })
	if got := markedOf(t, s); !slices.Equal(got, ids) {
		t.Errorf("marked %v, want %v", got, ids)
	}
	for i, after := range []uuid.UUID{uuid.Nil, ids[0]} {
		if got, err := s.Deletions.Marked(t.Context(), after, 1); err != nil || !slices.Equal(got, ids[i:i+1]) {
			t.Errorf("page %d: %v, %v", i, got, err)
		}
	}
	tx := begin(t, s)
	lockRow(t, tx, ids[0])
	finishDeletions(t, s, ids...)
	if got := markedOf(t, s); !slices.Equal(got, ids[:1]) {
		t.Errorf("left %v, want the run that is locked", got)
	}
	rollback(t, tx)
	finishDeletions(t, s, ids...)
	if got := markedOf(t, s); len(got) > 0 {
		t.Errorf("left %v", got)
	}
	if left := rowsOf(t, New(s.pool, "other"), other); left != "1 0 0 0" {
		t.Errorf("of a run of another namespace is left %s", left)
	}
}

// A coordinator meets a Delete that is under way: neither fails, even if one has to wait for what the other deletes.
func TestDeleteMeetsCoordinator(t *testing.T) {
	t.Parallel()
	s := open(t)
	id := withRows(t, s, old(t, s, Failed, time.Hour), 2*deletedRows)
	child := old(t, s, Completed, time.Hour, withParent(id))
	_, err := s.Deletions.deleteUntil(t.Context(), nil, id, Why{"why", "who"}, false, func(ids []uuid.UUID) error {
		tx := begin(t, s) // the coordinator's, which has deleted some
		exec(t, tx, `DELETE FROM kagzi.step_runs WHERE run_id = $1 AND step_id < 'step-3'`, id)
		if err := s.Deletions.Finish(t.Context(), ids); !pg.Locked(err) {
			t.Errorf("error %v, want that another one works on it", err)
		}
		var err error
		meetsLock(t, s, func(ctx context.Context) { err = s.Deletions.deleteMarked(ctx, ids) }, func() {
			exec(t, tx, `SELECT pg_sleep(0.8)`) // so long does a portion take on a slow server
			commit(t, tx)
		})
		return err
	})
	if err != nil {
		t.Error(err)
	}
	deletionOf(t, s, id)
	deletionOf(t, s, child)
}

// A run with thousands of children goes in portions, parents first.
func TestDeleteOfALargeFamily(t *testing.T) {
	t.Parallel()
	s := open(t)
	parent := old(t, s, Failed, time.Hour)
	start(t, s, many(2*deletedRuns, withParent(parent))...)
	exec(t, s.pool, `UPDATE kagzi.workflow_runs SET status = 'COMPLETED', available_at = NULL, finished_at = now()
		WHERE parent_run_id = $1`, parent)
	dbtest.Audit(t, s.pool)
	if got := mustDelete(t, s, parent); len(got) != 2*deletedRuns+1 {
		t.Errorf("deleted %d runs", len(got))
	}
	if runs, events := one[int](t, s.pool, `SELECT count(*) FROM kagzi.workflow_runs`),
		one[int](t, s.pool, `SELECT count(*) FROM kagzi.run_events`); runs > 0 || events != 2*deletedRuns+1 {
		t.Errorf("left %d runs, and %d events", runs, events)
	}
	if n := one[int](t, s.pool, `SELECT max(e.n) FROM (SELECT count(*) AS n FROM kagzi.run_events e
		GROUP BY e.xmin::text) e`); n > deletedRuns {
		t.Errorf("one transaction has marked %d runs: on a slow server it could not end in time", n)
	}
	deletionOf(t, s, parent)
}

// However many runs a family has, and however they stand below each other, no statement of a Delete reads many of them:
// it would not end in time on a slow server.
func TestDeleteReadsALargeFamilyInPortions(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	direct := New(db.Pool, "test")
	most := int64(0)
	s := New(poolWith(t, db.DSN, func(c *pgxpool.Config) {
		c.ConnConfig.Tracer = rowsTracer(func(n int64) { most = max(most, n) })
	}), "test")
	family := func() uuid.UUID {
		parent := old(t, direct, Failed, time.Hour)
		middle := start(t, direct, many(3, withParent(parent))...)
		start(t, direct, newRun(withParent(middle[0])))
		exec(t, db.Pool, `UPDATE kagzi.workflow_runs SET status = 'COMPLETED', available_at = NULL, finished_at = now()
			WHERE run_id <> $1`, parent)
		exec(t, db.Pool, copyRun, middle[0], parent, childrenRead)
		exec(t, db.Pool, copyRun, middle[0], middle[1], childrenRead/3+1)
		return parent
	}
	parent := family()
	if ids, err := s.Deletions.Delete(t.Context(), nil, parent, Why{}, true); err != nil || len(ids) != 5+childrenRead+
		childrenRead/3+1 {
		t.Fatalf("a dry run finds %d runs: %v", len(ids), err)
	}
	mustDelete(t, s, parent)
	parent = family()
	exec(t, db.Pool, markDeleted, s.namespace, []uuid.UUID{parent}) // the process dies
	for marked := markedOf(t, s); len(marked) > 0; marked = markedOf(t, s) {
		finishDeletions(t, s, marked...)
	}
	if n := one[int](t, db.Pool, `SELECT count(*) FROM kagzi.workflow_runs`); n > 0 {
		t.Errorf("%d runs are left", n)
	}
	if most == 0 || most > childrenRead {
		t.Errorf("a statement returns %d rows", most)
	}
}

// Inserts copies of a run as children of another one.
const copyRun = `
INSERT INTO kagzi.workflow_runs (run_id, namespace_id, task_queue, workflow_type, status, finished_at, parent_run_id,
	input)
SELECT gen_random_uuid(), q.namespace_id, q.task_queue, q.workflow_type, q.status, q.finished_at, $2, q.input
FROM kagzi.workflow_runs q, generate_series(1, $3)
WHERE q.run_id = $1`

// A rowsTracer is called with the number of rows that each statement of a batch has returned or changed.
type rowsTracer func(int64)

func (rowsTracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

func (rowsTracer) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (rowsTracer) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}

func (f rowsTracer) TraceBatchQuery(_ context.Context, _ *pgx.Conn, d pgx.TraceBatchQueryData) {
	f(d.CommandTag.RowsAffected())
}

func (rowsTracer) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// A process dies that has marked only the first run of a large family. A coordinator does the rest, and leaves what was
// resumed.
func TestFinishDeletionOfALargeFamily(t *testing.T) {
	t.Parallel()
	s := open(t)
	parent := old(t, s, Failed, time.Hour)
	ids := start(t, s, many(deletedRuns+1, withParent(parent))...)
	ids = append(ids, start(t, s, newRun(withParent(ids[0])), newRun(withParent(parent)))...)
	active, below := ids[len(ids)-1], ids[len(ids)-2]
	exec(t, s.pool, `UPDATE kagzi.workflow_runs SET status = 'COMPLETED', available_at = NULL, finished_at = now()
		WHERE run_id <> $1 AND run_id <> $2`, active, parent)
	_, err := s.Deletions.Delete(t.Context(), nil, parent, Why{}, false)
	if e, ok := errors.AsType[*ActiveBelow](err); !ok || e.RunID != active || len(markedOf(t, s)) > 0 {
		t.Fatalf("error %v, and %v are marked", err, markedOf(t, s))
	}
	if marked, err := s.Deletions.mark(t.Context(), newEvent(parent, EventDeleted, Why{}),
		[]uuid.UUID{parent}); err != nil ||
		!slices.Equal(marked, []uuid.UUID{parent}) {
		t.Fatalf("marked %v, error %v", marked, err)
	}
	for marked := markedOf(t, s); len(marked) > 0; marked = markedOf(t, s) {
		if err := s.Deletions.Finish(t.Context(), marked); err != nil {
			t.Fatal(err)
		}
	}
	if left := column[uuid.UUID](t, s.pool, `SELECT run_id FROM kagzi.workflow_runs`); !slices.Equal(left,
		[]uuid.UUID{active}) {
		t.Errorf("left %v, want only %v", left, active)
	}
	deletionOf(t, s, below)
}

// The answer to the commit is lost, or the commit.
func TestLostDelete(t *testing.T) {
	eachLoss(t, func(t *testing.T, _ func(*pgproxy.Proxy, string) *pgproxy.Drop, done bool) {
		for _, steps := range []int{3, deletedRows + 1} {
			db := dbtest.Database(t)
			proxy := pgproxy.Start(t, db.DSN)
			s, direct := New(poolWith(t, proxy.DSN(), nil), "test"), New(db.Pool, "test")
			id := withRows(t, direct, old(t, direct, Failed, time.Hour), steps)
			child := old(t, direct, Completed, time.Hour, withParent(id))
			lose := proxy.DropRequest
			if done {
				lose = proxy.DropAck
			}
			drop := lose(pgproxy.Exactly("commit"))
			if ids := mustDelete(t, s, id); !slices.Equal(ids, []uuid.UUID{id, child}) {
				t.Errorf("deleted %v", ids)
			}
			happened(t, drop)
			deletionOf(t, direct, id)
			deletionOf(t, direct, child)
		}
	})
}

func TestPruneDeletions(t *testing.T) {
	t.Parallel()
	s := open(t)
	a, b := old(t, s, Failed, time.Hour), old(t, s, Failed, time.Hour)
	mustDelete(t, s, a)
	exec(t, s.pool, `UPDATE kagzi.run_events SET occurred_at = now() - interval '2 hours'`)
	mustDelete(t, s, b)
	withRows(t, s, old(t, s, Failed, time.Hour), 1)
	exec(t, s.pool, `UPDATE kagzi.run_events SET occurred_at = now() - interval '3 hours' WHERE event <> 'DELETED'`)
	if n, err := New(s.pool, "other").Deletions.PruneEvents(t.Context(), time.Minute, 10); n != 0 || err != nil {
		t.Errorf("pruned %d of another namespace, %v", n, err)
	}
	if n, err := s.Deletions.PruneEvents(t.Context(), time.Hour, 10); n != 1 || err != nil {
		t.Errorf("pruned %d, %v", n, err)
	}
	deletionOf(t, s, b)
	if n := one[int](t, s.pool, `SELECT count(*) FROM kagzi.run_events WHERE event <> 'DELETED'`); n != 1 {
		t.Errorf("%d other events are left", n)
	}
}
