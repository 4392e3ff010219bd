package store

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/store/internal/clause"
)

// Deletions deletes runs that an operator names, and rows that have outlived their retention.
type Deletions struct{ *conn }

// What one transaction of a Delete removes at most, unless it is the caller's.
const (
	deletedRuns = 500
	deletedRows = 5000 // steps, messages and items

	finishedRows = 500 // the same for a coordinator that finishes one, and has time
)

// Children of the runs $2, detached ones and those that belong to them: of each run the first $4 whose IDs are above
// that of $3.
const childrenOf = `
SELECT u.place, q.run_id, q.status, q.belongs, q.marked
FROM unnest($2::uuid[], $3::uuid[]) WITH ORDINALITY AS u (run_id, after, place)
CROSS JOIN LATERAL (
	SELECT f.run_id, f.status, NOT f.detached
		OR coalesce(f.parent_step_id LIKE '%` + compensationSuffix + `', false) AS belongs,
		coalesce(f.waiting_on = '` + clause.BeingDeleted + `', false) AS marked
	FROM kagzi.workflow_runs f
	WHERE f.parent_run_id = u.run_id AND f.namespace_id = $1 AND f.run_id > u.after
	ORDER BY f.run_id
	LIMIT $4
) q
ORDER BY u.place, q.run_id`

// A child of the runs $2 that belongs to them and is not one of them.
const childBeyond = `
SELECT c.run_id
FROM unnest($2::uuid[]) AS u (run_id)
CROSS JOIN LATERAL (
	SELECT q.run_id
	FROM kagzi.workflow_runs q
	WHERE q.parent_run_id = u.run_id AND q.namespace_id = $1
		AND (NOT q.detached OR q.parent_step_id LIKE '%` + compensationSuffix + `')
	OFFSET 0
) c
EXCEPT
SELECT k.run_id FROM unnest($2::uuid[]) AS k (run_id)
LIMIT 1`

// The caller has locked the runs $2, of which $3 is to be deleted with the others.
const statesBelow = `
SELECT q.run_id, q.status, q.workflow_type, coalesce(q.external_id, ''), coalesce(q.waiting_on = '` +
	clause.BeingDeleted + `', false), CASE WHEN q.run_id = $3 THEN (
		SELECT p.run_id FROM kagzi.workflow_runs p WHERE p.run_id = q.parent_run_id AND p.namespace_id = $1
	) END
FROM unnest($2::uuid[]) WITH ORDINALITY AS u (run_id, place)
CROSS JOIN LATERAL (
	SELECT f.run_id, f.status, f.workflow_type, f.external_id, f.waiting_on, f.parent_run_id FROM kagzi.workflow_runs f
		WHERE f.run_id = u.run_id AND f.namespace_id = $1 OFFSET 0
) q
ORDER BY u.place`

// How many rows the runs have, counting up to $3 of a kind for each.
const rowsOfRuns = `
SELECT coalesce(sum(s.rows + g.rows + i.rows), 0)::bigint
FROM unnest($2::uuid[]) AS u (run_id)
CROSS JOIN LATERAL (
	SELECT count(*) AS rows FROM (SELECT FROM kagzi.step_runs s WHERE s.run_id = u.run_id AND s.namespace_id = $1
		LIMIT $3) x
) s
CROSS JOIN LATERAL (
	SELECT count(*) AS rows FROM (SELECT FROM kagzi.signals g WHERE g.run_id = u.run_id AND g.namespace_id = $1
		LIMIT $3) x
) g
CROSS JOIN LATERAL (
	SELECT count(*) AS rows FROM (SELECT FROM kagzi.start_items i WHERE i.run_id = u.run_id AND i.namespace_id = $1
		LIMIT $3) x
) i`

const markDeleted = `
UPDATE kagzi.workflow_runs r SET waiting_on = '` + clause.BeingDeleted + `'
WHERE r.run_id = ANY ($2::uuid[]) AND r.namespace_id = $1 AND r.status IN ('COMPLETED', 'FAILED', 'CANCELLED')`

// Only for runs that the transaction has locked when they were over, or that are marked. The events that say who
// deleted them stay, and so do slots of limits, because a step of a run that was terminated may not have returned:
// freeSlots removes them. The deletes have arrays as conditions, of which the planner does not know the length: see
// pruneRuns.
const deleteRuns = `
WITH runs AS MATERIALIZED (
	SELECT u.run_id FROM unnest($2::uuid[]) AS u (run_id)
), steps AS (
	DELETE FROM kagzi.step_runs s WHERE s.run_id = ANY (ARRAY (SELECT runs.run_id FROM runs)) AND s.namespace_id = $1
), messages AS (
	DELETE FROM kagzi.signals g WHERE g.run_id = ANY (ARRAY (SELECT runs.run_id FROM runs)) AND g.namespace_id = $1
), waits AS (
	DELETE FROM kagzi.event_waits w WHERE w.run_id = ANY (ARRAY (SELECT runs.run_id FROM runs)) AND w.namespace_id = $1
), places AS (
	DELETE FROM kagzi.limit_places x WHERE x.run_id = ANY (ARRAY (SELECT runs.run_id FROM runs)) AND x.namespace_id = $1
		AND CASE WHEN x.lease IS NULL THEN true ELSE false END
), items AS (
	DELETE FROM kagzi.start_items i WHERE i.run_id = ANY (ARRAY (SELECT runs.run_id FROM runs)) AND i.namespace_id = $1
), events AS (
	DELETE FROM kagzi.run_events e WHERE e.run_id = ANY (ARRAY (SELECT runs.run_id FROM runs)) AND e.namespace_id = $1
		AND e.event <> 'DELETED'
)
DELETE FROM kagzi.workflow_runs r WHERE r.run_id = ANY (ARRAY (SELECT runs.run_id FROM runs)) AND r.namespace_id = $1`

// A NeededRun reports that a run cannot be deleted alone: its parent or its consumer still needs it.
type NeededRun struct {
	Parent   uuid.UUID
	Consumer string // set if there is no parent
}

func (e *NeededRun) Error() string {
	if e.Consumer != "" {
		return fmt.Sprintf("consumer %q needs the run", e.Consumer)
	}
	return fmt.Sprintf("its parent %s needs the run", e.Parent)
}

// An ActiveBelow reports that a run below the one to be deleted is not over.
type ActiveBelow struct{ RunID uuid.UUID }

func (e *ActiveBelow) Error() string { return fmt.Sprintf("run %s below it is not over", e.RunID) }

// Delete deletes a run that is over and the runs that belong to it, with all of their rows, and returns them. For each
// it writes an event, which stays. It returns ErrRunNotFound, ErrRunActive, an ActiveBelow and a NeededRun.
//
// If they have many rows, the first transaction writes the events and marks the runs: from then on they cannot be
// resumed. Further ones delete their rows. If they are many runs, the first one marks the run alone, and further ones
// the runs below, 500 at a time; those that were resumed meanwhile stay. If the process dies, a coordinator does the
// rest, or another call. In a caller's transaction everything happens at once. With dry nothing is deleted.
func (s Deletions) Delete(ctx context.Context, tx pgx.Tx, id uuid.UUID, why Why,
	dry bool,
) (ids []uuid.UUID, err error) {
	return s.deleteUntil(ctx, tx, id, why, dry, func(ids []uuid.UUID) error { return s.deleteMarked(ctx, ids) })
}

// deleteUntil is Delete, which calls rest with runs that are only marked yet.
func (s Deletions) deleteUntil(ctx context.Context, tx pgx.Tx, id uuid.UUID, why Why, dry bool,
	rest func(ids []uuid.UUID) error,
) (ids []uuid.UUID, err error) {
	event := newEvent(id, EventDeleted, why)
	most := math.MaxInt
	if tx == nil {
		most = deletedRuns
	}
	tried, done := false, false // tried: an earlier try of our own transaction, whose answer may have been lost
	err = s.inSavepoint(ctx, tx, func(ctx context.Context, tx2 pgx.Tx) error {
		done = false
		runs, err := s.lockBelow(ctx, tx2, id, most)
		if err == nil && len(runs) == 0 {
			err = ErrRunNotFound
			if tried {
				if ok, e := s.hasEvent(ctx, tx2, event); ok || e != nil {
					done = true
					return e
				}
			}
		}
		if err == nil {
			err = s.deletable(ctx, tx2, runs)
		}
		if err != nil {
			return err
		}
		tried, ids = true, idsOf(runs)
		if dry {
			done = true
			return nil
		}
		if err := s.writeDeletions(ctx, tx2, event, runs); err != nil {
			return err
		}
		rows, err := pg.AskOne[int64](ctx, tx2, rowsOfRuns, s.namespace, array(ids), deletedRows)
		if err != nil {
			return err
		}
		if done = tx != nil || len(ids) <= deletedRuns && rows < deletedRows; done {
			return pg.Ask(ctx, tx2, deleteRuns, []any{s.namespace, array(ids)}, nil)
		}
		return pg.Ask(ctx, tx2, markDeleted, []any{s.namespace, array(ids)}, nil)
	})
	switch {
	case errors.Is(err, errManyBelow):
		ids, err = s.deleteFamily(ctx, event, dry)
	case err == nil && !done:
		err = rest(ids)
	}
	return ids, pg.Wrap("delete", err)
}

// errManyBelow reports that a run and those below it are too many for one transaction.
var errManyBelow = errors.New("too many runs for one transaction")

// deleteFamily is Delete for many runs, each of whose transactions is about few of them.
func (s Deletions) deleteFamily(ctx context.Context, event RunEvent, dry bool) (ids []uuid.UUID, err error) {
	if err := s.change(ctx, nil, func(ctx context.Context, tx pgx.Tx) error {
		runs, err := s.lockStates(ctx, tx, []uuid.UUID{event.RunID}, event.RunID)
		if err == nil && len(runs) == 0 {
			err = ErrRunNotFound
		}
		if err == nil {
			err = s.deletable(ctx, tx, runs)
		}
		return err
	}); err != nil {
		return nil, err
	}
	family, err := s.family(ctx, s.pool, event.RunID, math.MaxInt)
	if err != nil {
		return nil, err
	}
	all := idsOf(family)
	for _, r := range family[1:] {
		if !r.over() {
			return nil, &ActiveBelow{r.id}
		}
	}
	if dry {
		return all, nil
	}
	if ids, err = s.mark(ctx, event, all[:1]); err == nil && len(ids) == 0 {
		err = ErrRunNotFound
	}
	for chunk := range slices.Chunk(all[1:], deletedRuns) {
		if err != nil {
			return nil, err
		}
		var marked []uuid.UUID
		marked, err = s.mark(ctx, event, chunk)
		ids = append(ids, marked...)
	}
	if err == nil {
		err = s.deleteMarked(ctx, ids)
	}
	return ids, err
}

// lockStates locks runs and returns those that exist. That of root has its parent.
func (s Deletions) lockStates(ctx context.Context, tx pgx.Tx, ids []uuid.UUID,
	root uuid.UUID,
) (runs []runBelow, err error) {
	b := &pgx.Batch{}
	b.Queue(lockRuns, s.namespace, array(ids))
	b.Queue(statesBelow, s.namespace, array(ids), root)
	return runs, pg.Exchange(ctx, tx, pg.Untimed, b, nil, pg.Collect(&runs, readBelow))
}

// mark writes the events of the deletion of runs, and marks them. first is the event of the run whose deletion takes
// them along. It leaves out runs that are not over, but returns why if first's own run, which must be alone, cannot be
// deleted.
func (s Deletions) mark(ctx context.Context, first RunEvent, ids []uuid.UUID) (marked []uuid.UUID, err error) {
	err = s.change(ctx, nil, func(ctx context.Context, tx pgx.Tx) error {
		marked = nil
		runs, err := s.lockStates(ctx, tx, ids, first.RunID)
		if err != nil || len(runs) == 0 {
			return err
		}
		if ids[0] == first.RunID {
			if err := s.deletable(ctx, tx, runs); err != nil {
				return err
			}
		} else {
			runs = slices.DeleteFunc(runs, func(r runBelow) bool { return !r.over() })
			runs = append([]runBelow{{id: first.RunID, marked: true}}, runs...) // it has its event
		}
		if err := s.writeDeletions(ctx, tx, first, runs); err != nil {
			return err
		}
		marked = idsOf(runs)
		if ids[0] != first.RunID {
			marked = marked[1:]
		}
		return pg.Ask(ctx, tx, markDeleted, []any{s.namespace, array(marked)}, nil)
	})
	return marked, err
}

// markBelow marks the children of a run that is marked, which the process did not come to that began to delete it.
func (s Deletions) markBelow(ctx context.Context, id uuid.UUID) error {
	event := newEvent(id, EventDeleted, Why{Reason: "its parent is being deleted"})
	return s.eachChild(ctx, s.pool, []uuid.UUID{id}, func(some []runBelow) error {
		some = slices.DeleteFunc(some, func(r runBelow) bool { return r.marked || !r.over() })
		for chunk := range slices.Chunk(idsOf(some), deletedRuns) {
			if _, err := s.mark(ctx, event, chunk); err != nil {
				return err
			}
		}
		return nil
	})
}

// A runBelow is a row of statesBelow or childrenOf. The latter has no more than ID, status and mark.
type runBelow struct {
	id               uuid.UUID
	status, typ, ext string
	marked           bool
	parent           uuid.UUID // of the first one, if it exists
}

func (r *runBelow) over() bool {
	return r.status == Completed || r.status == Failed || r.status == Cancelled
}

// readBelow reads a row of statesBelow.
func readBelow(row pgx.CollectableRow) (r runBelow, err error) {
	var parent *uuid.UUID
	err = row.Scan(pg.UUIDTo(&r.id), &r.status, &r.typ, &r.ext, &r.marked, &parent)
	r.parent = pg.Deref(parent)
	return r, err
}

func idsOf(runs []runBelow) []uuid.UUID {
	ids := make([]uuid.UUID, len(runs))
	for i, r := range runs {
		ids[i] = r.id
	}
	return ids
}

// What one statement of eachChild reads.
const (
	parentsRead  = 500
	childrenRead = 2000
)

// eachChild calls f with the children that belong to the parents, some at a time: however many there are, no statement
// reads many.
func (s Deletions) eachChild(ctx context.Context, db pg.DB, parents []uuid.UUID,
	f func(some []runBelow) error,
) (err error) {
	type parent struct{ id, after uuid.UUID } // after: the last child that was read
	open := make([]parent, len(parents))
	for i, id := range parents {
		open[i].id = id
	}
	for len(open) > 0 {
		now := slices.Clone(open[:min(len(open), parentsRead)])
		most := childrenRead / len(now)
		ids, after := make([]uuid.UUID, len(now)), make([]uuid.UUID, len(now))
		for i, p := range now {
			ids[i], after[i] = p.id, p.after
		}
		var found []childRow
		read := func(ctx context.Context) error {
			return pg.Ask(ctx, db, childrenOf, []any{s.namespace, array(ids), array(after), most},
				pg.Collect(&found, readChild))
		}
		if _, of := db.(pgx.Tx); of {
			err = read(ctx)
		} else {
			err = pg.Again(ctx, read)
		}
		if err != nil {
			return err
		}
		var some []runBelow
		counts := make([]int, len(now))
		for _, c := range found {
			counts[c.place-1]++
			now[c.place-1].after = c.id
			if c.belongs {
				some = append(some, c.runBelow)
			}
		}
		if err := f(some); err != nil {
			return err
		}
		place := 0
		now = slices.DeleteFunc(now, func(parent) bool { place++; return counts[place-1] < most })
		open = append(now, open[len(ids):]...)
	}
	return nil
}

// A childRow is a row of childrenOf.
type childRow struct {
	runBelow
	place   int // of the parent, from 1
	belongs bool
}

func readChild(row pgx.CollectableRow) (c childRow, err error) {
	return c, row.Scan(&c.place, pg.UUIDTo(&c.id), &c.status, &c.belongs, &c.marked)
}

// family returns the run and all below it that belong to it, without a lock. A run comes after its parent. The first
// one has no status. It returns errManyBelow if they are more than most.
func (s Deletions) family(ctx context.Context, db pg.DB, id uuid.UUID, most int) (runs []runBelow, err error) {
	runs = []runBelow{{id: id}}
	for level := runs; len(level) > 0 && err == nil; {
		var next []runBelow
		err = s.eachChild(ctx, db, idsOf(level), func(some []runBelow) error {
			next = append(next, some...)
			if len(runs)+len(next) > most {
				return errManyBelow
			}
			return nil
		})
		runs, level = append(runs, next...), next
	}
	return runs, err
}

// lockBelow locks the run and all below it that belong to it, and returns them, the run first; none if it does not
// exist, or was deleted while lockBelow waited for its lock: what is below it may have stayed. It looks for further
// children after locking them: see cancelAll.
//
// It returns errManyBelow, and locks none, if they are more than most.
func (s Deletions) lockBelow(ctx context.Context, tx pgx.Tx, id uuid.UUID, most int) (runs []runBelow, err error) {
	for range 10 {
		err := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
			family, err := s.family(ctx, tx, id, most)
			if err != nil {
				return err
			}
			runs = nil
			ids := array(idsOf(family))
			var beyond []uuid.UUID
			b := &pgx.Batch{}
			b.Queue(lockRuns, s.namespace, ids)
			b.Queue(childBeyond, s.namespace, ids)
			b.Queue(statesBelow, s.namespace, ids, id)
			err = pg.Exchange(ctx, tx, pg.Untimed, b, nil, pg.Collect(&beyond, pgx.RowTo[uuid.UUID]), pg.Collect(&runs,
				readBelow))
			if err == nil && len(beyond) > 0 {
				return errGrown
			}
			if len(runs) > 0 && runs[0].id != id {
				runs = nil
			}
			return err
		})
		if !errors.Is(err, errGrown) {
			return runs, err
		}
	}
	return nil, fmt.Errorf("the run kept starting children during the call: try again")
}

// deletable returns why the first of the runs cannot be deleted with the others; nil if it can.
func (s Deletions) deletable(ctx context.Context, tx pgx.Tx, runs []runBelow) error {
	for i, r := range runs {
		switch {
		case r.over():
		case i == 0:
			return ErrRunActive
		default:
			return &ActiveBelow{r.id}
		}
	}
	if runs[0].parent != uuid.Nil {
		return &NeededRun{Parent: runs[0].parent}
	}
	c, err := s.lockConsumer(ctx, tx, runs[0].id)
	if err == nil && c.last && !c.completed {
		err = &NeededRun{Consumer: c.name}
	}
	return err
}

// The condition does not name the event: otherwise the planner could use the index of all deletions.
const recordedDeletions = `
SELECT e.run_id, e.event = 'DELETED' FROM kagzi.run_events e WHERE e.run_id = ANY ($2::uuid[]) AND e.namespace_id = $1`

// writeDeletions writes the events of a deletion: one for the first run, and one for each run that goes with it. An
// earlier try, or another call, may have written some for runs that are marked.
func (s Deletions) writeDeletions(ctx context.Context, tx pgx.Tx, first RunEvent, runs []runBelow) error {
	recorded := map[uuid.UUID]bool{}
	if slices.ContainsFunc(runs, func(r runBelow) bool { return r.marked }) {
		err := pg.Ask(ctx, tx, recordedDeletions, []any{s.namespace, array(idsOf(runs))}, func(rows pgx.Rows) error {
			var id uuid.UUID
			var is bool
			_, err := pgx.ForEachRow(rows, []any{pg.UUIDTo(&id), &is}, func() error {
				recorded[id] = recorded[id] || is
				return nil
			})
			return err
		})
		if err != nil {
			return err
		}
	}
	var events []RunEvent
	for i, r := range runs {
		if recorded[r.id] {
			continue
		}
		e := first
		if i > 0 {
			e = newEvent(r.id, EventDeleted, first.Why)
			e.Other = first.RunID
		}
		e.ExternalID = r.ext
		e.Changes = []Changed{{"workflow", r.typ, ""}, {"status", r.status, ""}}
		if r.ext != "" {
			e.Changes = append(e.Changes, Changed{"id", r.ext, ""})
		}
		events = append(events, e)
	}
	return s.writeEvents(ctx, tx, events...)
}

// deleteMarked deletes runs that are marked, some at a time, parents before their children. If they have many rows, it
// first deletes the rows of each. It waits for a coordinator that does the same.
func (s Deletions) deleteMarked(ctx context.Context, ids []uuid.UUID) error {
	for chunk := range slices.Chunk(ids, deletedRuns) {
		var done bool
		for !done {
			err := s.change(ctx, nil, func(ctx context.Context, tx pgx.Tx) (err error) {
				done, err = s.deleteFew(ctx, tx, chunk)
				return err
			})
			if err == nil && !done {
				err = s.deleteRows(ctx, chunk)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// deleteFew deletes runs that are marked, unless they have many rows.
func (s Deletions) deleteFew(ctx context.Context, tx pgx.Tx, ids []uuid.UUID) (done bool, err error) {
	var rows int64
	b := &pgx.Batch{}
	b.Queue(lockRuns, s.namespace, array(ids))
	b.Queue(rowsOfRuns, s.namespace, array(ids), deletedRows)
	err = pg.Exchange(ctx, tx, pg.Untimed, b, nil, func(r pgx.Rows) (err error) {
		rows, err = pgx.CollectOneRow(r, pgx.RowTo[int64])
		return err
	})
	if err != nil || rows >= deletedRows {
		return false, err
	}
	return true, pg.Ask(ctx, tx, deleteRuns, []any{s.namespace, array(ids)}, nil)
}

// deleteRows deletes the rows of runs that are marked, in portions.
func (s Deletions) deleteRows(ctx context.Context, ids []uuid.UUID) error {
	for _, id := range ids {
		for more := 1; more > 0; {
			err := pg.Again(ctx, func(ctx context.Context) (err error) {
				more, err = s.pruneSteps(ctx, pg.Patient, id, deletedRows)
				return err
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

const markedRuns = `
SELECT q.run_id
FROM kagzi.workflow_runs q
WHERE q.run_id > $2 AND q.namespace_id = $1 AND q.waiting_on = '` +
	clause.BeingDeleted + `' AND q.finished_at IS NOT NULL
ORDER BY q.run_id
LIMIT $3`

// Marked returns the runs that are being deleted in several transactions, by ID: up to n with IDs after the one
// given.
func (s Deletions) Marked(ctx context.Context, after uuid.UUID, n int) (ids []uuid.UUID, err error) {
	err = pg.Do(ctx, func(ctx context.Context) error {
		return pg.Ask(ctx, s.pool, markedRuns, []any{s.namespace, after, n}, pg.Collect(&ids, pgx.RowTo[uuid.UUID]))
	})
	return ids, pg.Wrap("find runs that are being deleted", err)
}

// Finish deletes runs that Marked has returned. It does not wait for others that delete them, too: it
// leaves runs that they have locked, and returns an error that is Locked if they have locked rows of a run.
func (s Deletions) Finish(ctx context.Context, ids []uuid.UUID) error {
	err := s.withFree(ctx, ids, func(_ context.Context, _ pgx.Tx, free []uuid.UUID) error {
		ids = free
		return nil
	})
	if err != nil {
		return err
	}
	for _, id := range ids {
		if err := s.markBelow(ctx, id); err != nil {
			return pg.Wrap("finish deletions", err)
		}
		for more := 1; more > 0; {
			if more, err = s.PruneSteps(ctx, id, finishedRows); err != nil {
				return err
			}
		}
	}
	return s.withFree(ctx, ids, func(ctx context.Context, tx pgx.Tx, free []uuid.UUID) error {
		return pg.Ask(ctx, tx, deleteRuns, []any{s.namespace, array(free)}, nil)
	})
}

// withFree calls f in a transaction that has locked those of the runs that no other has locked.
func (s Deletions) withFree(ctx context.Context, ids []uuid.UUID,
	f func(ctx context.Context, tx pgx.Tx, free []uuid.UUID) error,
) error {
	err := pg.Do(ctx, func(ctx context.Context) error {
		return pg.Transact(ctx, s.pool, pg.Brief, func(tx pgx.Tx) error {
			free, err := s.lockFree(ctx, tx, ids)
			if err != nil {
				return err
			}
			return f(ctx, tx, free)
		})
	})
	return pg.Wrap("finish deletions", err)
}

const findDeleted = `
SELECT e.run_id
FROM kagzi.run_events e
WHERE e.external_id = $2 AND e.namespace_id = $1 AND e.event = 'DELETED'
ORDER BY e.occurred_at DESC
LIMIT 1`

// Find returns the run with this external ID that was deleted last.
func (s Deletions) Find(ctx context.Context, externalID string) (id uuid.UUID, err error) {
	err = pg.Do(ctx, func(ctx context.Context) (err error) {
		id, err = pg.AskOne[uuid.UUID](ctx, s.pool, findDeleted, s.namespace, externalID)
		if errors.Is(err, pgx.ErrNoRows) {
			err = ErrRunNotFound
		}
		return err
	})
	return id, pg.Wrap("find a deleted run", err)
}

const pruneDeletions = `
WITH locked AS MATERIALIZED (
	SELECT e.run_id, e.event_id
	FROM kagzi.run_events e
	WHERE e.namespace_id = $1 AND e.event = 'DELETED' AND e.occurred_at < now() - $2::bigint * interval '1 microsecond'
	ORDER BY e.occurred_at
	LIMIT $3
	FOR UPDATE SKIP LOCKED
), deleted AS (
	DELETE FROM kagzi.run_events e
	WHERE e.run_id = ANY (ARRAY (SELECT locked.run_id FROM locked))
		AND e.event_id = ANY (ARRAY (SELECT locked.event_id FROM locked)) AND e.namespace_id = $1
	RETURNING e.run_id
)
SELECT count(*) FROM deleted`

// PruneEvents deletes up to limit events of deletions that are older than keep, and returns how many it has deleted.
func (s Deletions) PruneEvents(ctx context.Context, keep time.Duration, limit int) (n int64, err error) {
	err = pg.Do(ctx, func(ctx context.Context) error {
		n, err = pg.AskOne[int64](ctx, s.pool, pruneDeletions, s.namespace, pg.Micros(keep), limit)
		return err
	})
	return n, pg.Wrap("prune the events of deletions", err)
}
