package inspect

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/store/internal/clause"
)

// Each of these statements finds the next namespace by one search of an index.

// The namespaces of an index for lists. Its condition stands between these texts.
const (
	firstNamespace = `line (namespace_id) AS (
	(
		SELECT r.namespace_id COLLATE "POSIX"
		FROM kagzi.workflow_runs r
		WHERE `
	nextNamespace = `
		ORDER BY r.namespace_id COLLATE "POSIX"
		LIMIT 1
	)
	UNION ALL
	SELECT n.namespace_id
	FROM line
	CROSS JOIN LATERAL (
		SELECT r.namespace_id COLLATE "POSIX" AS namespace_id
		FROM kagzi.workflow_runs r
		WHERE `
	endNamespaces = ` AND r.namespace_id COLLATE "POSIX" > line.namespace_id
		ORDER BY r.namespace_id COLLATE "POSIX"
		LIMIT 1
	) n
)
SELECT line.namespace_id FROM line`

	completedNamespaces = `WITH RECURSIVE ` + firstNamespace + isCompleted + nextNamespace + isCompleted +
		endNamespaces
	stoppedNamespaces = `WITH RECURSIVE ` + firstNamespace + isStopped + nextNamespace + isStopped +
		endNamespaces
	waitingNamespaces = `WITH RECURSIVE ` + firstNamespace + isWaiting + nextNamespace + isWaiting +
		endNamespaces
)

// Namespaces with runs that are due or under way.
const claimableNamespaces = `
WITH RECURSIVE line (task_queue, namespace_id) AS (
	(
		SELECT r.task_queue, r.namespace_id
		FROM kagzi.workflow_runs r
		WHERE ` + clause.Claimable + `
		ORDER BY r.task_queue, r.namespace_id
		LIMIT 1
	)
	UNION ALL
	SELECT n.task_queue, n.namespace_id
	FROM line
	CROSS JOIN LATERAL (
		SELECT r.task_queue, r.namespace_id
		FROM kagzi.workflow_runs r
		WHERE ` + clause.Claimable + ` AND (r.task_queue, r.namespace_id) > (line.task_queue, line.namespace_id)
		ORDER BY r.task_queue, r.namespace_id
		LIMIT 1
	) n
)
SELECT DISTINCT line.namespace_id FROM line`

// Namespaces with schedules or live workers.
const otherNamespaces = `
SELECT s.namespace_id
FROM kagzi.schedules s
WHERE s.next_at >= '-infinity' AND NOT s.paused
UNION
SELECT w.namespace_id FROM kagzi.workers w WHERE w.status <> 'OFFLINE'`

// Namespaces returns the namespaces that have runs, schedules that are not paused, or live workers, in their order.
func Namespaces(ctx context.Context, pool *pgxpool.Pool) (all []string, err error) {
	err = pg.Do(ctx, func(ctx context.Context) error {
		if err := refuseCitus(ctx, pool); err != nil {
			return err
		}
		all = nil
		var reads []func(pgx.Rows) error
		b := &pgx.Batch{}
		for _, statement := range []string{
			completedNamespaces, stoppedNamespaces, waitingNamespaces, claimableNamespaces, otherNamespaces,
		} {
			b.Queue(statement)
			reads = append(reads, func(rows pgx.Rows) error {
				found, err := pgx.CollectRows(rows, pgx.RowTo[string])
				all = append(all, found...)
				return err
			})
		}
		return pg.Exchange(ctx, pool, pg.Listing, b, reads...)
	})
	slices.Sort(all)
	return slices.Compact(all), pg.Wrap("list namespaces", err)
}
