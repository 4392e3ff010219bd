package store

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// A new attempt keeps the whole history except the failures that the end of the last attempt forgot, and those that the
// caller names. A quarantined run keeps its pending cancel. Children that ended while their parent was over did not wake it:
// the extra wake-up makes the next execution read its inbox. otherActive has checked for another active run with the external
// ID, because in a caller's transaction no statement may raise an error.
const resumeRun = `
WITH t AS MATERIALIZED (SELECT statement_timestamp() AS now), r AS (
UPDATE kagzi.workflow_runs r
SET status = 'PENDING', slot = NULL, available_at = t.now, paused_at = NULL, finished_at = NULL, lease = NULL, locked_by = NULL,
	recoveries = 0, recoveries_since = NULL, load_failures = 0, deadline_at = NULL, wakeups = r.wakeups + 1,
	attempts = r.attempts + CASE WHEN r.status = 'CANCELLED' THEN 1 ELSE 0 END,
	cancel_requested_at = CASE WHEN r.quarantined THEN r.cancel_requested_at END, quarantined = false,
	error_kind = NULL, error = NULL, waiting_on = NULL
FROM t
WHERE r.run_id = $2 AND r.namespace_id = $1 AND r.status IN ('FAILED', 'CANCELLED') AND r.waiting_on IS DISTINCT FROM '` + beingDeleted + `'
RETURNING r.task_queue, r.run_key, r.key_scope
), ` + insertChanges + ` r k WHERE k.run_key IS NOT NULL
)
SELECT r.task_queue FROM r`

// A run that has a final outcome continues only with the rest of its compensations. Those that failed are started again,
// unless their runs were resumed and completed.
const (
	compensated = `
SELECT q.outcome IS NOT NULL
FROM kagzi.workflow_runs q
WHERE q.run_id = $2 AND q.namespace_id = $1 AND q.status IN ('FAILED', 'CANCELLED')`

	retryCompensations = `
UPDATE kagzi.step_runs s
SET status = 'RUNNING', error_kind = NULL, error = NULL, finished_at = NULL, child_run_id = (
	SELECT c.run_id FROM kagzi.workflow_runs c WHERE c.run_id = s.child_run_id AND c.namespace_id = $1 AND c.status NOT IN ('FAILED', 'CANCELLED'))
WHERE s.run_id = $2 AND s.namespace_id = $1 AND s.step_kind = 'COMPENSATION' AND (s.status = 'FAILED' OR s.status = 'RUNNING' AND s.child_run_id IS NOT NULL)`

	// A run of a group holds its slot until it ends. The caller has locked the group, and no other run has the slot.
	resumeCompensating = `
WITH t AS MATERIALIZED (SELECT statement_timestamp() AS now)
UPDATE kagzi.workflow_runs r
SET status = 'SLEEPING', slot = CASE WHEN r.key_scope = '' THEN 2::smallint END, available_at = t.now, paused_at = NULL, wakeups_awaited = r.wakeups, finished_at = NULL, lease = NULL,
	error_kind = r.outcome ->> 'kind', error = r.outcome ->> 'error'
FROM t
WHERE r.run_id = $2 AND r.namespace_id = $1 AND r.status IN ('FAILED', 'CANCELLED') AND r.waiting_on IS DISTINCT FROM '` + beingDeleted + `'
RETURNING r.task_queue`
)

// Claims lock the row of the group before they count who has its slot: see claimKeys. If retention has deleted that
// row, the unique index of the groups' slots refuses a claim at the same time.
const (
	groupOfRun = `
SELECT q.run_key FROM kagzi.workflow_runs q WHERE q.run_id = $2 AND q.namespace_id = $1 AND q.key_scope = ''`

	lockGroup = `
SELECT x.run_key FROM kagzi.run_keys x WHERE x.key_scope = '' AND x.run_key = $2 AND x.namespace_id = $1 FOR UPDATE`

	holderOfGroup = `
SELECT run_id FROM kagzi.workflow_runs WHERE run_key = $2 AND namespace_id = $1 AND ` + holdsGroup + ` LIMIT 1`
)

// A GroupHeld reports that another run of the group has its slot.
type GroupHeld struct {
	Group string
	RunID uuid.UUID
}

func (e *GroupHeld) Error() string {
	return fmt.Sprintf("run %s of group %q is under way", e.RunID, e.Group)
}

// takeGroup lets tx give the slot of the run's group to the run: no other run gets it before tx ends. It returns a
// GroupHeld if one has it.
func (s *Store) takeGroup(ctx context.Context, tx pgx.Tx, id uuid.UUID) error {
	group, err := askOne[string](ctx, tx, groupOfRun, s.namespace, id)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err == nil {
		err = ask(ctx, tx, lockGroup, []any{s.namespace, group}, nil)
	}
	if err != nil {
		return err
	}
	holder, err := askOne[uuid.UUID](ctx, tx, holderOfGroup, s.namespace, group) // of its own: it sees what the last claim has committed
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
	FROM (SELECT q.external_id FROM kagzi.workflow_runs q WHERE q.run_id = $2 AND q.namespace_id = $1 AND q.status IN ('FAILED', 'CANCELLED') OFFSET 0) r
	CROSS JOIN LATERAL (
		SELECT FROM kagzi.workflow_runs o
		WHERE o.external_id = r.external_id AND o.namespace_id = $1 AND o.status IN ('PENDING', 'SLEEPING', 'RUNNING') AND o.run_id <> $2
		OFFSET 0
	) o)`

// A Resumed says how a resumed run continues.
type Resumed struct {
	Queue string         // of the run
	Ends  *CancelledRuns // the runs that its compensations changed, if it continues with these; nil if the run itself is due
}

// Resume makes a failed or cancelled run due, and writes an event that says why. It returns ErrRunActive if the run is not
// over, ErrRunFinished if it completed, ErrCompensated if its compensations have run, and ErrIDConflict if another active
// run has its external ID, or a later run of its consumer has begun, and a GroupHeld if it
// continues with compensations while another run of its group is under way. The new attempt forgets the failures of the
// steps given. Resume returns a NotFailed if one of them has no failure.
func (s *Store) Resume(ctx context.Context, tx pgx.Tx, id uuid.UUID, why Why, forget ...string) (out Resumed, err error) {
	event := newEvent(id, EventResumed, why)
	tried := false // an earlier try of our own transaction, whose answer may have been lost
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
		taken, err := askOne[bool](ctx, tx, otherActive, s.namespace, id)
		if err != nil {
			return err
		}
		if taken || consumer.name != "" && !consumer.last && !consumer.completed {
			return ErrIDConflict
		}
		tried = true
		err = pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
			if out, err = s.resume(ctx, tx, id); err != nil {
				return err
			}
			if err := s.forget(ctx, tx, id, forget); err != nil {
				return err
			}
			return s.writeEvents(ctx, tx, event)
		})
		if code(err) == "23505" { // another run has got the ID since otherActive
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
	return out, wrap("resume", err)
}

// resume returns pgx.ErrNoRows if the run cannot be resumed.
func (s *Store) resume(ctx context.Context, tx pgx.Tx, id uuid.UUID) (out Resumed, err error) {
	has, err := askOne[bool](ctx, tx, compensated, s.namespace, id)
	if err != nil {
		return out, err
	}
	if !has {
		out.Queue, err = askOne[string](ctx, tx, resumeRun, s.namespace, id)
		return out, err
	}
	all, err := s.registrations(ctx, tx, id)
	if err != nil {
		return out, err
	}
	if !slices.ContainsFunc(all, func(r registration) bool { return r.Status != Completed }) {
		return out, ErrCompensated
	}
	if err := s.takeGroup(ctx, tx, id); err != nil {
		return out, err
	}
	if out.Queue, err = askOne[string](ctx, tx, resumeCompensating, s.namespace, id); err != nil {
		return out, err
	}
	out.Ends = &CancelledRuns{}
	err = ask(ctx, tx, retryCompensations, []any{s.namespace, id}, nil)
	if err == nil {
		err = s.compensateLocked(ctx, tx, id, out.Ends)
	}
	return out, err
}
