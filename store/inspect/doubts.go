package inspect

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
)

// A Doubt is an attempt of a step that was called at most once, and of which it is not known what the call has done.
type Doubt struct {
	RunID      uuid.UUID
	ExternalID string
	Type       string // of the run
	Step       string
	Attempt    int
	Since      time.Time // the call
	ErrorKind  string
	Error      string // empty: the run was stopped during the call
	Over       bool   // the run is over, or the branch: nothing waits until the doubt is resolved
}

// Calls that are under way are in the index, too. The inner LIMIT bounds the rows that the statement reads.
const doubts = `
SELECT s.run_id, coalesce(r.external_id, ''), r.workflow_type,
	regexp_replace(s.step_id, E'^\x01[0-9]+/', ''::text), s.attempt_number, s.started_at, s.error_kind,
	coalesce(s.error, ''), s.permanent OR r.finished_at IS NOT NULL
FROM (
	SELECT t.run_id, t.step_id, t.attempt_number, t.started_at, t.error_kind, t.error, t.permanent
	FROM kagzi.step_runs t
	WHERE t.namespace_id = $1 AND t.status = 'RUNNING' AND t.error_kind IS NOT NULL
	ORDER BY t.error IS NULL, t.run_id DESC
	LIMIT 10000
) s
CROSS JOIN LATERAL (
	SELECT q.external_id, q.workflow_type, q.finished_at, q.status FROM kagzi.workflow_runs q
	WHERE q.run_id = s.run_id AND q.namespace_id = $1
	OFFSET 0
) r
WHERE s.error IS NOT NULL OR r.status <> 'RUNNING'
LIMIT $2`

// Doubts returns steps that are in doubt, those of the newest runs first.
func (s *Health) Doubts(ctx context.Context, db pg.DB, most int) (out []Doubt, err error) {
	err = pg.Do(ctx, func(ctx context.Context) error {
		out = nil
		return pg.Ask(ctx, db, doubts, []any{s.namespace, most},
			pg.Collect(&out, func(row pgx.CollectableRow) (d Doubt, err error) {
				return d, row.Scan(&d.RunID, &d.ExternalID, &d.Type, &d.Step, &d.Attempt, pg.UTC(&d.Since),
					&d.ErrorKind, &d.Error, &d.Over)
			}))
	})
	return out, pg.Wrap("find steps in doubt", err)
}
