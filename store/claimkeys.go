package store

import (
	"strconv"

	"github.com/kagzi/kagzi/store/internal/clause"
)

// claimKeys takes runs of the keys that lockKeys has locked, in an earlier statement of the transaction: so it counts
// all runs that others have taken under these locks. In their order each key gets the rest of its turn, which is as
// many runs as its weight, and further turns while there is room for those of all (shares). A key whose limit is one
// run until its end is a sequence: only its first due run may be taken (strict).
//
// It locks the pauses (steady): see doc_pauses.go. It searches from the key's cursor on: see doc_keys.go.
const claimKeys = `
WITH ` + clause.PausesOfRuns + `, steady AS MATERIALIZED (
	SELECT p.paused_at FROM kagzi.pauses p WHERE p.task_queue >= '' AND p.namespace_id = $1 FOR SHARE SKIP LOCKED
), ` + roomOfQueue + `, ` + statesOfKeys + `, ` + keyShares + `, ` + dueOfKeys + `, ` + claimUpdate + `, ` +
	spendTokens + loweredCursor + writeQueue + `, ` + restOfKeys + `, ` + keyPlaces + `, ` + moveKeys + `
SELECT t.now, ` + keyResult

// Counts the runs that hold slots of the keys, of which held is the first, and their tokens.
const statesOfKeys = `states AS MATERIALIZED (
	SELECT c.*, n.running, n.held, c.paused OR c.max_running <= n.running AS full, ` + tokens + ` AS tokens
	FROM limits t
	CROSS JOIN LATERAL (
		SELECT u.place, u.version, x.key_scope, x.run_key, x.available_at, x.waits_from, x.slots_from, x.consumers_at,
			x.rate_at, x.credit, coalesce(x.weight, 1) AS weight,
			CASE WHEN x.key_scope = '' THEN 1 ELSE coalesce(x.max_running, t.key_max_running) END AS max_running,
			CASE WHEN x.key_scope <> '' THEN coalesce(x.rate_interval, t.key_interval) END AS rate_interval,
			CASE WHEN x.rate_interval > 0 THEN coalesce(x.rate_burst, 1) ELSE t.key_burst END AS rate_burst,
			CASE WHEN x.key_scope = '' THEN 2 ELSE coalesce(t.slot, 1) END::smallint AS slot,
			x.paused_at IS NOT NULL OR (
				SELECT count(*) FROM pauses p WHERE p.of_type = '' AND p.in_queue IN ('', x.key_scope)
			) > 0 AS paused
		FROM unnest($13::text[], $14::text[], $16::bigint[]) WITH ORDINALITY u (key_scope, run_key, version, place)
		CROSS JOIN LATERAL (
			SELECT f.* FROM kagzi.run_keys f
			WHERE f.key_scope = u.key_scope AND f.run_key = u.run_key AND f.namespace_id = $1 AND f.version = u.version
			OFFSET 0
		) x
	) c
	CROSS JOIN LATERAL (
		SELECT count(*) AS running, min(h.run_id::text COLLATE "C")::uuid AS held
		FROM (
			(SELECT x.run_id FROM kagzi.workflow_runs x WHERE c.key_scope = '' AND x.run_key = c.run_key
				AND x.namespace_id = $1 AND ` + clause.HoldsGroup + `)
			UNION ALL (SELECT x.run_id FROM kagzi.workflow_runs x WHERE x.task_queue = c.key_scope
				AND x.namespace_id = $1 AND x.run_key = c.run_key AND x.run_id >= c.slots_from
				AND ` + clause.Holds + ` AND x.key_scope <> '' LIMIT coalesce(c.max_running, 0))
		) h
	) n
)`

// How many runs of each key may be taken, and whether the claim raises the key's cursor if it takes some.
const keyShares = `shares AS MATERIALIZED (
	SELECT m.*, GREATEST(0, LEAST(m.turn, m.room - m.before, m.max_running - m.running, m.tokens))::int AS allowed,
		NOT m.strict AND (SELECT count(*) FROM pauses) = 0 AND random() < 0.125 AS raises
	FROM (
		SELECT r.*, sum(r.turn) OVER (ORDER BY r.place) - r.turn AS before,
			r.slot = 2 AND coalesce(r.max_running = 1, false) AS strict
		FROM (
			SELECT f.*, f.rest + CASE WHEN f.rest > 0
				THEN f.weight * GREATEST(0, (f.room - sum(f.rest) OVER ()) / sum(CASE WHEN f.rest > 0 THEN f.weight
					ELSE 0 END) OVER ()) ELSE 0 END AS turn
			FROM (
				SELECT states.*, q.room, q.now, CASE WHEN states.full OR states.tokens = 0 THEN 0 WHEN states.credit > 0
					THEN states.credit ELSE states.weight END AS rest
				FROM states CROSS JOIN limits q
			) f
		) r
	) m
)`

// Selects and locks as many due runs of each key.
const dueOfKeys = `due AS MATERIALIZED (
	SELECT r.run_id, r.status, r.version, r.started_at, r.deadline_at, ($6::int[])[array_position($3::text[],
		r.workflow_type)] AS initial, r.since, shares.now, false AS set_back, false AS holding, shares.slot,
		shares.place, LEAST(shares.now + $10::bigint * interval '1 microsecond', CASE WHEN r.deadline_at > shares.now
			THEN r.deadline_at + interval '3 seconds' END) AS available_at
	FROM shares
	CROSS JOIN LATERAL (
		(
			SELECT r.* FROM unnest($4::smallint[]) AS p (priority)
			CROSS JOIN LATERAL (
				SELECT x.run_id, x.status, x.version, x.started_at, x.workflow_type, x.available_at AS since,
					` + claimedDeadline + `
				FROM kagzi.workflow_runs x
				WHERE x.key_scope = shares.key_scope AND x.namespace_id = $1 AND x.run_key = shares.run_key
					AND x.priority = p.priority AND ` + clause.Waits + ` AND x.available_at <= now()
					AND x.available_at >= shares.waits_from AND x.outcome IS NULL AND x.task_queue = $2
					AND x.workflow_type || '/' || coalesce(x.version::text, '') = ANY ($5::text[])
					AND ` + notLeftOut + ` AND x.run_id <> ALL ($15::uuid[]) AND ` + clause.Unstopped + `
				ORDER BY x.available_at, x.run_id LIMIT shares.allowed
				FOR UPDATE SKIP LOCKED
			) r
			WHERE NOT shares.strict LIMIT shares.allowed
		)
		UNION ALL
		SELECT r.* FROM (
			SELECT r.run_id
			FROM generate_series(1, 4) AS p (priority)
			CROSS JOIN LATERAL (
				SELECT x.run_id FROM kagzi.workflow_runs x
				WHERE x.key_scope = shares.key_scope AND x.namespace_id = $1 AND x.run_key = shares.run_key
					AND x.priority = p.priority AND ` + clause.Waits + ` AND x.available_at <= now()
					AND x.outcome IS NULL AND ` + clause.Unstopped + `
				ORDER BY x.available_at, x.run_id LIMIT 1
			) r
			WHERE shares.strict AND shares.allowed > 0 LIMIT 1
		) h
		CROSS JOIN LATERAL (
			SELECT x.run_id, x.status, x.version, x.started_at, x.workflow_type, x.available_at AS since,
				` + claimedDeadline + `
			FROM kagzi.workflow_runs x
			WHERE x.run_id = h.run_id AND x.namespace_id = $1 AND x.status NOT IN ('RUNNING', 'COMPLETED', 'FAILED',
				'CANCELLED') AND x.slot IS DISTINCT FROM 2 AND x.paused_at IS NULL AND x.available_at <= now()
				AND x.outcome IS NULL AND x.task_queue = $2
				AND x.workflow_type || '/' || coalesce(x.version::text, '') = ANY ($5::text[])
				AND ` + notLeftOut + ` AND x.run_id <> ALL ($15::uuid[])
			FOR UPDATE SKIP LOCKED
		) r
	) r
)`

// Finds what of each key is left.
const restOfKeys = `rest AS MATERIALIZED (
	SELECT shares.key_scope, shares.run_key, shares.version, shares.available_at AS before, shares.now, shares.credit,
		shares.weight, coalesce(t.taken, 0) AS taken, t.first, t.taken > 0 AND shares.raises AS raises,
		shares.waits_from, shares.slots_from, shares.held, shares.max_running,
		shares.paused OR shares.max_running <= shares.running + coalesce(t.taken, 0) AS full,
		CASE WHEN t.taken > 0 AND shares.rate_interval > 0
			THEN GREATEST(shares.rate_at, shares.now - (shares.rate_burst - 1) * shares.rate_interval
				* interval '1 microsecond') + t.taken * shares.rate_interval * interval '1 microsecond'
			ELSE shares.rate_at END AS rate_at, shares.rate_at AS old_rate_at,
		CASE WHEN (shares.paused OR shares.max_running <= shares.running + coalesce(t.taken, 0))
			AND (t.taken > 0 AND shares.raises) IS NOT TRUE THEN NULL ELSE LEAST((
			SELECT min(n.available_at)
			FROM generate_series(1, 4) AS p (priority)
			CROSS JOIN LATERAL (
				SELECT x.available_at FROM kagzi.workflow_runs x
				WHERE x.key_scope = shares.key_scope AND x.namespace_id = $1 AND x.run_key = shares.run_key
					AND x.priority = p.priority AND x.available_at >= shares.waits_from AND ` + clause.Waits + `
					AND x.outcome IS NULL AND x.run_id <> ALL (coalesce(t.runs, '{}')) AND ` + clause.Unstopped + `
				ORDER BY x.available_at LIMIT 1
			) n
		), NULLIF(shares.consumers_at, 'infinity')) END AS next
	FROM shares
	LEFT JOIN (
		SELECT due.place, count(*)::int AS taken, pg_catalog.array_agg(due.run_id) AS runs,
			min(due.run_id::text COLLATE "C")::uuid AS first FROM due GROUP BY 1
	) t ON t.place = shares.place
)`

// Gives each key its next place: none while all its slots are taken or no run waits; the time of the next token, or of
// the next run; else it stays in the line, at its end once its turn is over. The place of a key of which this worker
// could execute no run stays.
const keyPlaces = `places AS MATERIALIZED (
	SELECT rest.key_scope, rest.run_key, rest.version, rest.rate_at, rest.before, rest.credit AS old_credit,
		rest.old_rate_at, rest.waits_from AS old_waits, rest.slots_from AS old_slots, CASE WHEN rest.raises
			THEN LEAST(rest.now, rest.next) ELSE rest.waits_from END AS waits_from,
		CASE WHEN rest.raises AND rest.max_running > 0 THEN LEAST(rest.held, rest.first)
			ELSE LEAST(rest.slots_from, rest.first) END AS slots_from,
		rest.taken = 0 AND rest.before > rest.now AND NOT coalesce(rest.full OR rest.rate_at > rest.now, false)
			AND rest.next <= rest.now AS entered,
		CASE WHEN rest.full OR rest.next > rest.now OR rest.next IS NULL OR rest.rate_at > rest.now THEN 0
			WHEN rest.taken = 0 THEN rest.credit ELSE GREATEST(0, CASE WHEN rest.credit > 0 THEN rest.credit
				ELSE rest.weight END - rest.taken) END AS credit,
		LEAST(CASE WHEN rest.full THEN timestamptz 'infinity'
			WHEN rest.next > rest.now OR rest.next IS NULL THEN coalesce(GREATEST(rest.next, rest.rate_at), 'infinity')
			WHEN rest.rate_at > rest.now THEN rest.rate_at
			WHEN rest.before <= rest.now AND (rest.taken = 0 OR CASE WHEN rest.credit > 0 THEN rest.credit
				ELSE rest.weight END > rest.taken) THEN rest.before
			ELSE clock_timestamp() END,
			CASE WHEN (SELECT count(*) FROM pauses) > (SELECT count(*) FROM steady)
				THEN rest.now + interval '1 second' END) AS available_at
	FROM rest
)`

// Writes the places, by ON CONFLICT, because the planner could read all keys for a join.
const moveKeys = `moved AS (
	INSERT INTO kagzi.run_keys AS x (key_scope, run_key, namespace_id, version, available_at, credit, rate_at,
		waits_from, slots_from)
	SELECT p.key_scope, p.run_key, $1, p.version, p.available_at, p.credit, p.rate_at, p.waits_from, p.slots_from
	FROM places p
	WHERE (p.before, p.old_credit, p.old_rate_at, p.old_waits, p.old_slots)
		IS DISTINCT FROM (p.available_at, p.credit, p.rate_at, p.waits_from, p.slots_from)
	ON CONFLICT (key_scope, run_key, namespace_id, version) DO UPDATE SET fresh = false, credit = excluded.credit,
		version = x.version + (NOT x.fresh)::int, available_at = excluded.available_at, rate_at = excluded.rate_at,
		waits_from = excluded.waits_from, slots_from = excluded.slots_from
)`

// The room that is left, the queues whose lines have new keys, and the claimed runs.
const keyResult = `(SELECT k.room FROM limits k) - (SELECT count(*) FROM due)::int,
	ARRAY (
		SELECT DISTINCT CASE WHEN places.key_scope <> '' THEN places.key_scope ELSE (
			SELECT r.task_queue
			FROM generate_series(1, 4) AS n (priority)
			CROSS JOIN LATERAL (
				SELECT x.task_queue FROM kagzi.workflow_runs x
				WHERE x.key_scope = places.key_scope AND x.namespace_id = $1 AND x.run_key = places.run_key
					AND x.priority = n.priority AND ` + clause.Waits + ` AND x.outcome IS NULL
					AND ` + clause.Unstopped + `
				ORDER BY x.available_at, x.run_id LIMIT 1
			) r
			LIMIT 1
		) END
		FROM places
		WHERE places.entered
	),
	` + claimedColumns + `
FROM (SELECT now() AS now) t
LEFT JOIN claimed c ON true`

// keyedArgs returns the arguments of claimKeys.
func (s Claims) keyedArgs(req ClaimRequest, locked *lockedKeys) []any {
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
	args[2], args[3], args[4], args[5], args[12], args[13] = types, req.priorities(), handlers, initial, locked.scopes,
		locked.names
	return append(args, locked.versions)
}
