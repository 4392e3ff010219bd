package store

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/store/internal/clause"
)

// expiredOfAll is expiredRuns for all namespaces: each row that it reads is one that it visits.
const expiredOfAll = `
SELECT w.namespace_id, w.run_id, w.old, w.visited
FROM (
	SELECT v.namespace_id, v.run_id, v.old, row_number() OVER () AS number, count(*) OVER () AS visited
	FROM (
		SELECT q.namespace_id, q.run_id, q.status IN ('COMPLETED', 'FAILED', 'CANCELLED')
			AND (q.finished_at <= now() - interval '1 microsecond' *
			coalesce(($6::bigint[])[array_position($5::text[], q.workflow_type)], CASE q.status WHEN 'COMPLETED'
				THEN $3::bigint ELSE $4::bigint END)
			OR coalesce(q.waiting_on = '` + clause.BeingDeleted + `', false)) AS old
		FROM kagzi.workflow_runs q
		WHERE q.run_id > $1 AND q.run_id <= $2
		ORDER BY q.run_id
		LIMIT $7
	) v
) w
WHERE w.old OR w.number = w.visited`

// ExpiredOfAll visits the next n runs of r in all namespaces. It returns those that are past their retention, by their
// namespaces, and the rest of r, nil at its end. Runs that have the same ID in two namespaces may be passed over.
func ExpiredOfAll(ctx context.Context, pool *pgxpool.Pool, keep Retention, r Range, n int,
	most time.Duration,
) (old map[string][]uuid.UUID, rest *Range, err error) {
	args := append([]any{r.After, r.End}, append(keep.args(), n)...)
	limited := pg.Mode{Locks: most / 2, Statements: most}
	err = pg.Do(ctx, func(ctx context.Context) error {
		old, rest = map[string][]uuid.UUID{}, nil
		b := &pgx.Batch{}
		b.Queue(expiredOfAll, args...)
		return pg.Exchange(ctx, pool, limited, b, func(rows pgx.Rows) error {
			var namespace string
			var id uuid.UUID
			var isOld bool
			var visited int
			_, err := pgx.ForEachRow(rows, []any{&namespace, &id, &isOld, &visited}, func() error {
				if isOld {
					old[namespace] = append(old[namespace], id)
				}
				return nil
			})
			if visited == n {
				rest = &Range{After: id, End: r.End}
			}
			return err
		})
	})
	return old, rest, pg.Wrap("find expired runs", err)
}
