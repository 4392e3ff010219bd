package store

import "github.com/jackc/pgx/v5"

// The parts that the statements have which publish: publish, publishRecorded and publishRuns. The first takes the
// topics as $2.
const (
	lockTopics = `drawn AS MATERIALIZED (
	SELECT ` + lastPosition + ` AS position
), locked AS MATERIALIZED (
	SELECT pg_advisory_xact_lock_shared(` + topicLock + `t.topic), ` + positionLock + `)::text
	FROM drawn CROSS JOIN (SELECT DISTINCT x.topic FROM unnest($2::text[]) AS x (topic)) t
), moment AS MATERIALIZED (
	SELECT count(*) AS locks, clock_timestamp() AS now,
		coalesce((SELECT o.part FROM kagzi.event_parts o WHERE o.closed_at IS NULL), 0) AS part FROM locked
)`

	drawPosition = `CASE WHEN moment.locks > 0 THEN nextval('kagzi.event_positions'::regclass) END`

	// The primary key finds an event that the topic has already in the open partition, and a search in the others; an
	// ID that is not named was made for this call, and needs no search. While a partition has no statistics,
	// events_order looks as good as the primary key for the search, and each event would read its whole topic. An
	// expression for the topic keeps the planner from it.
	storeEvents = `stored AS (
	INSERT INTO kagzi.events (topic, event_id, namespace_id, part, position, title, payload, published_at)
	SELECT events.topic, events.event_id, $1, events.part, events.position, NULLIF(events.title, ''), events.payload,
		events.now
	FROM events
	WHERE CASE WHEN events.named THEN NOT EXISTS (
		SELECT FROM kagzi.events e WHERE e.event_id = events.event_id AND e.topic || '' = events.topic
			AND e.namespace_id = $1
	) ELSE true END
	ORDER BY events.topic, events.event_id
	ON CONFLICT DO NOTHING
	RETURNING topic
), subscribers AS MATERIALIZED (
	SELECT x.run_key, x.task_queue, x.consumer
	FROM (SELECT DISTINCT stored.topic FROM stored) t
	CROSS JOIN LATERAL (SELECT f.* FROM kagzi.subscriptions f WHERE f.topic = t.topic AND f.namespace_id = $1
		AND f.subscribed OFFSET 0) x
), ` + insertChanges + ` (SELECT subscribers.run_key, '' AS key_scope FROM subscribers) k
)
SELECT DISTINCT ON (subscribers.task_queue) subscribers.task_queue, subscribers.consumer FROM subscribers ORDER BY 1, 2`
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
