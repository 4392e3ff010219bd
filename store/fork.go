package store

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/store/internal/clause"
)

// ErrStepNotFound reports that the run never reached the step.
var ErrStepNotFound = errors.New("run has no such step")

// A forkPoint is the moment at which the fork of a run begins to differ: when a step, or the first step below it, first
// began.
type forkPoint struct {
	run        uuid.UUID
	step       string
	at         time.Time
	runAttempt int   // of the run, at that moment
	position   int64 // of the step
	base       int64 // of the positions in the run's epoch: those of the fork, which is in its first, begin anew
}

// A group of branches that has no row began with its first step.
const findForkPoint = `
SELECT s.started_at, s.run_attempt, s.position
FROM kagzi.step_runs s
WHERE s.run_id = $2 AND s.namespace_id = $1 AND (s.step_id = $3 OR starts_with(s.step_id, $3 || '/'))
	AND s.started_at IS NOT NULL
ORDER BY s.started_at, s.position, s.attempt_number
LIMIT 1`

// A run with a final outcome may have run compensations, so its results no longer hold.
const forkedRun = `
SELECT r.outcome IS NOT NULL, r.epoch
FROM kagzi.workflow_runs r
WHERE r.run_id = $2 AND r.namespace_id = $1`

// forkPoint finds when the step first began.
func (s Runs) forkPoint(ctx context.Context, tx pgx.Tx, run uuid.UUID, step string) (*forkPoint, error) {
	var compensated bool
	var epoch int
	err := pg.AskRow(ctx, tx, forkedRun, []any{s.namespace, run}, &compensated, &epoch)
	if err != nil || compensated {
		return nil, errors.Join(err, ErrCompensated)
	}
	p := &forkPoint{run: run, step: step, base: FirstPosition(epoch)}
	err = pg.AskRow(ctx, tx, findForkPoint, []any{s.namespace, run, step}, &p.at, &p.runAttempt, &p.position)
	if errors.Is(err, pgx.ErrNoRows) {
		err = ErrStepNotFound
	}
	return p, err
}

// Copies, with all attempts, each step that had its result at the moment $5: it had completed or finally failed, and
// the attempt $6 of the run had not forgotten it. Later forgetting does not count. A sleep is over when its time has
// passed, whenever that was recorded. Operations that did not wait may all have the same time: those at a position
// behind $8 began later. See copyHistory for the rows that are not copied.
//
// Copied rows have the attempt 0: the old run executed them, and keeps their compensations. With $7, the compensations
// that were registered before position $8 are copied, too, and the copied rows count as the new run's own.
const copySteps = `
WITH steps AS MATERIALIZED (
	SELECT s.*, statement_timestamp() AS now, s.step_kind IN ('MARKER', 'BRANCH')
		AND starts_with($4, s.step_id || '/') AS around,
		coalesce(substring(s.output FROM 1 FOR 10) = '{"items":[', false) AS items,
		CASE WHEN s.step_kind = 'SLEEP' AND s.status = 'COMPLETED' THEN coalesce(s.wake_at, s.finished_at)
			ELSE s.finished_at END AS ended_at
	FROM kagzi.step_runs s
	WHERE s.run_id = $2 AND s.namespace_id = $1 AND s.step_id <> $4 AND NOT starts_with(s.step_id, $4 || '/')
		AND s.step_kind NOT IN ('VALUE', 'CHECKPOINT') AND ` + clause.OwnEpoch + `
), early AS (
	SELECT steps.*, max(steps.attempt_number) OVER (PARTITION BY steps.step_id) AS last
	FROM steps
	WHERE CASE WHEN steps.step_kind = 'COMPENSATION' THEN $7::bool AND steps.call IS NOT NULL
		AND (steps.position < $8 OR steps.started_at <= $5::timestamptz)
		ELSE steps.started_at <= $5::timestamptz OR steps.ended_at <= $5::timestamptz OR steps.around
			AND steps.attempt_number = 1 END
), timed AS (
	SELECT early.*, bool_or(early.attempt_number = early.last AND NOT early.around AND (early.ended_at < $5::timestamptz
		OR early.ended_at = $5::timestamptz AND early.position < $8) AND coalesce(early.forgotten_by >= $6, true)
		AND (early.status = 'COMPLETED' OR early.status = 'FAILED'
			AND (early.wake_at IS NULL OR early.step_kind = 'MARKER'))) OVER (PARTITION BY early.step_id) AS ended
	FROM early
), copied AS (
	SELECT timed.*, timed.step_kind = 'COMPENSATION' OR timed.ended AND (timed.step_id NOT LIKE '%` + cancelSuffix + `'
		OR bool_or(timed.ended AND timed.step_kind = 'CHILD_WORKFLOW')
			OVER (PARTITION BY regexp_replace(timed.step_id, '` + cancelSuffix + `$', ''::text))) AS settled
	FROM timed
)
INSERT INTO kagzi.step_runs (run_id, step_id, attempt_number, namespace_id, status, step_kind, run_attempt,
	first_attempt, call, input, output,
	error_kind, error, permanent, wake_at, child_run_id, position, worker_id, started_at, finished_at, sequence)
SELECT $3::uuid, copied.step_id, copied.attempt_number, $1, copied.status, copied.step_kind, CASE WHEN $7::bool
	AND copied.run_attempt > 0 THEN 1 ELSE 0 END, copied.first_attempt,
	copied.call, copied.input, copied.output,
	copied.error_kind, copied.error, copied.permanent, copied.wake_at, copied.child_run_id, copied.position - $9,
		copied.worker_id, copied.started_at, copied.finished_at, copied.sequence
FROM copied
WHERE copied.settled
UNION ALL
SELECT $3::uuid, copied.step_id, 1, $1, 'RUNNING', copied.step_kind, 1, 1, NULL, copied.input,
	convert_to(CASE WHEN copied.items
		THEN '{"items":'::text || (convert_from(copied.output, 'UTF8'::name)::json -> 'items')::text || '}'::text
		ELSE '{}' END, 'UTF8'::name),
	NULL, NULL, false, copied.now + (copied.wake_at - $5::timestamptz), NULL, copied.position - $9, copied.worker_id,
		copied.started_at, NULL, NULL
FROM copied
WHERE NOT copied.settled AND copied.step_kind = 'MARKER' AND copied.attempt_number = copied.last
	AND (copied.items OR copied.wake_at IS NOT NULL)`

// Copies the messages, but for those that an earlier epoch has read. Those that the copied steps consumed stay
// consumed, the others are unread. Answers that no copied step has read are left out: the fork asks anew.
const copySignals = `
INSERT INTO kagzi.signals (run_id, name, sequence, namespace_id, signal_id, payload, headers, payload_hash,
	expires_at, sent_by, received_at, consumed_by, consumed_at)
SELECT $3::uuid, g.name, g.sequence, $1, g.signal_id, g.payload, g.headers, g.payload_hash,
	g.expires_at, g.sent_by, g.received_at, c.step_id, CASE WHEN c.step_id IS NOT NULL THEN g.consumed_at END
FROM kagzi.signals g
LEFT JOIN LATERAL (
	SELECT s.step_id FROM kagzi.step_runs s
	WHERE s.run_id = $3::uuid AND s.namespace_id = $1 AND s.step_id = g.consumed_by AND s.sequence = g.sequence
	LIMIT 1
) c ON true
WHERE g.run_id = $2 AND g.namespace_id = $1 AND (c.step_id IS NOT NULL OR NOT starts_with(g.name, '##'))
	AND (coalesce(g.consumed_by, '') = '' OR EXISTS (
		SELECT FROM kagzi.step_runs s
		WHERE s.run_id = $2 AND s.namespace_id = $1 AND s.step_id = g.consumed_by AND s.sequence = g.sequence
	))
ORDER BY g.name, g.sequence`

// copyHistory copies the history that the old run had at the fork point to the run fork.
//
// The step itself is not copied, nor are the steps below it, nor the cancel of a child whose start is not copied. The
// branches around the step have not failed yet. Steps that were under way begin again. The groups around the step, and
// others that had begun, keep the items of Map and the rest of their Timeout, and forget later decisions. A group that
// has neither is not copied. A value is not copied either: the fork's code sets it again.
func (s Runs) copyHistory(ctx context.Context, tx pgx.Tx, p *forkPoint, fork uuid.UUID, compensations bool) error {
	if err := pg.Ask(ctx, tx, copySteps, []any{
		s.namespace, p.run, fork, p.step, p.at, p.runAttempt, compensations,
		p.position, p.base,
	}, nil); err != nil {
		return err
	}
	if err := pg.Ask(ctx, tx, copySignals, []any{s.namespace, p.run, fork}, nil); err != nil {
		return err
	}
	return s.copyMetadata(ctx, tx, fork)
}
