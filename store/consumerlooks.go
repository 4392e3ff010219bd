package store

import (
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
)

// unsettledPause is after which time a claim looks again at a consumer's key, because there are events behind a
// publisher who has not committed yet. A commit writes a change; a rollback writes nothing. The longer the transaction
// has taken, the longer the pause is, up to five seconds: a topic may have many consumers.
const unsettledPause = 200 * time.Millisecond

// startConsumers starts runs of the consumers of the keys $2, which the claim has locked. It starts one for each
// consumer (due) that has no active run, whose time has come, or for which there is a new event. $3 are their IDs.
// Only events count that readers can see ($4 to $6 are the answer of publishers). The run's turn among the runs of its
// key is that of its oldest event.
//
// A run that ended without success is followed by another one after least_wake, or pauses the key (stops).
//
// It leaves out the consumers $8, or with $9 all others: see FindRefused. doc_consumers.go explains consumers that it
// leaves out because they are locked, and looks (consumers_at).
const startConsumers = `
WITH states AS MATERIALIZED (
	SELECT f.*, f.failed AND f.pause_on_failure AND NOT f.noticed AND NOT f.left_out AS stops,
		LEAST(f.wake_at, CASE WHEN f.gone OR f.failed AND f.pause_on_failure THEN f.now WHEN f.ended
			THEN f.finished_at + f.least_wake END) AS due_at
	FROM (
		SELECT x.*, x.consumer AS workflow_type, ''::text AS key_scope, false AS publishes, NULL::int AS version,
			NULL::interval AS execution_timeout, NULL::interval AS start_within, NULL::jsonb AS headers,
			(x.consumer = ANY ($8::text[])) <> $9::bool AS left_out, now() AS now, r.finished_at,
			r.run_id IS NOT NULL AND r.status NOT IN ('COMPLETED', 'FAILED', 'CANCELLED') AS active,
			x.run_id IS NOT NULL AND r.run_id IS NULL AND coalesce(x.noticed_at < 'infinity', true) AS gone,
				r.run_key <> x.run_key AS moved, coalesce(r.status IN ('FAILED', 'CANCELLED'), false) AS ended,
				coalesce(r.status = 'FAILED', false) AS failed, coalesce(x.noticed_at = r.finished_at,
				false) AS noticed, (
				SELECT k.paused_at FROM kagzi.run_keys k WHERE k.key_scope = '' AND k.run_key = x.run_key
					AND k.namespace_id = $1 ORDER BY k.version DESC LIMIT 1
			) IS NOT NULL AS paused
		FROM unnest($2::text[]) AS u (run_key)
		CROSS JOIN LATERAL (SELECT f.* FROM kagzi.consumers f WHERE f.run_key = u.run_key
			AND f.namespace_id = $1 OFFSET 0) x
		LEFT JOIN LATERAL (SELECT f.run_id, f.run_key, f.status, f.finished_at FROM kagzi.workflow_runs f
			WHERE f.run_id = x.run_id AND f.namespace_id = $1 OFFSET 0) r ON true
	) f
), unread AS MATERIALIZED (
	SELECT states.consumer, s.topic, f.published_at, f.position <= l.settled AS settled, l.settled AS look_to
	FROM states
	CROSS JOIN LATERAL (
		SELECT x.topic, x.looked_at FROM kagzi.subscriptions x WHERE x.consumer = states.consumer
			AND x.namespace_id = $1 AND x.subscribed OFFSET 0
	) s
	CROSS JOIN LATERAL (
		SELECT $4::bigint - coalesce(max(($4::bigint - p.object) & 4294967295) FILTER (WHERE ($4::bigint - p.object) &
			4294967295 < 15::bigint << 28), 0) AS settled
		FROM unnest($5::bigint[], $6::bigint[]) AS p (class, object)
		WHERE p.class = ` + topicLock + `s.topic)::bigint & 4294967295
	) l
	LEFT JOIN LATERAL (
		SELECT x.position, x.published_at FROM kagzi.events x
		WHERE x.topic = s.topic AND x.namespace_id = $1 AND x.position > s.looked_at
		ORDER BY x.position
		LIMIT 1
	) f ON true
	WHERE NOT states.active AND NOT states.stops AND NOT states.paused AND NOT states.left_out
), due AS MATERIALIZED (
	SELECT states.*, g.since, g.unsettled, ($3::uuid[])[row_number() OVER (ORDER BY g.since, states.consumer)] AS new_id
	FROM states
	CROSS JOIN LATERAL (
		SELECT LEAST(min(unread.published_at) FILTER (WHERE unread.settled), CASE WHEN states.due_at <= states.now
			THEN states.due_at END) AS since, min(unread.published_at) FILTER (WHERE NOT unread.settled) AS unsettled
		FROM unread
		WHERE unread.consumer = states.consumer
	) g
	WHERE NOT states.active AND NOT states.stops AND NOT states.paused AND NOT states.left_out
), locked AS MATERIALIZED (
	SELECT f.consumer
	FROM (SELECT due.consumer FROM due WHERE due.since IS NOT NULL AND due.new_id IS NOT NULL
		UNION ALL SELECT states.consumer FROM states WHERE states.stops) u
	CROSS JOIN LATERAL (
		SELECT x.consumer FROM kagzi.consumers x WHERE x.consumer = u.consumer AND x.namespace_id = $1
		FOR UPDATE SKIP LOCKED
	) f
), starts AS MATERIALIZED (
	SELECT ` + keptColumns + `, due.priority, due.metadata, due.headers, due.version, due.new_id AS run_id,
		` + runOfConsumer + `due.consumer AS external_id, NULL::bytea AS input_hash, coalesce(due.state, '') AS input,
		LEAST(due.since, due.now) AS available_at, due.now, ` + noParent + `, ` + noOrigin + `, ` + noSchedule + `,
		` + noClaim + `
	FROM due
	JOIN locked ON locked.consumer = due.consumer
	WHERE due.since IS NOT NULL AND due.new_id IS NOT NULL
), ` + insertStarts + `
), starting AS MATERIALIZED (
	SELECT due.* FROM due JOIN inserted ON inserted.run_id = due.new_id
), begun AS (
	UPDATE kagzi.consumers x
	SET run_id = starting.new_id, wake_at = NULL, noticed_at = NULL
	FROM starting
	WHERE x.consumer = starting.consumer AND x.namespace_id = $1
), looked AS (
	UPDATE kagzi.subscriptions x
	SET looked_at = GREATEST(x.looked_at, unread.look_to)
	FROM starting
	JOIN unread ON unread.consumer = starting.consumer
	WHERE x.topic = unread.topic AND x.consumer = unread.consumer AND x.namespace_id = $1
), noticed AS (
	UPDATE kagzi.consumers x
	SET noticed_at = states.finished_at
	FROM states
	JOIN locked ON locked.consumer = states.consumer
	WHERE states.stops AND x.consumer = states.consumer AND x.namespace_id = $1
), keys AS MATERIALIZED (
	SELECT u.run_key, CASE WHEN count(*) FILTER (WHERE states.consumer IS NOT NULL) > 0 THEN coalesce(min(CASE
			WHEN states.left_out OR states.active AND states.moved THEN states.now + interval '5 seconds'
			WHEN states.stops AND locked.consumer IS NULL THEN states.now + $7::bigint * interval '1 microsecond'
			WHEN starting.consumer IS NOT NULL OR states.active OR states.stops OR states.paused THEN NULL
			WHEN due.since IS NOT NULL THEN states.now + $7::bigint * interval '1 microsecond'
			WHEN due.unsettled IS NOT NULL
				THEN LEAST(states.due_at, states.now + LEAST(GREATEST($7::bigint * interval '1 microsecond',
				(states.now - due.unsettled) / 2), interval '5 seconds'))
			ELSE states.due_at
		END), 'infinity') END AS consumers_at, min('run ' || states.run_id || ' of consumer ' || states.consumer
			|| ' failed') FILTER (WHERE states.stops AND locked.consumer IS NOT NULL) AS failed
	FROM unnest($2::text[]) AS u (run_key)
	LEFT JOIN states ON states.run_key = u.run_key
	LEFT JOIN due ON due.consumer = states.consumer
	LEFT JOIN starting ON starting.consumer = states.consumer
	LEFT JOIN locked ON locked.consumer = states.consumer
	GROUP BY u.run_key
)
INSERT INTO kagzi.run_keys AS x (key_scope, run_key, namespace_id, version, available_at, consumers_at, paused_at,
	pause_reason, pause_actor)
SELECT '', keys.run_key, $1, coalesce((SELECT max(x.version) FROM kagzi.run_keys x WHERE x.key_scope = ''
		AND x.run_key = keys.run_key AND x.namespace_id = $1), 0), 'infinity', keys.consumers_at, CASE WHEN keys.failed
	IS NOT NULL THEN now() END, keys.failed, CASE WHEN keys.failed IS NOT NULL THEN 'kagzi' END FROM keys
ON CONFLICT (key_scope, run_key, namespace_id, version) DO UPDATE SET consumers_at = excluded.consumers_at,
	paused_at = coalesce(x.paused_at, excluded.paused_at),
	pause_reason = CASE WHEN x.paused_at IS NULL THEN excluded.pause_reason ELSE x.pause_reason END,
	pause_actor = CASE WHEN x.paused_at IS NULL THEN excluded.pause_actor ELSE x.pause_actor END
	WHERE x.consumers_at IS DISTINCT FROM excluded.consumers_at OR excluded.paused_at IS NOT NULL`

// consumersStarted is how many runs of consumers a claim starts at most, more than its keys.
const consumersStarted = 16

// consumersLook returns the statements with which a claim starts runs of the consumers of keys. start sends the second
// one, once the claim has locked the keys and then read the answer of the first. It starts none of the consumers names;
// with only none of the others.
func (s Consumers) consumersLook(names []string, only bool) (state pg.Step, start func(b *pgx.Batch, keys []string)) {
	var last int64
	var classes, objects []int64
	state.Batch = &pgx.Batch{}
	state.Batch.Queue(publishers)
	state.Reads = []func(pgx.Rows) error{func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, []any{&last, &classes, &objects}, func() error { return nil })
		return err
	}}
	return state, func(b *pgx.Batch, keys []string) {
		ids := make([]uuid.UUID, len(keys)+consumersStarted)
		for i := range ids {
			ids[i] = uuid.Must(uuid.NewV7())
		}
		b.Queue(startConsumers, s.namespace, keys, array(ids), last, classes, objects, pg.Micros(unsettledPause),
			names, only)
	}
}
