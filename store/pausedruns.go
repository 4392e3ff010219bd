package store

import (
	"cmp"
	"context"
	"errors"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
)

// A run that ends, or is about to end, is not paused: a cancel removes the pause, and so does the decision to run
// compensations.
const pauseRun = `
WITH clock AS MATERIALIZED (SELECT statement_timestamp() AS now)
UPDATE kagzi.workflow_runs r
SET paused_at = clock.now
FROM clock
WHERE r.run_id = $2 AND r.namespace_id = $1 AND r.status NOT IN ('COMPLETED', 'FAILED', 'CANCELLED')
	AND r.paused_at IS NULL AND r.cancel_requested_at IS NULL AND r.outcome IS NULL`

const stateForPause = `
SELECT r.status IN ('COMPLETED', 'FAILED', 'CANCELLED'), r.cancel_requested_at IS NOT NULL OR r.outcome IS NOT NULL
FROM kagzi.workflow_runs r
WHERE r.run_id = $2 AND r.namespace_id = $1`

// ErrRunEnding reports that the run was cancelled, or that its compensations are under way.
var ErrRunEnding = errors.New("run is about to end")

// PauseRun keeps the run from being claimed, and tells the worker that executes it to stop at the next step. It does
// nothing to a run that is paused already. It returns ErrRunFinished if the run is over, and ErrRunEnding if it is
// about to end.
func (s Pauses) PauseRun(ctx context.Context, tx pgx.Tx, id uuid.UUID, why Why) error {
	event := newEvent(id, EventPaused, why)
	return pg.Wrap("pause", s.change(ctx, tx, func(ctx context.Context, tx pgx.Tx) error {
		if err := s.lock(ctx, tx, id); err != nil {
			return err
		}
		did, err := pg.Changed(ctx, tx, pauseRun, s.namespace, id)
		if err != nil {
			return err
		}
		if did {
			return s.writeEvents(ctx, tx, event)
		}
		over, ending, err := s.stateForPause(ctx, tx, id)
		switch {
		case err != nil:
			return err
		case over:
			return ErrRunFinished
		case ending:
			return ErrRunEnding
		}
		return nil
	}))
}

// stateForPause returns whether a run is over, or about to end. It returns ErrRunNotFound.
func (s Pauses) stateForPause(ctx context.Context, tx pgx.Tx, id uuid.UUID) (over, ending bool, err error) {
	err = pg.AskRow(ctx, tx, stateForPause, []any{s.namespace, id}, &over, &ending)
	if errors.Is(err, pgx.ErrNoRows) {
		err = ErrRunNotFound
	}
	return over, ending, err
}

// The caller has locked the run. If its worker has died while it was paused, no coordinator has released it: then it is
// due now.
const unpauseRun = `
WITH active AS MATERIALIZED (
	SELECT r.run_id, r.task_queue, r.workflow_type, coalesce(r.version, 0) AS version, statement_timestamp() AS now,
		r.paused_at IS NOT NULL AS paused, r.status = 'RUNNING' AND (
			SELECT count(*) FROM kagzi.workers w WHERE w.worker_id = r.locked_by AND w.namespace_id = $1
				AND w.status <> 'OFFLINE'
		) = 0 AS lost
	FROM kagzi.workflow_runs r
	WHERE r.run_id = $2 AND r.namespace_id = $1 AND r.status NOT IN ('COMPLETED', 'FAILED', 'CANCELLED')
), unpaused AS (
	UPDATE kagzi.workflow_runs r
	SET paused_at = NULL, available_at = CASE WHEN active.lost THEN LEAST(r.available_at, active.now)
		ELSE r.available_at END
	FROM active
	WHERE active.paused AND r.run_id = active.run_id AND r.namespace_id = $1
	RETURNING r.run_key, r.key_scope
), ` + insertChanges + ` unpaused k WHERE k.run_key IS NOT NULL
)
SELECT active.run_id, active.task_queue, active.workflow_type, active.version, active.paused FROM active`

// UnpauseRun ends the run's own pause. It does nothing to a run that is not paused. It returns ErrRunFinished if the
// run is over, and ErrRunNotFound if there is none.
func (s Pauses) UnpauseRun(ctx context.Context, tx pgx.Tx, id uuid.UUID, why Why) (run DueRun, err error) {
	event := newEvent(id, EventUnpaused, why)
	err = s.change(ctx, tx, func(ctx context.Context, tx pgx.Tx) error {
		if err := s.lock(ctx, tx, id); err != nil {
			return err
		}
		var paused bool
		err := pg.AskRow(ctx, tx, unpauseRun, []any{s.namespace, id}, pg.UUIDTo(&run.RunID), &run.Queue, &run.Type,
			&run.Version, &paused)
		if errors.Is(err, pgx.ErrNoRows) {
			_, _, err = s.stateForPause(ctx, tx, id)
			return cmp.Or(err, ErrRunFinished)
		}
		if err == nil && paused {
			err = s.writeEvents(ctx, tx, event)
		}
		return err
	})
	return run, pg.Wrap("unpause", err)
}
