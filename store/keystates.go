package store

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/store/internal/clause"
)

// ---- housekeeping ----

// Deletes keys after ($2, $3) that say nothing: no time makes a run of them startable, they have no limits of their
// own and are not paused, their cursor was not raised in the last minute, and all tokens of a burst are there, as a new
// row has them. Whatever makes a run startable later leaves a change, and a claim then inserts the key again: it cannot
// do so before the delete has committed, because it takes the changes of a key only under the key's lock. Keys
// of runs that wait or hold a slot are left, so that they are not deleted and inserted all the time.
const pruneKeys = `
WITH batch AS MATERIALIZED (
	SELECT x.key_scope, x.run_key, x.available_at = 'infinity' AND x.consumers_at IS NULL AND x.weight IS NULL
		AND x.max_running IS NULL AND x.rate_interval IS NULL AND x.paused_at IS NULL
		AND x.waits_from < now() - interval '1 minute' AND (x.rate_at IS NULL OR x.rate_at < now()) AS idle
	FROM kagzi.run_keys x
	WHERE (x.key_scope, x.run_key) > ($2::text, $3::text) AND x.namespace_id = $1
	ORDER BY x.key_scope, x.run_key
	LIMIT $4
), locked AS MATERIALIZED (
	SELECT f.key_scope, f.run_key
	FROM batch
	CROSS JOIN LATERAL (
		SELECT x.key_scope, x.run_key
		FROM kagzi.run_keys x
		WHERE x.key_scope = batch.key_scope AND x.run_key = batch.run_key AND x.namespace_id = $1
			AND x.available_at = 'infinity' AND x.consumers_at IS NULL AND x.weight IS NULL AND x.max_running IS NULL
				AND x.rate_interval IS NULL AND x.paused_at IS NULL
			AND x.waits_from < now() - interval '1 minute'
			AND (x.rate_at IS NULL OR x.rate_at < now() - coalesce((
				SELECT (q.key_burst - 1) * q.key_interval FROM kagzi.queues q WHERE q.task_queue = batch.key_scope
					AND q.namespace_id = $1
			), 0) * interval '1 microsecond')
		FOR UPDATE SKIP LOCKED
	) f
	WHERE batch.idle AND (
		SELECT count(*) FROM (
			SELECT FROM kagzi.workflow_runs
			WHERE key_scope = batch.key_scope AND namespace_id = $1 AND run_key = batch.run_key AND ` + clause.Waits + `
			LIMIT 1
		) x
	) = 0 AND CASE WHEN batch.key_scope = '' THEN (
		SELECT count(*) FROM kagzi.workflow_runs WHERE run_key = batch.run_key AND namespace_id = $1 AND ` +
	clause.HoldsGroup + `
	) ELSE (
		SELECT count(*) FROM (
			SELECT FROM kagzi.workflow_runs
			WHERE task_queue = batch.key_scope AND namespace_id = $1 AND run_key = batch.run_key
				AND ` + clause.Holds + `
			LIMIT 1
		) x
	) END = 0
), deleted AS (
	DELETE FROM kagzi.run_keys x
	USING locked
	WHERE x.key_scope = locked.key_scope AND x.run_key = locked.run_key AND x.namespace_id = $1
)
SELECT (SELECT count(*) FROM batch), (SELECT count(*) FROM locked), coalesce(n.key_scope, ''), coalesce(n.run_key, '')
FROM (SELECT) one
LEFT JOIN (SELECT batch.key_scope, batch.run_key FROM batch ORDER BY 1 DESC, 2 DESC LIMIT 1) n ON true`

// A KeyCursor is a place among the keys of all queues.
type KeyCursor struct{ scope, key string }

// PruneKeys deletes idle keys among the n keys after the cursor. It returns how many it has deleted, and the next
// cursor, a zero one once it has read all.
func (s Limits) PruneKeys(ctx context.Context, after KeyCursor, n int) (deleted int, next KeyCursor, err error) {
	read := 0
	err = pg.Do(ctx, func(ctx context.Context) error {
		b := &pgx.Batch{}
		b.Queue(pruneKeys, s.namespace, after.scope, after.key, n)
		return pg.Exchange(ctx, s.pool, pg.Brief, b, func(rows pgx.Rows) error {
			_, err := pgx.ForEachRow(rows, []any{&read, &deleted, &next.scope, &next.key}, func() error { return nil })
			return err
		})
	})
	if err != nil || read < n {
		next = KeyCursor{}
	}
	return deleted, next, pg.Wrap("delete idle keys", err)
}
