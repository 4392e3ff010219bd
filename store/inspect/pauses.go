package inspect

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/store"
)

const listPauses = `
SELECT CASE WHEN p.run_key <> '' THEN p.key_scope ELSE p.task_queue END, p.workflow_type, p.run_key, p.run_key <> ''
	AND p.key_scope = '',
	p.percent, p.parks, coalesce(p.reason, ''), coalesce(p.actor, ''), p.paused_at
FROM kagzi.pauses p
WHERE p.namespace_id = $1
ORDER BY p.run_key, p.key_scope, p.task_queue, p.workflow_type
LIMIT $2`

// Pauses returns up to limit pauses, those of keys last.
func (s *Lists) Pauses(ctx context.Context, db pg.DB, limit int) (out []store.Pause, err error) {
	err = pg.Do(ctx, func(ctx context.Context) error {
		return pg.Ask(ctx, db, listPauses, []any{s.namespace, limit},
			pg.Collect(&out, func(row pgx.CollectableRow) (p store.Pause, err error) {
				return p, row.Scan(&p.Queue, &p.Type, &p.Key.Name, &p.Key.Group, &p.Percent, &p.Parks, &p.Reason,
					&p.Actor, pg.UTC(&p.At))
			}))
	})
	return out, pg.Wrap("list pauses", err)
}
