package store

import (
	"strconv"

	"github.com/kagzi/kagzi/store/internal/clause"
)

// Whether the key x is paused. A percentage is that of passesAt.
const keyPaused = `(SELECT p.some FROM paused p) AND (
				SELECT count(*) FROM pauses p
				WHERE p.of_type = '' AND p.in_queue IN ('', x.key_scope) AND NOT p.releases
					AND (pg_catalog.hashtext(x.run_key) & 2147483647) % 100 >= p.percent
			) > 0 OR (SELECT p.keys FROM paused p) AND (
				SELECT count(*) FROM (
					SELECT FROM kagzi.pauses p WHERE p.run_key = x.run_key AND p.key_scope = x.key_scope
						AND p.namespace_id = $1 LIMIT 1
				) p
			) > 0`

// Locks the pauses: see claimKeys.
const steady = `steady AS MATERIALIZED (
	SELECT p.paused_at FROM kagzi.pauses p WHERE p.run_key = '' AND p.namespace_id = $1 FOR SHARE SKIP LOCKED
), `

// The place of a key if somebody ends a pause.
const placeOfPaused = `CASE WHEN (SELECT count(*) FROM pauses) > (SELECT count(*) FROM steady)
	THEN s.now + interval '1 second' END`

// claimKeys takes runs of the keys that lockKeys has locked, in an earlier statement of the transaction: so it counts
// all runs that others have taken under these locks. In their order each key gets the rest of its turn, which is as
// many runs as its weight, and further turns while there is room for those of all (a). A key whose limit is one run
// until its end is a sequence: only its first due run may be taken (strict).
//
// Then each key gets its next place (p): none while all its slots are taken or no run waits; the time of the next
// token, or of the next run; else it stays in the line, at its end once its turn is over. The place of a key of which
// this worker could execute no run stays.
//
// A key also has no place while it is paused, or all of its waiting runs are. Whoever ends a pause leaves changes of
// the keys that have such runs. It could miss a key of a run that is younger than its search, if it commits after this
// claim has seen the pause. So the claim locks the pauses (steady). Then whoever ends one waits for the claim before it
// searches, or the claim finds its lock, and the keys are looked at again soon.
//
// The places are written by ON CONFLICT, because the planner could read all keys for a join.
const claimKeys = `
WITH ` + pausesNow + `, ` + steady + roomOfQueue + `, k AS MATERIALIZED (
	SELECT c.*, n.running, c.paused OR c.max_running <= n.running AS full, ` + tokens + ` AS tokens
	FROM limits t
	CROSS JOIN LATERAL (
		SELECT u.place, x.key_scope, x.run_key, x.available_at, x.consumers_at, x.rate_at, x.credit,
			coalesce(x.weight, 1) AS weight,
			CASE WHEN x.key_scope = '' THEN 1 ELSE coalesce(x.max_running, t.key_max_running) END AS max_running,
			CASE WHEN x.key_scope <> '' THEN coalesce(x.rate_interval, t.key_interval) END AS rate_interval,
			CASE WHEN x.rate_interval > 0 THEN coalesce(x.rate_burst, 1) ELSE t.key_burst END AS rate_burst,
			CASE WHEN x.key_scope = '' THEN 2 ELSE coalesce(t.slot, 1) END::smallint AS slot,
			` + keyPaused + ` AS paused
		FROM unnest($13::text[], $14::text[]) WITH ORDINALITY AS u (key_scope, run_key, place)
		CROSS JOIN LATERAL (
			SELECT f.* FROM kagzi.run_keys f
			WHERE f.key_scope = u.key_scope AND f.run_key = u.run_key AND f.namespace_id = $1
			OFFSET 0
		) x
	) c
	CROSS JOIN LATERAL (SELECT ` + clause.SlotsOfKey + ` AS running OFFSET 0) n
), a AS MATERIALIZED (
	SELECT m.*, GREATEST(0, LEAST(m.turn, m.room - m.before, m.max_running - m.running, m.tokens))::int AS allowed,
		m.slot = 2 AND coalesce(m.max_running = 1, false) AS strict
	FROM (
		SELECT r.*, sum(r.turn) OVER (ORDER BY r.place) - r.turn AS before
		FROM (
			SELECT f.*, f.rest + CASE WHEN f.rest > 0
				THEN f.weight * GREATEST(0, (f.room - sum(f.rest) OVER ()) / sum(CASE WHEN f.rest > 0 THEN f.weight
					ELSE 0 END) OVER ()) ELSE 0 END AS turn
			FROM (
				SELECT k.*, q.room, q.now, CASE WHEN k.full OR k.tokens = 0 THEN 0 WHEN k.credit > 0 THEN k.credit
					ELSE k.weight END AS rest
				FROM k CROSS JOIN limits q
			) f
		) r
	) m
), due AS MATERIALIZED (
	SELECT r.run_id, r.status, r.version, r.started_at, ($6::int[])[array_position($3::text[], r.workflow_type)]
		AS initial, r.since, a.now, false AS set_back, false AS holding,
		a.slot, a.place,
		LEAST(a.now + $10::bigint * interval '1 microsecond', CASE WHEN r.deadline_at > a.now
			THEN r.deadline_at + interval '3 seconds' END) AS available_at
	FROM a
	CROSS JOIN LATERAL (
		(
			SELECT r.run_id, r.status, r.version, r.started_at, r.workflow_type, r.deadline_at, r.since
			FROM unnest($4::smallint[]) AS p (priority)
			CROSS JOIN LATERAL (
				SELECT x.run_id, x.status, x.version, x.started_at, x.workflow_type, x.deadline_at,
					x.available_at AS since
				FROM kagzi.workflow_runs AS x
				WHERE x.key_scope = a.key_scope AND x.namespace_id = $1 AND x.run_key = a.run_key
					AND x.priority = p.priority
					AND ` +
	clause.Waits + ` AND x.available_at <= now() AND x.outcome IS NULL AND x.task_queue = $2 AND ` + unpaused + `
					AND x.workflow_type || '/' || coalesce(x.version::text, '') = ANY ($5::text[])
						AND x.recoveries < $11
				ORDER BY x.available_at, x.run_id
				LIMIT a.allowed
				FOR UPDATE SKIP LOCKED
			) r
			WHERE NOT a.strict
			LIMIT a.allowed
		)
		UNION ALL
		SELECT r.run_id, r.status, r.version, r.started_at, r.workflow_type, r.deadline_at, r.since
		FROM (
			SELECT r.run_id
			FROM generate_series(1, 4) AS p (priority)
			CROSS JOIN LATERAL (
				SELECT x.run_id
				FROM kagzi.workflow_runs x
				WHERE x.key_scope = a.key_scope AND x.namespace_id = $1 AND x.run_key = a.run_key
					AND x.priority = p.priority
					AND ` + clause.Waits + ` AND x.available_at <= now() AND x.outcome IS NULL AND ` + unpaused + `
				ORDER BY x.available_at, x.run_id
				LIMIT 1
			) r
			WHERE a.strict AND a.allowed > 0
			LIMIT 1
		) h
		CROSS JOIN LATERAL (
			SELECT x.run_id, x.status, x.version, x.started_at, x.workflow_type, x.deadline_at, x.available_at AS since
			FROM kagzi.workflow_runs x
			WHERE x.run_id = h.run_id AND x.namespace_id = $1 AND x.status NOT IN ('RUNNING', 'COMPLETED', 'FAILED',
				'CANCELLED') AND x.slot IS DISTINCT FROM 2 AND x.paused_at IS NULL AND x.available_at <= now()
				AND x.outcome IS NULL AND x.task_queue = $2
				AND x.workflow_type || '/' || coalesce(x.version::text, '') = ANY ($5::text[]) AND x.recoveries < $11
			FOR UPDATE SKIP LOCKED
		) r
	) r
), ` + claimUpdate + `, ` + spendTokens + `, s AS MATERIALIZED (
	SELECT a.key_scope, a.run_key, a.available_at AS before, a.now, a.credit, a.weight, coalesce(t.taken, 0) AS taken,
		a.paused OR a.max_running <= a.running + coalesce(t.taken, 0) AS full,
		CASE WHEN t.taken > 0 AND a.rate_interval > 0
			THEN GREATEST(a.rate_at, a.now - (a.rate_burst - 1) * a.rate_interval * interval '1 microsecond') + t.taken
				* a.rate_interval * interval '1 microsecond'
			ELSE a.rate_at END AS rate_at, a.rate_at AS old_rate_at,
		CASE WHEN a.paused OR a.max_running <= a.running + coalesce(t.taken, 0) THEN NULL ELSE LEAST((
			SELECT min(n.available_at)
			FROM generate_series(1, 4) AS p (priority)
			CROSS JOIN LATERAL (
				SELECT x.available_at
				FROM kagzi.workflow_runs x
				WHERE x.key_scope = a.key_scope AND x.namespace_id = $1 AND x.run_key = a.run_key
					AND x.priority = p.priority
					AND ` +
	clause.Waits + ` AND x.outcome IS NULL AND x.run_id <> ALL (coalesce(t.runs, '{}')) AND ` + unpaused + `
				ORDER BY x.available_at
				LIMIT 1
			) n
		), NULLIF(a.consumers_at, 'infinity')) END AS next
	FROM a
	LEFT JOIN (SELECT due.place, count(*)::int AS taken, pg_catalog.array_agg(due.run_id) AS runs FROM due GROUP BY 1) t
		ON t.place = a.place
), p AS MATERIALIZED (
	SELECT s.key_scope, s.run_key, s.rate_at, s.before, s.credit AS old_credit, s.old_rate_at,
		s.taken = 0 AND s.before > s.now AND NOT coalesce(s.full OR s.rate_at > s.now, false)
			AND s.next <= s.now AS entered,
		CASE WHEN s.full OR s.next > s.now OR s.next IS NULL OR s.rate_at > s.now THEN 0
			WHEN s.taken = 0 THEN s.credit
			ELSE GREATEST(0, CASE WHEN s.credit > 0 THEN s.credit ELSE s.weight END - s.taken) END AS credit,
		LEAST(CASE WHEN s.full THEN timestamptz 'infinity'
			WHEN s.next > s.now OR s.next IS NULL THEN coalesce(GREATEST(s.next, s.rate_at), 'infinity')
			WHEN s.rate_at > s.now THEN s.rate_at
			WHEN s.before <= s.now AND (s.taken = 0 OR CASE WHEN s.credit > 0 THEN s.credit ELSE s.weight END > s.taken)
				THEN s.before
			ELSE clock_timestamp() END,
			` + placeOfPaused + `) AS available_at
	FROM s
), moved AS (
	INSERT INTO kagzi.run_keys AS x (key_scope, run_key, namespace_id, available_at, credit, rate_at)
	SELECT p.key_scope, p.run_key, $1, p.available_at, p.credit, p.rate_at
	FROM p
	WHERE (p.before, p.old_credit, p.old_rate_at) IS DISTINCT FROM (p.available_at, p.credit, p.rate_at)
	ON CONFLICT (key_scope, run_key, namespace_id) DO UPDATE SET available_at = excluded.available_at,
		credit = excluded.credit, rate_at = excluded.rate_at
)
SELECT t.now, (SELECT p.some OR p.keys FROM paused p), (SELECT k.room FROM limits k) - (SELECT count(*) FROM due)::int,
	ARRAY (
		SELECT DISTINCT CASE WHEN p.key_scope <> '' THEN p.key_scope ELSE (
			SELECT r.task_queue
			FROM generate_series(1, 4) AS n (priority)
			CROSS JOIN LATERAL (
				SELECT x.task_queue
				FROM kagzi.workflow_runs x
				WHERE x.key_scope = p.key_scope AND x.namespace_id = $1 AND x.run_key = p.run_key
					AND x.priority = n.priority AND ` + clause.Waits + ` AND x.outcome IS NULL AND ` + unpaused + `
				ORDER BY x.available_at, x.run_id
				LIMIT 1
			) r
			LIMIT 1
		) END
		FROM p
		WHERE p.entered
	),
	` + claimedColumns + `
FROM (SELECT now() AS now) t
LEFT JOIN claimed c ON true`

// keyedArgs returns the arguments of claimKeys.
func (s Claims) keyedArgs(req ClaimRequest, scopes, keys []string) []any {
	var handlers, types []string
	var initial []int32
	for _, t := range req.Types {
		types, initial = append(types, t.Type), append(initial, int32(t.Default))
		handlers = append(handlers, t.Type+"/")
		for _, v := range t.Versions {
			handlers = append(handlers, t.Type+"/"+strconv.Itoa(v))
		}
	}
	args := s.claimArgs(req)
	args[2], args[3], args[4], args[5] = types, req.priorities(), handlers, initial
	return append(args[:12:12], scopes, keys)
}
