package inspect

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/pg"
)

const pausedRuns = `
SELECT count(*), min(r.paused_at), (SELECT q.run_id FROM kagzi.workflow_runs q WHERE q.namespace_id = $1
	AND q.paused_at IS NOT NULL AND q.finished_at IS NULL ORDER BY q.paused_at LIMIT 1)
FROM (
	SELECT q.paused_at FROM kagzi.workflow_runs q WHERE q.namespace_id = $1 AND q.paused_at IS NOT NULL
		AND q.finished_at IS NULL ORDER BY q.paused_at LIMIT $2
) r`

// PausedRuns returns how many runs are paused themselves, counting at most limit, and the one that has been so for the
// longest time.
func (s *Health) PausedRuns(ctx context.Context, db pg.DB, limit int) (n int, since time.Time, first uuid.UUID,
	err error,
) {
	err = pg.Do(ctx, func(ctx context.Context) error {
		return pg.AskRow(ctx, db, pausedRuns, []any{s.namespace, limit}, &n, pg.UTC(&since), pg.UUIDTo(&first))
	})
	return n, since, first, pg.Wrap("find paused runs", err)
}
