package inspect

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
)

const countSetAside = `
SELECT count(*) FROM kagzi.signals g WHERE g.run_id = $2 AND g.namespace_id = $1 AND g.set_aside_at IS NOT NULL
	AND g.consumed_by IS NULL`

// A WaitingMessage is a message that was set aside, of a run that is not over.
type WaitingMessage struct {
	RunID uuid.UUID
	Type  string // of the run
	Name  string
	ID    string
	At    time.Time // when it was set aside
}

// The inner LIMIT bounds the rows that the statement reads: messages of runs that are over stay until the runs are
// deleted.
const setAside = `
SELECT g.run_id, r.workflow_type, g.name, g.signal_id, g.set_aside_at
FROM (
	SELECT g.run_id, g.name, g.signal_id, g.set_aside_at
	FROM kagzi.signals g
	WHERE g.namespace_id = $1 AND g.set_aside_at IS NOT NULL
	ORDER BY g.run_id DESC, g.name DESC, g.sequence DESC
	LIMIT 10000
) g
CROSS JOIN LATERAL (
	SELECT q.workflow_type FROM kagzi.workflow_runs q
	WHERE q.run_id = g.run_id AND q.namespace_id = $1 AND q.status NOT IN ('COMPLETED', 'FAILED', 'CANCELLED')
	OFFSET 0
) r
LIMIT $2`

// SetAside returns messages that do not decode, those of the newest runs first.
func (s *Health) SetAside(ctx context.Context, db pg.DB, most int) (out []WaitingMessage, err error) {
	err = pg.Ask(ctx, db, setAside, []any{s.namespace, most},
		pg.Collect(&out, func(row pgx.CollectableRow) (m WaitingMessage, err error) {
			return m, row.Scan(&m.RunID, &m.Type, &m.Name, &m.ID, pg.UTC(&m.At))
		}))
	return out, pg.Wrap("find messages that do not decode", err)
}
