package inspect

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/store"
)

const listPauses = `
SELECT p.task_queue, p.workflow_type, '' AS run_key, false, p.parks, coalesce(p.reason, ''), coalesce(p.actor, ''),
	p.paused_at
FROM kagzi.pauses p
WHERE p.task_queue >= '' AND p.namespace_id = $1
UNION ALL
SELECT x.key_scope, '', x.run_key, x.key_scope = '', x.pause_parks, coalesce(x.pause_reason, ''),
	coalesce(x.pause_actor, ''), x.paused_at
FROM kagzi.run_keys x
WHERE x.paused_at IS NOT NULL AND x.key_scope >= '' AND x.namespace_id = $1
ORDER BY run_key, task_queue, workflow_type
LIMIT $2`

// Pauses returns up to limit pauses, those of keys last.
func (s *Lists) Pauses(ctx context.Context, db pg.DB, limit int) (out []store.Pause, err error) {
	err = pg.Do(ctx, func(ctx context.Context) error {
		return pg.Ask(ctx, db, listPauses, []any{s.namespace, limit},
			pg.Collect(&out, func(row pgx.CollectableRow) (p store.Pause, err error) {
				return p, row.Scan(&p.Queue, &p.Type, &p.Key.Name, &p.Key.Group, &p.Parks, &p.Reason,
					&p.Actor, pg.UTC(&p.At))
			}))
	})
	return out, pg.Wrap("list pauses", err)
}
