package store

import (
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
)

// Marks the failures that the next attempt of the run forgets, in the flush that ends this attempt. The status and the
// lease of the run's row show that the end was written. The end of a group is a MARKER, which keeps its deadline. A
// group that has not failed does not change.
const forgetFailures = `
UPDATE kagzi.step_runs s
SET forgotten_by = f.attempts
FROM (
	SELECT u.run_id, u.step_id, r.attempts
	FROM unnest($2::uuid[], $3::uuid[], $4::text[]) AS u (run_id, lease, step_id)
	CROSS JOIN LATERAL (
		SELECT q.attempts
		FROM kagzi.workflow_runs q
		WHERE q.run_id = u.run_id AND q.namespace_id = $1 AND q.lease = u.lease AND q.status IN ('PENDING', 'FAILED')
		OFFSET 0
	) r
	OFFSET 0
) f
WHERE s.run_id = f.run_id AND s.step_id = f.step_id AND s.namespace_id = $1
	AND s.status = 'FAILED' AND s.forgotten_by IS NULL AND (s.wake_at IS NULL OR s.step_kind = 'MARKER')
	AND s.step_kind IN ('FUNCTION', 'CHILD_WORKFLOW', 'PUBLISH', 'BRANCH', 'MARKER')`

// A forgotten is a step whose failure the next attempt of the run forgets.
type forgotten struct {
	run, lease uuid.UUID
	step       string
}

var forgetColumns = columnsOf(forgetFailures,
	uuids("run_id", func(f forgotten) uuid.UUID { return f.run }),
	uuids("lease", func(f forgotten) uuid.UUID { return f.lease }),
	texts("step_id", func(f forgotten) string { return f.step }),
)

// A NotFailed reports steps for which the run has no final failure.
type NotFailed struct{ Steps []string }

func (e *NotFailed) Error() string {
	return fmt.Sprintf("%q: no final failure of the run", e.Steps)
}

// The steps whose failures go with those named in $3: with the failure of a branch or a group those that caused it, and
// with each failure those of the branches and groups around it.
const failuresWith = `
WITH RECURSIVE forgotten (step_id, whole) AS (
	SELECT u.step_id COLLATE "C", true FROM unnest($3::text[]) AS u (step_id)
	UNION
	SELECT n.step_id, n.whole
	FROM forgotten
	CROSS JOIN LATERAL (
		SELECT regexp_replace(forgotten.step_id, '/[^/]*$', ''::text) COLLATE "C" AS step_id, false AS whole
			WHERE forgotten.step_id LIKE '%/%'
		UNION ALL
		SELECT c.step_id COLLATE "C", true
		FROM (
			SELECT a.step_id, a.step_kind, a.status, a.output
			FROM kagzi.step_runs a
			WHERE a.run_id = $2 AND a.namespace_id = $1 AND a.step_id = forgotten.step_id
			ORDER BY a.attempt_number DESC
			LIMIT 1
		) s
		CROSS JOIN LATERAL (
			SELECT j.step_id FROM jsonb_array_elements_text(CASE WHEN s.step_kind = 'BRANCH'
				THEN NULLIF(convert_from(s.output, 'UTF8'::name)::jsonb, 'null'::jsonb) END) AS j (step_id)
			UNION ALL
			SELECT b.step_id
			FROM kagzi.step_runs b
			WHERE b.run_id = $2 AND b.namespace_id = $1 AND b.step_kind = 'BRANCH' AND s.step_kind = 'MARKER'
				AND starts_with(b.step_id, s.step_id || '/') AND strpos(substr(b.step_id, length(s.step_id) + 2),
					'/') = 0
		) c
		WHERE forgotten.whole AND s.status = 'FAILED' AND s.step_kind IN ('BRANCH', 'MARKER')
	) n
)
SELECT DISTINCT forgotten.step_id FROM forgotten`

// Marks the failures of the steps $4, of a run that was just resumed. A group that timed out counts as a failure if $3
// names it.
const forgetNamed = `
UPDATE kagzi.step_runs s
SET forgotten_by = coalesce(s.forgotten_by, (SELECT r.attempts FROM kagzi.workflow_runs r WHERE r.run_id = $2
	AND r.namespace_id = $1))
WHERE s.run_id = $2 AND s.step_id = ANY ($4::text[]) AND s.namespace_id = $1
	AND (s.status = 'FAILED' AND (s.wake_at IS NULL OR s.step_kind = 'MARKER')
		OR s.status = 'COMPLETED' AND s.step_kind = 'MARKER' AND s.step_id = ANY ($3::text[])
			AND encode(s.output, 'escape') LIKE '%"timedOut":true%')
	AND s.step_kind IN ('FUNCTION', 'CHILD_WORKFLOW', 'PUBLISH', 'BRANCH', 'MARKER')
RETURNING s.step_id`

// forget makes the run's next attempt forget the failures of the steps given.
func (s Runs) forget(ctx context.Context, tx pgx.Tx, id uuid.UUID, steps []string) error {
	if len(steps) == 0 {
		return nil
	}
	var with, found []string
	err := pg.Ask(ctx, tx, failuresWith, []any{s.namespace, id, steps}, pg.Collect(&with, pgx.RowTo[string]))
	if err == nil {
		err = pg.Ask(ctx, tx, forgetNamed, []any{s.namespace, id, steps, with}, pg.Collect(&found, pgx.RowTo[string]))
	}
	if err != nil {
		return err
	}
	var missing []string
	for _, step := range steps {
		if !slices.Contains(found, step) {
			missing = append(missing, step)
		}
	}
	if missing != nil {
		return &NotFailed{missing}
	}
	return nil
}
