package inspect

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/store/internal/clause"
)

// Those of the keys $2, $3 that are not paused: each with its row x, and q with the limit that its queue sets.
const unpausedKeys = `FROM unnest($2::text[], $3::text[]) AS keys (key_scope, run_key)
	LEFT JOIN LATERAL (
		SELECT f.* FROM kagzi.run_keys f WHERE f.key_scope = keys.key_scope AND f.run_key = keys.run_key
			AND f.namespace_id = $1 OFFSET 0
	) x ON true
	LEFT JOIN LATERAL (
		SELECT u.key_max_running FROM kagzi.queues u WHERE u.task_queue = keys.key_scope
			AND u.namespace_id = $1 OFFSET 0
	) q ON true
	WHERE x.paused_at IS NULL`

// The statement finds the first keys of each line, and those of the oldest changes: these no claim has looked at. It
// finds the next line by one search of the index, but reads over the lines of other namespaces.
const keysToClaim = `
WITH RECURSIVE lines (key_scope) AS (
	(
		SELECT x.key_scope
		FROM kagzi.run_keys x
		WHERE x.available_at < 'infinity' AND x.namespace_id = $1 AND x.key_scope >= ''
		ORDER BY x.key_scope
		LIMIT 1
	)
	UNION ALL
	SELECT n.key_scope
	FROM lines
	CROSS JOIN LATERAL (
		SELECT x.key_scope
		FROM kagzi.run_keys x
		WHERE x.available_at < 'infinity' AND x.namespace_id = $1 AND x.key_scope > lines.key_scope
		ORDER BY x.key_scope
		LIMIT 1
	) n
), changed (key_scope) AS (
	(
		SELECT x.key_scope
		FROM kagzi.key_changes x
		WHERE x.namespace_id = $1 AND x.key_scope >= ''
		ORDER BY x.key_scope
		LIMIT 1
	)
	UNION ALL
	SELECT n.key_scope
	FROM changed
	CROSS JOIN LATERAL (
		SELECT x.key_scope
		FROM kagzi.key_changes x
		WHERE x.namespace_id = $1 AND x.key_scope > changed.key_scope
		ORDER BY x.key_scope
		LIMIT 1
	) n
)
SELECT f.key_scope, f.run_key
FROM (SELECT lines.key_scope FROM lines LIMIT $2) s
CROSS JOIN LATERAL (
	SELECT x.key_scope, x.run_key
	FROM kagzi.run_keys x
	WHERE x.key_scope = s.key_scope AND x.namespace_id = $1 AND x.available_at < 'infinity'
		AND x.available_at <= now()
	ORDER BY x.available_at
	LIMIT $3
) f
UNION
SELECT f.key_scope, f.run_key
FROM (SELECT changed.key_scope FROM changed LIMIT $2) s
CROSS JOIN LATERAL (
	SELECT x.key_scope, x.run_key
	FROM kagzi.key_changes x
	WHERE x.key_scope = s.key_scope AND x.namespace_id = $1
	ORDER BY x.change_id
	LIMIT $3
) f
LIMIT $2`

// Of its keys, the statement leaves out those that are paused, full, or wait for a token. Of each other it
// reads the first due runs, and leaves out those that are paused.
const dueKeys = `
WITH ` + clause.PausesOfRuns + `, unpaused AS MATERIALIZED (
	SELECT keys.key_scope, keys.run_key, CASE WHEN x.available_at <= now() THEN x.available_at END AS place,
		LEAST(CASE WHEN keys.key_scope = '' THEN 1 ELSE coalesce(x.max_running, q.key_max_running) END,
			$4::int) AS max_running
	` + unpausedKeys + ` AND coalesce(x.rate_at <= now(), true)
)
SELECT c.key_scope = '', c.run_key, d.task_queue, d.workflow_type, coalesce(d.version, 0), d.due, d.since,
	(extract(epoch FROM now() - d.since) * 1000000)::bigint,
	(extract(epoch FROM now() - GREATEST(d.since, c.place)) * 1000000)::bigint, d.counted = $5::bigint
FROM unpaused c
CROSS JOIN LATERAL (SELECT ` + clause.SlotsOfKey + ` AS running OFFSET 0) h
CROSS JOIN LATERAL (
	SELECT k.task_queue, k.workflow_type, k.version, count(*) AS due, min(k.available_at) AS since,
		max(k.place) AS counted
	FROM generate_series(1, 4) AS n (priority)
	CROSS JOIN LATERAL (
		SELECT q.*, row_number() OVER () AS place
		FROM (
			SELECT x.run_id, x.run_key, x.task_queue, x.workflow_type, x.version, x.available_at
			FROM kagzi.workflow_runs x
			WHERE x.key_scope = c.key_scope AND x.namespace_id = $1 AND x.run_key = c.run_key
				AND x.priority = n.priority
				AND ` + clause.Waits + ` AND x.outcome IS NULL AND x.available_at <= now()
			ORDER BY x.available_at
			LIMIT $5
		) q
	) k
	WHERE coalesce(h.running < c.max_running, true) AND ` + clause.Unstopped + `
	GROUP BY 1, 2, 3
) d
ORDER BY 1, 2, 3, 4, 5`

const (
	keysPerLine = 10 // keys that are read of each line, and of its changes
	runsPerKey  = 10 // due runs of one key and priority that are counted
)

// foundKeys are keys that one statement has found and another one is given.
type foundKeys struct{ scopes, names []string }

func (k *foundKeys) read(rows pgx.Rows) error {
	var scope, name string
	_, err := pgx.ForEachRow(rows, []any{&scope, &name}, func() error {
		k.add(scope, name)
		return nil
	})
	return err
}

func (k *foundKeys) add(scope, name string) {
	k.scopes, k.names = append(k.scopes, scope), append(k.names, name)
}

// DueKeys returns due runs that wait for a slot of their key although the key has one: of the first keys of each line,
// of at most a thousand keys. A key that stands in the line no longer when its runs are read is none of them.
func (s *Health) DueKeys(ctx context.Context, db pg.DB) (out []DueWork, err error) {
	err = pg.Do(ctx, func(ctx context.Context) error {
		out = nil
		var keys foundKeys
		err := pg.Ask(ctx, db, keysToClaim, []any{s.namespace, clause.MaxQueues, keysPerLine}, keys.read)
		if err != nil || keys.names == nil {
			return err
		}
		return pg.Ask(ctx, db, dueKeys, []any{s.namespace, keys.scopes, keys.names, maxSlotsCounted, runsPerKey},
			func(rows pgx.Rows) error {
				var w DueWork
				var v DueVersion
				var waiting, turn int64
				_, err := pgx.ForEachRow(rows, []any{
					&w.Key.Group, &w.Key.Name, &w.Queue, &w.Type, &v.Version, &v.Due,
					pg.UTC(&v.Since), &waiting, &turn, &w.More,
				}, func() error {
					v.Waiting, v.Turn = time.Duration(waiting)*time.Microsecond, time.Duration(turn)*time.Microsecond
					if n := len(out); n > 0 && out[n-1].Key == w.Key && out[n-1].Queue == w.Queue &&
						out[n-1].Type == w.Type {
						out[n-1].More, out[n-1].Versions = out[n-1].More || w.More, append(out[n-1].Versions, v)
						return nil
					}
					out = append(out, DueWork{w.Queue, w.Type, w.Key, w.More, []DueVersion{v}})
					return nil
				})
				return err
			})
	})
	return out, pg.Wrap("find due keys", err)
}

// A SlotHolder holds slots of a queue although no worker executes its runs.
type SlotHolder struct {
	Worker uuid.UUID // that is lost; zero: the runs wait, and keep their slots
	Runs   int
}

const idleSlots = `
WITH holders AS MATERIALIZED (
	SELECT CASE WHEN status = 'RUNNING' THEN locked_by END AS worker
	FROM kagzi.workflow_runs
	WHERE task_queue = $2 AND namespace_id = $1 AND ` + clause.Holds + `
	LIMIT $3
)
SELECT g.worker, g.runs
FROM (SELECT holders.worker, count(*) AS runs FROM holders GROUP BY 1) g
WHERE g.worker IS NULL OR (
	SELECT count(*)
	FROM kagzi.workers w
	WHERE w.worker_id = g.worker AND w.namespace_id = $1 AND w.status <> 'OFFLINE'
		AND w.heartbeat_at >= clock_timestamp() - w.stale_after
) = 0
ORDER BY g.worker IS NOT NULL, g.runs DESC
LIMIT 6`

// IdleSlots returns the runs that hold slots of the queue although no worker executes them, among the first thousands
// of slots.
func (s *Health) IdleSlots(ctx context.Context, db pg.DB, queue string) (out []SlotHolder, err error) {
	err = pg.Do(ctx, func(ctx context.Context) error {
		return pg.Ask(ctx, db, idleSlots, []any{s.namespace, queue, maxSlotsCounted},
			pg.Collect(&out, func(row pgx.CollectableRow) (h SlotHolder, err error) {
				return h, row.Scan(pg.UUIDTo(&h.Worker), &h.Runs)
			}))
	})
	return out, pg.Wrap("find idle slots", err)
}
