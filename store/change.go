package store

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// ErrRunFinished reports that the run is over.
var ErrRunFinished = errors.New("run is over")

// ErrRunActive reports that the run is not over.
var ErrRunActive = errors.New("run is not over")

// A change locks first, in order of run_id, the run and the parent it may wake.
const lockForChange = `
SELECT r.run_id
FROM kagzi.workflow_runs r
WHERE r.namespace_id = $1 AND r.run_id IN ($2, coalesce(
	(SELECT q.parent_run_id FROM kagzi.workflow_runs q WHERE q.run_id = $2 AND q.namespace_id = $1), $2))
ORDER BY r.run_id
FOR UPDATE`

// A run whose steps are being deleted is as good as gone.
const runStatus = `
SELECT r.status FROM kagzi.workflow_runs r
WHERE r.run_id = $2 AND r.namespace_id = $1 AND r.status NOT IN ('SCHEDULED', 'PAUSED') AND r.waiting_on IS DISTINCT FROM '` + beingDeleted + `'`

func (s *Store) lock(ctx context.Context, tx pgx.Tx, id uuid.UUID) error {
	return ask(ctx, tx, lockForChange, []any{s.namespace, id}, func(pgx.Rows) error { return nil })
}

func (s *Store) status(ctx context.Context, tx pgx.Tx, id uuid.UUID) (string, error) {
	status, err := askOne[string](ctx, tx, runStatus, s.namespace, id)
	if errors.Is(err, pgx.ErrNoRows) {
		err = ErrRunNotFound
	}
	return status, err
}

// change runs f in tx, or in a transaction of its own that is repeated while that may help.
func (s *Store) change(ctx context.Context, tx pgx.Tx, f func(context.Context, pgx.Tx) error) error {
	if tx != nil {
		tx, err := fit(ctx, tx)
		if err != nil {
			return err
		}
		return f(ctx, tx)
	}
	return again(ctx, func(ctx context.Context) error {
		return transact(ctx, s.pool, patient, func(tx pgx.Tx) error { return f(ctx, tx) })
	})
}

// again is do for changes that also bear repetition after a lost answer. A few times it waits anew for somebody's lock, too.
func again(ctx context.Context, f func(context.Context) error) error {
	var err error
	for range repeats {
		err = do(ctx, f)
		if t, ok := ctx.Deadline(); Locked(err) && (!ok || time.Until(t) > time.Second) && ctx.Err() == nil {
			continue // it was rolled back; with less time left the outcome of another try may not be known in time
		}
		if err == nil || !Away(err) || ctx.Err() != nil {
			return err
		}
	}
	return err
}

// A new attempt: final failures of steps belong to the attempts before, all else stays. So does the cancel of a run that was
// set aside before it could be undone. Children may have ended while
// their parent was over, and woke nobody: the wake-up makes the next execution look. The conflicting run of
// the same external ID is looked for first, because in a caller's transaction nothing may raise.
const resumeRun = `
WITH t AS MATERIALIZED (SELECT statement_timestamp() AS now)
UPDATE kagzi.workflow_runs r
SET status = 'PENDING', available_at = t.now, finished_at = NULL, lease = NULL, locked_by = NULL,
	recoveries = 0, recoveries_since = NULL, load_failures = 0, deadline_at = NULL, wakeups = r.wakeups + 1,
	attempts = r.attempts + CASE WHEN r.status = 'CANCELLED' THEN 1 ELSE 0 END,
	cancel_requested_at = CASE WHEN r.error_kind IN ('nondeterminism', 'crash_loop', 'bad_input', 'unreadable') THEN r.cancel_requested_at END,
	error_kind = NULL, error = NULL, waiting_on = NULL
FROM t
WHERE r.run_id = $2 AND r.namespace_id = $1 AND r.status IN ('FAILED', 'CANCELLED') AND r.waiting_on IS DISTINCT FROM '` + beingDeleted + `'
RETURNING r.task_queue`

// What was undone cannot go on. One that is not undone as it should be is resumed to be undone.
const undoneForGood = `
SELECT EXISTS (
	SELECT FROM kagzi.step_runs s
	WHERE s.run_id = $2 AND s.namespace_id = $1 AND s.step_kind = 'COMPENSATION' AND s.attempt_number > 0
) AND NOT EXISTS (
	SELECT
	FROM (SELECT q.status, q.error_kind FROM kagzi.workflow_runs q WHERE q.run_id = $2 AND q.namespace_id = $1 OFFSET 0) r
	WHERE r.status NOT IN ('CANCELLED', 'FAILED') OR r.status = 'FAILED' AND r.error_kind IN ('compensation', 'nondeterminism', 'crash_loop', 'bad_input', 'unreadable')
)`

const otherActive = `
SELECT EXISTS (
	SELECT
	FROM (SELECT q.external_id FROM kagzi.workflow_runs q WHERE q.run_id = $2 AND q.namespace_id = $1 AND q.status IN ('FAILED', 'CANCELLED') OFFSET 0) r
	CROSS JOIN LATERAL (
		SELECT FROM kagzi.workflow_runs o
		WHERE o.external_id = r.external_id AND o.namespace_id = $1 AND o.status IN ('PENDING', 'SLEEPING', 'RUNNING') AND o.run_id <> $2
		OFFSET 0
	) o)`

// Resume makes a failed or cancelled run due, notes that with the reason, and returns its queue. It returns ErrRunActive
// if the run is not over, ErrRunFinished if it completed, ErrCompensated if it was undone, and ErrIDConflict if another
// active run has its external ID.
func (s *Store) Resume(ctx context.Context, tx pgx.Tx, id uuid.UUID, reason string) (queue string, err error) {
	event := newEvent(id, EventResumed, reason)
	tried := false // a transaction of our own, whose answer may have been lost
	err = s.change(ctx, tx, func(ctx context.Context, tx pgx.Tx) error {
		if err := s.lock(ctx, tx, id); err != nil {
			return err
		}
		if tried {
			if done, err := s.noted(ctx, tx, event); done || err != nil {
				return err
			}
		}
		taken, err := askOne[bool](ctx, tx, otherActive, s.namespace, id)
		if err != nil {
			return err
		}
		if taken {
			return ErrIDConflict
		}
		switch undone, err := askOne[bool](ctx, tx, undoneForGood, s.namespace, id); {
		case err != nil:
			return err
		case undone:
			return ErrCompensated
		}
		defer func() { tried = true }()
		err = pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
			resumed, err := askOne[string](ctx, tx, resumeRun, s.namespace, id)
			if err == nil {
				queue = resumed
				err = s.noteEvents(ctx, tx, event)
			}
			return err
		})
		if code(err) == "23505" { // the ID was taken since the look
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
	return queue, wrap("resume", err)
}
