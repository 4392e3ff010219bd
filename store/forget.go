package store

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// A NotFailed reports steps that are no final failures of the run.
type NotFailed struct{ Steps []string }

func (e *NotFailed) Error() string {
	return fmt.Sprintf("%q: no final failure of the run", e.Steps)
}

// The failures named in $3, and those of the branches and groups around them, of a run that has just been resumed. A group
// that has timed out counts as a failure if it is named itself.
const forgetNamed = `
UPDATE kagzi.step_runs s
SET forgotten_by = coalesce(s.forgotten_by, f.attempts)
FROM (
	SELECT u.step_id, u.named, q.attempts
	FROM unnest($3::text[], $4::bool[]) AS u (step_id, named)
	CROSS JOIN (
		SELECT r.attempts FROM kagzi.workflow_runs r WHERE r.run_id = $2 AND r.namespace_id = $1 OFFSET 0
	) q
	OFFSET 0
) f
WHERE s.run_id = $2 AND s.step_id = f.step_id AND s.namespace_id = $1
	AND (s.status = 'FAILED' AND (s.wake_at IS NULL OR s.step_kind = 'MARKER')
		OR s.status = 'COMPLETED' AND s.step_kind = 'MARKER' AND f.named AND encode(s.output, 'escape') LIKE '%"timedOut":true%')
	AND s.step_kind IN ('FUNCTION', 'CHILD_WORKFLOW', 'BRANCH', 'MARKER')
RETURNING s.step_id`

// forget has the run's next attempt forget the failures of the steps given.
func (s *Store) forget(ctx context.Context, tx pgx.Tx, id uuid.UUID, steps []string) error {
	if len(steps) == 0 {
		return nil
	}
	all, named := slices.Clone(steps), make([]bool, len(steps))
	for i, step := range steps {
		named[i] = true
		for end := strings.LastIndexByte(step, '/'); end > 0; end = strings.LastIndexByte(step[:end], '/') {
			all, named = append(all, step[:end]), append(named, false)
		}
	}
	var found []string
	err := ask(ctx, tx, forgetNamed, []any{s.namespace, id, all, named}, func(rows pgx.Rows) (err error) {
		found, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	})
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
