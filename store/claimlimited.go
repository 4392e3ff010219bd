package store

import (
	"github.com/kagzi/kagzi/store/internal/clause"
)

// How many tokens a rate has now. The columns of c are rate_at, rate_interval and rate_burst, and that of t is now.
const tokens = `CASE WHEN c.rate_at > t.now THEN 0 WHEN c.rate_interval > 0 THEN
		LEAST(c.rate_burst, floor(extract(epoch
			FROM t.now - GREATEST(c.rate_at, t.now - (c.rate_burst - 1) * c.rate_interval * interval '1 microsecond')) *
			1000000 / c.rate_interval) + 1) END`

// What the limits of a queue leave to a claim that holds the queue's lock: room for so many runs that take a slot, of
// the $7 that the worker takes.
const roomOfQueue = `limits AS MATERIALIZED (
	SELECT t.now, coalesce(c.limited, false) AS limited, CASE WHEN c.held THEN 2 ELSE 1 END::smallint AS slot,
		c.rate_interval, c.rate_burst, c.rate_at, c.slots_from, c.settled, c.max_running, c.key_max_running,
		c.key_interval, c.key_burst,
		GREATEST(0, LEAST($7::int,
			CASE WHEN c.max_running > 0 THEN c.max_running - (SELECT count(*) FROM (
				(SELECT 1 FROM kagzi.workflow_runs WHERE task_queue = $2 AND namespace_id = $1 AND run_key IS NULL
					AND run_id >= c.slots_from AND ` + clause.Holds + ` LIMIT c.max_running)
				UNION ALL (SELECT 1 FROM kagzi.workflow_runs WHERE task_queue = $2 AND namespace_id = $1
					AND run_key IS NOT NULL AND ` + clause.Holds + ` LIMIT c.max_running)
			) x) END,
			` + tokens + `))::int AS room
	FROM (SELECT now() AS now) t
	LEFT JOIN LATERAL (
		SELECT x.*, x.max_running > 0 OR coalesce(x.rate_interval > 0, false) AS limited
		FROM kagzi.queues x
		WHERE x.task_queue = $2 AND x.namespace_id = $1
		OFFSET 0
	) c ON true
)`

// Take the tokens of the queue's rate for the runs of the CTE due, and move its cursor: where to stands between the
// two parts.
const (
	spendTokens = `rate AS MATERIALIZED (
	SELECT CASE WHEN q.rate_interval > 0 AND n.taken > 0 THEN GREATEST(q.rate_at, q.now - (q.rate_burst - 1)
		* q.rate_interval * interval '1 microsecond') + n.taken * q.rate_interval * interval '1 microsecond'
		ELSE q.rate_at END AS rate_at, `
	writeQueue = ` AS slots_from
	FROM limits q CROSS JOIN (
		SELECT count(*) FILTER (WHERE NOT due.holding) AS taken, min(due.run_id::text COLLATE "C")::uuid AS first
		FROM due
	) n WHERE q.limited AND n.first IS NOT NULL
), spent AS (
	UPDATE kagzi.queues x SET rate_at = rate.rate_at, slots_from = rate.slots_from FROM rate
	WHERE x.task_queue = $2 AND x.namespace_id = $1
		AND (x.rate_at, x.slots_from) IS DISTINCT FROM (rate.rate_at, rate.slots_from)
)`
)

// The cursor of the queue after a claim of the runs due, of which the first is n.first: see doc_keys.go. It is raised
// by chance.
const (
	cursorOfQueue = `CASE WHEN q.max_running > 0 AND q.settled AND random() < 0.25 THEN LEAST(n.first, (
			SELECT min(x.run_id::text COLLATE "C")::uuid FROM kagzi.workflow_runs x
			WHERE x.task_queue = $2 AND x.namespace_id = $1 AND x.run_key IS NULL AND x.run_id >= q.slots_from
				AND ` + clause.Holds + `
		), (SELECT min(x.run_id::text COLLATE "C")::uuid FROM kagzi.workflow_runs x WHERE x.task_queue = $2
			AND x.namespace_id = $1 AND x.run_key IS NOT NULL AND ` + clause.Holds + `)) ELSE ` + loweredCursor + ` END`
	loweredCursor = `LEAST(n.first, q.slots_from)`
)

// Returns when the next run is due, and the claimed runs. The claim may have left out runs that are due: those that it
// has set back give up their slots, and those that held one have taken up the room of others.
const claimedOfPairs = `
	CASE WHEN $7 > 0 AND (SELECT count(*) FROM due) = $7 THEN (SELECT min(due.now) FROM due WHERE due.set_back)
		WHEN (SELECT bool_or(due.set_back) OR k.room > count(*) FILTER (WHERE NOT due.holding) AND k.room <= count(*)
			FROM due CROSS JOIN limits k WHERE k.limited GROUP BY k.room) THEN t.now
		ELSE LEAST(` + nextOfPairs + `, (SELECT min(s.available_at) FROM claimed s WHERE s.set_back)) END,
	l.pair, l.since, ` + claimedColumns + `
FROM (SELECT now() AS now) t
LEFT JOIN (SELECT due.pair, due.since FROM due OFFSET GREATEST((SELECT k.room FROM limits k) - 1, 0)
	LIMIT LEAST((SELECT k.room FROM limits k), 1)) l ON true
LEFT JOIN LATERAL (SELECT * FROM claimed k WHERE NOT k.set_back) c ON true`

// claimLimited is claimRuns for a queue that may have limits, after lockQueue: it takes no more runs than these leave.
// A run that holds a slot needs no room. While there is room, such runs are among the others; else the statement finds
// them by their index (holders). It leaves out those of which the worker lacks the version: they must not use up its
// number of runs.
const claimLimited = `
WITH ` + pairsOfClaim + `, ` + roomOfQueue + `, holders AS MATERIALIZED (
	SELECT q.run_id, q.workflow_type, q.priority, q.status, q.version, q.recoveries, q.started_at,
		` + claimedDeadline + `, q.available_at AS since, now() AS now,
		q.status = 'RUNNING' AND q.recoveries + 1 >= 3 AS set_back FROM kagzi.workflow_runs q
	WHERE (SELECT k.limited AND k.room = 0 FROM limits k) AND q.namespace_id = $1 AND q.task_queue = $2
		AND ` + clause.Holds + ` AND ` + clause.KeyUnpaused + `
		AND q.available_at <= now() AND q.workflow_type = ANY ($3::text[])
			AND ` + notLeftOut + ` AND q.run_id <> ALL ($15::uuid[]) AND q.outcome IS NULL AND q.paused_at IS NULL
		AND (
			SELECT count(*) FROM pairs w WHERE w.workflow_type = q.workflow_type AND w.priority = q.priority
				AND (q.version IS NULL OR q.version = ANY (w.versions::int[]))
		) > 0
	LIMIT $7 FOR UPDATE SKIP LOCKED
), due AS MATERIALIZED (
	` + dueOfPairs + `
	UNION ALL
	SELECT r.run_id, r.status, r.version, r.started_at, r.deadline_at, w.initial, 0, r.since, r.now, r.set_back, true,
		(SELECT k.slot FROM limits k),
		` + untilAvailable + `
	FROM holders r
	CROSS JOIN LATERAL (
		SELECT w.initial FROM pairs w WHERE w.workflow_type = r.workflow_type AND w.priority = r.priority
			AND (r.version IS NULL OR r.version = ANY (w.versions::int[])) LIMIT 1
	) w
), ` + claimUpdate + `, ` + spendTokens + cursorOfQueue + writeQueue + `
SELECT t.now, (SELECT k.limited FROM limits k), (SELECT k.room FROM limits k)
	- (SELECT count(*) FROM due WHERE NOT due.holding)::int,` + claimedOfPairs
