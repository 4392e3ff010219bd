package store

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/store/internal/clause"
)

// A new attempt keeps the whole history except the failures that the end of the last attempt forgot, and those that the
// caller names. A quarantined run keeps its pending cancel. Children that ended while their parent was over did not
// wake it: the extra wake-up makes the next execution read its inbox. otherActive has checked for another active run
// with the external ID, because in a caller's transaction no statement may raise an error.
const resumeRun = `
WITH clock AS MATERIALIZED (SELECT statement_timestamp() AS now), resumed AS (
UPDATE kagzi.workflow_runs r
SET status = 'PENDING', slot = NULL, available_at = clock.now, paused_at = NULL, finished_at = NULL, lease = NULL,
	locked_by = NULL,
	recoveries = 0, recoveries_since = NULL, load_failures = 0, deadline_at = NULL, start_by = NULL,
	wakeups = r.wakeups + 1,
	attempts = r.attempts + CASE WHEN r.status = 'CANCELLED' THEN 1 ELSE 0 END,
	cancel_requested_at = CASE WHEN r.quarantined THEN r.cancel_requested_at END, quarantined = false,
	error_kind = NULL, error = NULL, output = NULL, waiting_on = NULL
FROM clock
WHERE r.run_id = $2 AND r.namespace_id = $1 AND r.status IN ('FAILED', 'CANCELLED')
	AND r.waiting_on IS DISTINCT FROM '` + clause.BeingDeleted + `'
RETURNING r.task_queue, r.run_key, r.key_scope
), ` + insertChanges + ` resumed k WHERE k.run_key IS NOT NULL
)
SELECT resumed.task_queue FROM resumed`

// A run that has a final outcome continues only with the rest of its compensations. Those that failed are started
// again, unless their runs were resumed and completed.
const (
	compensated = `
SELECT q.outcome IS NOT NULL
FROM kagzi.workflow_runs q
WHERE q.run_id = $2 AND q.namespace_id = $1 AND q.status IN ('FAILED', 'CANCELLED')`

	retryCompensations = `
UPDATE kagzi.step_runs s
SET status = 'RUNNING', error_kind = NULL, error = NULL, finished_at = NULL, child_run_id = (
	SELECT c.run_id FROM kagzi.workflow_runs c WHERE c.run_id = s.child_run_id AND c.namespace_id = $1
		AND c.status NOT IN ('FAILED', 'CANCELLED'))
WHERE s.run_id = $2 AND s.namespace_id = $1 AND s.step_kind = 'COMPENSATION'
	AND (s.status = 'FAILED' OR s.status = 'RUNNING' AND s.child_run_id IS NOT NULL)`

	// With $3 the run holds a slot until it ends, which the caller has taken for it: no claim gives it one.
	resumeCompensating = `
WITH clock AS MATERIALIZED (SELECT statement_timestamp() AS now)
UPDATE kagzi.workflow_runs r
SET status = 'SLEEPING', slot = CASE WHEN $3::bool THEN 2::smallint END, available_at = clock.now, paused_at = NULL,
	wakeups_awaited = r.wakeups, finished_at = NULL, lease = NULL,
	error_kind = NULLIF(r.outcome ->> 'kind', ''), error = r.outcome ->> 'error'
FROM clock
WHERE r.run_id = $2 AND r.namespace_id = $1 AND r.status IN ('FAILED', 'CANCELLED')
	AND r.waiting_on IS DISTINCT FROM '` + clause.BeingDeleted + `'
RETURNING r.task_queue`
)

// Claims lock the row of the group before they count who has its slot: see claimKeys. If retention has deleted that
// row, the unique index of the groups' slots refuses a claim at the same time.
const (
	slotOfRun = `
SELECT q.task_queue, coalesce(q.run_key, ''), coalesce(q.key_scope, ''), coalesce(c.held, false)
FROM kagzi.workflow_runs q
LEFT JOIN LATERAL (
	SELECT x.held FROM kagzi.queues x WHERE x.task_queue = q.task_queue AND x.namespace_id = $1 OFFSET 0
) c ON true
WHERE q.run_id = $2 AND q.namespace_id = $1`

	// Locks the key, and lets claims find the run $4 among those that hold its slots.
	lowerSlots = `
UPDATE kagzi.run_keys x
SET slots_from = LEAST(x.slots_from, $4::uuid)
WHERE x.key_scope = $2 AND x.run_key = $3 AND x.namespace_id = $1`

	takenOfKey = `
SELECT coalesce(c.max_running, 0), ` + clause.SlotsOfKey + `
FROM (
	SELECT $2::text AS key_scope, $3::text AS run_key, coalesce(
		(SELECT x.max_running FROM kagzi.run_keys x WHERE x.key_scope = $2 AND x.run_key = $3 AND x.namespace_id = $1),
		(SELECT q.key_max_running FROM kagzi.queues q WHERE q.task_queue = $2 AND q.namespace_id = $1)) AS max_running
	OFFSET 0
) c`

	holderOfGroup = `
SELECT run_id FROM kagzi.workflow_runs WHERE run_key = $2 AND namespace_id = $1 AND ` + clause.HoldsGroup + ` LIMIT 1`
)

// A GroupHeld reports that another run of the group has its slot.
type GroupHeld struct {
	Group string
	RunID uuid.UUID
}

func (e *GroupHeld) Error() string {
	return fmt.Sprintf("run %s of group %q is under way", e.RunID, e.Group)
}

// takeSlots lets tx give the run the slots that it would hold until it ends, if it holds any: of its group, its key and
// its queue. No other run gets them before tx ends. It returns a GroupHeld or a QueueFull if they are taken, and
// ErrPlaceInTx as takePlace does.
func (s Runs) takeSlots(ctx context.Context, tx pgx.Tx, id uuid.UUID, callers bool) (holds bool, err error) {
	var queue, key, scope string
	if err := pg.AskRow(ctx, tx, slotOfRun, []any{s.namespace, id}, &queue, &key, &scope, &holds); err != nil {
		return false, err
	}
	group := key != "" && scope == groupScope
	if !group && !holds {
		return false, nil
	}
	// A queue may get a limit before a caller's tx ends: then claims would not find the slot.
	holds = key != "" || !callers
	if group {
		err = s.takeGroup(ctx, tx, key)
	} else if key != "" {
		err = s.takeKey(ctx, tx, queue, key, id)
	}
	if err == nil {
		err = s.takePlace(ctx, tx, queue, id, callers)
	}
	return holds, err
}

// takeKey is takeSlots for a key of a queue. It returns a keyWithoutRow if there is nothing to lock.
func (s Runs) takeKey(ctx context.Context, tx pgx.Tx, queue, key string, id uuid.UUID) error {
	locked, err := pg.Changed(ctx, tx, lowerSlots, s.namespace, queue, key, id)
	if err == nil && !locked {
		err = &keyWithoutRow{queue, []string{key}}
	}
	if err != nil {
		return err
	}
	var most, taken int // of a further statement: it sees what the last claim has committed
	err = pg.AskRow(ctx, tx, takenOfKey, []any{s.namespace, queue, key}, &most, &taken)
	if err == nil && most > 0 && taken >= most {
		err = &QueueFull{queue, key, most}
	}
	return err
}

// takeGroup is takeSlots for a group.
func (s Runs) takeGroup(ctx context.Context, tx pgx.Tx, group string) error {
	if err := pg.Ask(ctx, tx, lockKeyRows, []any{s.namespace, groupScope, []string{group}}, nil); err != nil {
		return err
	}
	// of its own: it sees what the last claim has committed
	holder, err := pg.AskOne[uuid.UUID](ctx, tx, holderOfGroup, s.namespace, group)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil
	case err == nil:
		err = &GroupHeld{group, holder}
	}
	return err
}

const otherActive = `
SELECT EXISTS (
	SELECT
	FROM (SELECT q.external_id FROM kagzi.workflow_runs q WHERE q.run_id = $2 AND q.namespace_id = $1
		AND q.status IN ('FAILED', 'CANCELLED') OFFSET 0) r
	CROSS JOIN LATERAL (
		SELECT FROM kagzi.workflow_runs o
		WHERE o.external_id = r.external_id AND o.namespace_id = $1 AND o.status IN ('PENDING', 'SLEEPING', 'RUNNING')
			AND o.run_id <> $2
		OFFSET 0
	) o)`

// A Resumed says how a resumed run continues.
type Resumed struct {
	Queue string // of the run
	// the runs that its compensations changed, if it continues with these; nil if the run itself is due
	Ends *CancelledRuns
}

// Resume makes a failed or cancelled run due, and writes an event that says why. It returns ErrRunActive if the run is
// not over, ErrRunFinished if it completed, ErrCompensated if its compensations have run, and ErrIDConflict if another
// active run has its external ID, or a later run of its consumer has begun, and a GroupHeld or a QueueFull if it
// continues with compensations while other runs have the slots that it would hold: of its group, or in a queue whose
// runs hold theirs until they end. The new attempt forgets the failures of the steps given. Resume returns a NotFailed
// if one of them has no failure.
func (s Runs) Resume(ctx context.Context, tx pgx.Tx, id uuid.UUID, why Why,
	forget ...string,
) (out Resumed, err error) {
	event := newEvent(id, EventResumed, why)
	err = s.withKeyRow(ctx, func() (err error) {
		out, err = s.resumeOnce(ctx, tx, event, forget)
		return err
	})
	return out, pg.Wrap("resume", err)
}

// resumeOnce is Resume if the run's key has a row. Else it changes nothing, and returns a keyWithoutRow.
func (s Runs) resumeOnce(ctx context.Context, tx pgx.Tx, event RunEvent, forget []string,
) (out Resumed, err error) {
	id := event.RunID
	tried, callers := false, tx != nil // tried: an earlier try of our own transaction, whose answer may have been lost
	err = s.change(ctx, tx, func(ctx context.Context, tx pgx.Tx) error {
		if err := s.lock(ctx, tx, id); err != nil {
			return err
		}
		if tried {
			if done, err := s.hasEvent(ctx, tx, event); done || err != nil {
				return err
			}
		}
		consumer, err := s.lockConsumer(ctx, tx, id)
		if err != nil {
			return err
		}
		taken, err := pg.AskOne[bool](ctx, tx, otherActive, s.namespace, id)
		if err != nil {
			return err
		}
		if taken || consumer.name != "" && !consumer.last && !consumer.completed {
			return ErrIDConflict
		}
		tried = true
		err = pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
			if out, err = s.resume(ctx, tx, id, callers); err != nil {
				return err
			}
			if err := s.forget(ctx, tx, id, forget); err != nil {
				return err
			}
			return s.writeEvents(ctx, tx, event)
		})
		if pg.Code(err) == "23505" { // another run has got the ID since otherActive
			return ErrIDConflict
		}
		if !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		switch status, err := s.status(ctx, tx, id); {
		case err != nil:
			return err
		case status == Completed:
			return ErrRunFinished
		default:
			return ErrRunActive
		}
	})
	return out, err
}

// resume returns pgx.ErrNoRows if the run cannot be resumed.
func (s Runs) resume(ctx context.Context, tx pgx.Tx, id uuid.UUID, callers bool) (out Resumed, err error) {
	has, err := pg.AskOne[bool](ctx, tx, compensated, s.namespace, id)
	if err != nil {
		return out, err
	}
	if !has {
		if err = pg.Ask(ctx, tx, logLastAttempt, []any{s.namespace, id, newID(), mostOfError}, nil); err != nil {
			return out, err
		}
		out.Queue, err = pg.AskOne[string](ctx, tx, resumeRun, s.namespace, id)
		return out, err
	}
	all, err := Ends(s).registrations(ctx, tx, id)
	if err != nil {
		return out, err
	}
	if !slices.ContainsFunc(all, func(r registration) bool { return r.Status != Completed }) {
		return out, ErrCompensated
	}
	holds, err := s.takeSlots(ctx, tx, id, callers)
	if err != nil {
		return out, err
	}
	if out.Queue, err = pg.AskOne[string](ctx, tx, resumeCompensating, s.namespace, id, holds); err != nil {
		return out, err
	}
	out.Ends = &CancelledRuns{}
	err = pg.Ask(ctx, tx, retryCompensations, []any{s.namespace, id}, nil)
	if err == nil {
		err = Ends(s).compensateLocked(ctx, tx, id, out.Ends)
	}
	return out, err
}
