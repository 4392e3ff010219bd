package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Ways to end runs from outside.
const (
	undoFirst   = iota // what has registered compensations runs them first
	regardless         // whatever is registered
	parentEnded        // undoFirst, of children whose parents were not cancelled but ended
)

// What the error of a run begins with that was ended. Of those that are terminated the compensations did not run.
const (
	wasCancelled  = "run was cancelled"
	wasTerminated = "run was terminated"
)

// why adds the caller's reason, if there is one.
func why(text, reason string) string {
	if reason == "" {
		return text
	}
	return text + ": " + reason
}

// What a cancel takes along: the runs and all below them, each with its parent among them, but for what is detached. A
// run that was set aside may have children that still run; what is over otherwise has none.
const descendants = `
WITH RECURSIVE d AS (
	SELECT u.run_id, NULL::uuid AS parent_run_id FROM unnest($2::uuid[]) AS u (run_id)
	UNION
	SELECT c.run_id, d.run_id
	FROM d
	CROSS JOIN LATERAL (
		SELECT q.run_id
		FROM kagzi.workflow_runs q
		WHERE q.parent_run_id = d.run_id AND q.namespace_id = $1 AND NOT q.detached
			AND (q.status NOT IN ('COMPLETED', 'FAILED', 'CANCELLED') OR q.error_kind IN ('nondeterminism', 'crash_loop', 'bad_input', 'unreadable'))
		OFFSET 0
	) c
)
SELECT d.run_id, d.parent_run_id FROM d`

// Everything that may be written to, the parents of the first included, in order of run_id.
const lockFamily = `
SELECT r.run_id
FROM (
	SELECT u.run_id FROM unnest($2::uuid[]) AS u (run_id)
	UNION
	SELECT p.parent_run_id
	FROM unnest($3::uuid[]) AS u (run_id)
	CROSS JOIN LATERAL (
		SELECT q.parent_run_id FROM kagzi.workflow_runs q WHERE q.run_id = u.run_id AND q.namespace_id = $1 OFFSET 0
	) p
	ORDER BY 1
) u
CROSS JOIN LATERAL (
	SELECT q.run_id FROM kagzi.workflow_runs q WHERE q.run_id = u.run_id AND q.namespace_id = $1 FOR UPDATE
) r`

// A run that has registered compensations is marked and made due, to be undone by whoever executes it; the others end.
// The runs are locked: what they have registered is decided. The time is the clock's, not the transaction's: a step may
// have been recorded while the lock was waited for. A parent that ends itself needs no wake.
const cancelRuns = `
WITH l AS MATERIALIZED (
	SELECT r.run_id, r.parent_run_id, r.status, u.root, clock_timestamp() AS now, $3::bool AND (
			SELECT count(*) FROM (
				SELECT FROM kagzi.step_runs s
				WHERE s.run_id = r.run_id AND s.namespace_id = $1 AND s.step_kind = 'COMPENSATION'
				LIMIT 1
			) x
		) = 1 AS undo
	FROM unnest($2::uuid[], $5::bool[]) AS u (run_id, root)
	CROSS JOIN LATERAL (
		SELECT q.run_id, q.parent_run_id, q.status
		FROM kagzi.workflow_runs q
		WHERE q.run_id = u.run_id AND q.namespace_id = $1 AND q.status NOT IN ('COMPLETED', 'FAILED', 'CANCELLED', 'SCHEDULED', 'PAUSED')
		OFFSET 0
	) r
), w AS (
	UPDATE kagzi.workflow_runs r
	SET wakeups = r.wakeups + k.ended,
		available_at = CASE WHEN r.status = 'SLEEPING' AND r.wakeups + k.ended >= r.wakeups_awaited THEN LEAST(r.available_at, k.now) ELSE r.available_at END
	FROM (SELECT l.parent_run_id, count(*) AS ended, min(l.now) AS now FROM l WHERE l.parent_run_id IS NOT NULL AND NOT l.undo GROUP BY 1) k
	WHERE r.run_id = k.parent_run_id AND r.namespace_id = $1 AND r.status NOT IN ('COMPLETED', 'FAILED', 'CANCELLED')
		AND NOT EXISTS (SELECT FROM l WHERE l.run_id = r.run_id)
	RETURNING r.run_id, r.task_queue, r.workflow_type, r.version, r.status = 'SLEEPING' AND r.available_at <= k.now AS due
), d AS (
	UPDATE kagzi.workflow_runs r
	SET status = CASE WHEN l.undo THEN r.status ELSE 'CANCELLED' END,
		finished_at = CASE WHEN l.undo THEN NULL ELSE l.now END,
		available_at = CASE WHEN NOT l.undo THEN NULL WHEN r.status = 'RUNNING' THEN r.available_at ELSE LEAST(r.available_at, l.now) END,
		locked_by = CASE WHEN l.undo THEN r.locked_by END,
		waiting_on = CASE WHEN l.undo THEN r.waiting_on END,
		error_kind = CASE WHEN l.undo THEN r.error_kind ELSE 'cancelled' END,
		error = CASE WHEN l.undo THEN r.error WHEN l.root THEN $4 ELSE $6::text || ': its parent ' || l.parent_run_id::text || $7::text END,
		cancel_requested_at = CASE WHEN l.undo THEN coalesce(r.cancel_requested_at, l.now) ELSE r.cancel_requested_at END
	FROM l
	WHERE r.run_id = l.run_id AND r.namespace_id = $1
	RETURNING r.run_id, r.task_queue, r.workflow_type, r.version, l.undo, l.undo AND r.status <> 'RUNNING' AS due
)
SELECT d.run_id, true, d.undo, d.due, d.task_queue, d.workflow_type, coalesce(d.version, 0) FROM d
UNION ALL
SELECT w.run_id, false, false, w.due, w.task_queue, w.workflow_type, coalesce(w.version, 0) FROM w`

// CancelledRuns says what a cancel has done.
type CancelledRuns struct {
	Ended  []uuid.UUID // are CANCELLED
	Undone []uuid.UUID // will be, after their compensations
	Woken  []uuid.UUID // parents that learn of an end
	Due    []Woken     // runs that became due
}

func (c *CancelledRuns) Moved() []uuid.UUID { return slices.Concat(c.Ended, c.Undone, c.Woken) }

// Cancel ends an active run and its children, those that have registered compensations once they are undone, and wakes
// its parent. It is a transaction of its own, or a part of tx. A run that is cancelled already stays so; one that ended
// otherwise is ErrRunFinished. The reason is kept with the event.
func (s *Store) Cancel(ctx context.Context, tx pgx.Tx, id uuid.UUID, reason string) (*CancelledRuns, error) {
	out, err := s.cancelOne(ctx, tx, newEvent(id, EventCancelled, reason), undoFirst, why(wasCancelled, reason))
	return out, wrap("cancel", err)
}

// Terminate ends an active run and its children at once. It is Cancel otherwise.
func (s *Store) Terminate(ctx context.Context, tx pgx.Tx, id uuid.UUID, reason string) (*CancelledRuns, error) {
	out, err := s.cancelOne(ctx, tx, newEvent(id, EventTerminated, reason), regardless, why(wasTerminated, reason))
	return out, wrap("terminate", err)
}

func (s *Store) cancelOne(ctx context.Context, tx pgx.Tx, event RunEvent, how int, text string) (*CancelledRuns, error) {
	id := event.RunID
	out, tried := &CancelledRuns{}, false // a transaction of our own, whose answer may have been lost
	err := s.Safely(ctx, tx, func(ctx context.Context, tx pgx.Tx) error {
		now, err := s.cancelAll(ctx, tx, []uuid.UUID{id}, how, text)
		if err != nil {
			return err
		}
		if slices.Contains(now.Ended, id) || slices.Contains(now.Undone, id) {
			out, tried = now, true
			return s.noteEvents(ctx, tx, event)
		}
		status, err := s.status(ctx, tx, id)
		if err != nil || status == Cancelled {
			return err
		}
		if tried { // it took place, and undoing failed; or it did not, and the run has ended by itself since
			if done, err := s.noted(ctx, tx, event); done || err != nil {
				return err
			}
		}
		out = &CancelledRuns{}
		return ErrRunFinished
	})
	return out, err
}

// cancelAll cancels runs, with all below them, in tx. The locks come in a statement before the look, because a statement
// decides by the snapshot from before it waited. A family that has grown meanwhile is locked anew, from the first.
func (s *Store) cancelAll(ctx context.Context, tx pgx.Tx, ids []uuid.UUID, how int, text string) (out *CancelledRuns, err error) {
	for range 10 {
		err := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
			family, err := s.family(ctx, tx, ids)
			if err != nil {
				return err
			}
			if err := ask(ctx, tx, lockFamily, []any{s.namespace, array(family), array(ids)}, func(pgx.Rows) error { return nil }); err != nil {
				return err
			}
			now, err := s.family(ctx, tx, ids)
			if err != nil {
				return err
			}
			slices.SortFunc(family, compareIDs)
			for _, id := range now {
				if _, known := slices.BinarySearchFunc(family, id, compareIDs); !known {
					return errGrown // and let go of the locks
				}
			}
			out, err = s.cancelLocked(ctx, tx, family, ids, how, text)
			return err
		})
		if !errors.Is(err, errGrown) {
			return out, err
		}
	}
	return nil, fmt.Errorf("the run starts children as fast as they are found: try again")
}

var errGrown = errors.New("the family has grown")

// family returns the runs and all below them.
func (s *Store) family(ctx context.Context, tx pgx.Tx, ids []uuid.UUID) ([]uuid.UUID, error) {
	parents, err := s.parents(ctx, tx, ids)
	return slices.Collect(maps.Keys(parents)), err
}

// parents returns the runs and all below them, each with its parent among them, or with uuid.Nil.
func (s *Store) parents(ctx context.Context, tx pgx.Tx, ids []uuid.UUID) (map[uuid.UUID]uuid.UUID, error) {
	parents := make(map[uuid.UUID]uuid.UUID, len(ids))
	err := ask(ctx, tx, descendants, []any{s.namespace, array(ids)}, func(rows pgx.Rows) error {
		var id uuid.UUID
		var parent *uuid.UUID
		_, err := pgx.ForEachRow(rows, []any{&id, &parent}, func() error {
			if parent != nil || parents[id] == uuid.Nil { // one that was asked for may be below another
				parents[id] = deref(parent)
			}
			return nil
		})
		return err
	})
	return parents, err
}

// cancelLocked cancels the family of roots, whose error is text; that of the others names their parent.
func (s *Store) cancelLocked(ctx context.Context, tx pgx.Tx, family, roots []uuid.UUID, how int, text string) (*CancelledRuns, error) {
	out := &CancelledRuns{}
	isRoot := map[uuid.UUID]bool{}
	for _, id := range roots {
		isRoot[id] = true
	}
	marks := make([]bool, len(family))
	for i, id := range family {
		marks[i] = isRoot[id]
	}
	with, parent := wasCancelled, " was cancelled"
	switch how {
	case regardless:
		with, parent = wasTerminated, " was terminated"
	case parentEnded:
		parent = " ended"
	}
	err := ask(ctx, tx, cancelRuns, []any{s.namespace, array(family), how != regardless, text, marks, with, parent}, out.read)
	return out, err
}

// read adds what a statement that ends runs has done.
func (c *CancelledRuns) read(rows pgx.Rows) error {
	var w Woken
	var own, undo, due bool
	_, err := pgx.ForEachRow(rows, []any{&w.RunID, &own, &undo, &due, &w.Queue, &w.Type, &w.Version}, func() error {
		switch {
		case !own:
			c.Woken = append(c.Woken, w.RunID)
		case undo:
			c.Undone = append(c.Undone, w.RunID)
		default:
			c.Ended = append(c.Ended, w.RunID)
		}
		if due {
			c.Due = append(c.Due, w)
		}
		return nil
	})
	return err
}

const activeChildren = `
SELECT r.run_id
FROM kagzi.workflow_runs r
WHERE r.parent_run_id = $2 AND r.namespace_id = $1 AND NOT r.detached AND r.status NOT IN ('COMPLETED', 'FAILED', 'CANCELLED')
	AND r.cancel_requested_at IS NULL
ORDER BY r.run_id`

// The parent is locked with its children, and before them or after, as its ID has it.
const lockHeld = `
SELECT count(*) FROM (
	SELECT FROM kagzi.workflow_runs r
	WHERE r.run_id = $2 AND r.namespace_id = $1 AND r.lease = $3 AND r.status = 'RUNNING'
) x`

// CancelChildren cancels the children of a run that is about to end, a thousand at a time, if h still holds it. It
// returns ErrLeaseLost if not.
func (s *Store) CancelChildren(ctx context.Context, h Held) (*CancelledRuns, error) {
	all := &CancelledRuns{}
	for {
		var some *CancelledRuns
		err := s.change(ctx, nil, func(ctx context.Context, tx pgx.Tx) error {
			some = &CancelledRuns{}
			var ids []uuid.UUID
			err := ask(ctx, tx, activeChildren, []any{s.namespace, h.RunID}, func(rows pgx.Rows) (err error) {
				ids, err = pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
				return err
			})
			if err != nil || len(ids) == 0 {
				return err
			}
			ids = ids[:min(len(ids), 1000)]
			if some, err = s.cancelAll(ctx, tx, ids, undoFirst, fmt.Sprintf("%s: its parent %s ended", wasCancelled, h.RunID)); err != nil {
				return err
			}
			// The parent is locked by now: whoever claimed it since goes on with its children.
			holds, err := askOne[int](ctx, tx, lockHeld, s.namespace, h.RunID, h.Lease)
			if err == nil && holds == 0 {
				err = ErrLeaseLost
			}
			return err
		})
		if err != nil {
			return all, wrap("cancel children", err)
		}
		all.Ended, all.Undone, all.Due = append(all.Ended, some.Ended...), append(all.Undone, some.Undone...), append(all.Due, some.Due...)
		if len(some.Ended)+len(some.Undone) == 0 {
			return all, nil
		}
	}
}

// ErrLeaseLost reports that the caller does not hold the run any more.
var ErrLeaseLost = errors.New("lease lost")
