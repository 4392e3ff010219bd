package store

import "github.com/jackc/pgx/v5"

// The parts that the statements have which publish: publish, publishRecorded and publishRuns. The first takes the
// topics as $2.
const (
	lockTopics = `v AS MATERIALIZED (
	SELECT ` + lastPosition + ` AS position
), k AS MATERIALIZED (
	SELECT pg_advisory_xact_lock_shared(` + topicLock + `t.topic), ` + positionLock + `)
	FROM v CROSS JOIN (SELECT DISTINCT x.topic FROM unnest($2::text[]) AS x (topic)) t
), t AS MATERIALIZED (
	SELECT count(*) AS locks, clock_timestamp() AS now,
		coalesce((SELECT o.part FROM kagzi.event_parts o WHERE o.closed_at IS NULL), 0) AS part FROM k
)`

	drawPosition = `CASE WHEN t.locks > 0 THEN nextval('kagzi.event_positions'::regclass) END`

	storeEvents = `n AS (
	INSERT INTO kagzi.events (topic, event_id, namespace_id, part, position, title, payload, published_at)
	SELECT u.topic, u.event_id, $1, u.part, u.position, NULLIF(u.title, ''), u.payload, u.now
	FROM u
	WHERE CASE WHEN u.named THEN NOT EXISTS (
		SELECT FROM kagzi.events e WHERE e.event_id = u.event_id AND e.topic || '' = u.topic AND e.namespace_id = $1
	) ELSE true END
	ORDER BY u.topic, u.event_id
	ON CONFLICT DO NOTHING
	RETURNING topic
), s AS MATERIALIZED (
	SELECT x.run_key, x.task_queue, x.consumer
	FROM (SELECT DISTINCT n.topic FROM n) t
	CROSS JOIN LATERAL (SELECT f.* FROM kagzi.subscriptions f WHERE f.topic = t.topic AND f.namespace_id = $1
		AND f.subscribed OFFSET 0) x
), ` + insertChanges + ` (SELECT s.run_key, '' AS key_scope FROM s) k
)
SELECT DISTINCT ON (s.task_queue) s.task_queue, s.consumer FROM s ORDER BY 1, 2`
)

// readSubscribers appends the consumers that a statement which publishes returns, one of each queue, to due.
func readSubscribers(due *[]DueRun) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		var d DueRun
		_, err := pgx.ForEachRow(rows, []any{&d.Queue, &d.Type}, func() error {
			*due = append(*due, d)
			return nil
		})
		return err
	}
}
