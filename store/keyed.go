package store

import (
	"context"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
)

// A KeysRequest is the part of a ClaimRequest for a queue that has keys or limits.
type KeysRequest struct {
	Plain  int       // how many of the runs may have no key
	Keyed  int       // how many may have one
	Line   time.Time // keys with an earlier place in the line are left out; zero: none are
	Change int64     // changes with a lower ID are left out
	Most   int       // how many changes to read
	Handed []Key     // keys of which the worker has given up slots since its last claim; the zero key stands for the queue
}

// Keys is the part of a Claim about keys.
type Keys struct {
	Taken      int       // how many of the runs have taken a slot of their key
	Looked     int       // keys in the line that the claim looked at
	Last       time.Time // the place of the last of these
	Read       int       // changes that were read
	LastChange int64     // the highest ID of these
	Busy       []Key     // of the keys handed, those that somebody else had locked
	Announce   []string  // queues of keys that have become due with room, of which the claim took nothing

	// What there is after the claim.
	Next   time.Time // the first place in the line; zero if no key has one
	Change int64     // the lowest ID of a change; zero if there is none
	RateAt time.Time // when the queue's rate allows the next start; zero if it has none
}

// The claim of a queue with limits counts its runs, so only one at a time may do so. The condition is that of claimLimited.
const lockQueue = `
SELECT c.task_queue FROM kagzi.queues c
WHERE c.task_queue = $2 AND c.namespace_id = $1 AND (c.max_running > 0 OR c.rate_interval > 0)
FOR UPDATE`

// The statement locks and returns the keys that claimKeys is to look at, in order:
//   - the first keys in the line (l), of the queue and of groups together: the next claim goes on behind the last of them;
//   - the keys of the oldest changes, and those that the worker hands on (e). A key that stands in the line already is not looked
//     at: whoever does that later sees what the change is about. The changes are deleted only under the key's lock: what the
//     change is about is committed, so a later statement that holds the lock sees it. If the line has enough keys for the
//     claim, the keys that the worker hands on are put at its end without a look.
//
// It waits for no lock on a key: somebody else looks at the key, and the changes stay. It waits only for another claim that
// inserts the same key, in order of the keys.
const lockKeys = `
WITH c AS MATERIALIZED (
	SELECT x.key_scope, x.run_key, x.change_id
	FROM unnest(ARRAY[$2::text, '']) AS s (key_scope)
	CROSS JOIN LATERAL (
		SELECT x.key_scope, x.run_key, x.change_id
		FROM kagzi.key_changes x
		WHERE x.key_scope = s.key_scope AND x.namespace_id = $1 AND x.change_id >= $7
		ORDER BY x.change_id
		LIMIT $8
	) x
), l AS MATERIALIZED (
	SELECT x.key_scope, x.run_key, x.available_at
	FROM unnest(ARRAY[$2::text, '']) AS s (key_scope)
	CROSS JOIN LATERAL (
		SELECT x.key_scope, x.run_key, x.available_at
		FROM kagzi.run_keys x
		WHERE x.key_scope = s.key_scope AND x.namespace_id = $1 AND x.available_at < 'infinity'
			AND x.available_at <= now() AND x.available_at >= timestamptz 'epoch' + $6::bigint * interval '1 microsecond'
		ORDER BY x.available_at
		LIMIT $3
		FOR UPDATE SKIP LOCKED
	) x
	ORDER BY x.available_at
	LIMIT $3
), e AS MATERIALIZED (
	SELECT u.key_scope, u.run_key, CASE WHEN min(u.handed) = 1 AND (SELECT count(*) FROM l) >= $3 THEN now() ELSE 'infinity' END AS place
	FROM (
		SELECT c.key_scope, c.run_key, 0 AS handed FROM c
		UNION ALL
		SELECT h.key_scope, h.run_key, 1 FROM unnest($4::text[], $5::text[]) AS h (key_scope, run_key)
	) u
	GROUP BY 1, 2
), o AS MATERIALIZED (
	SELECT e.key_scope, e.run_key, f.waits, e.place
	FROM e
	CROSS JOIN LATERAL (
		SELECT x.available_at > now() AS waits
		FROM kagzi.run_keys x
		WHERE x.key_scope = e.key_scope AND x.run_key = e.run_key AND x.namespace_id = $1
		FOR UPDATE SKIP LOCKED
	) f
), i AS (
	INSERT INTO kagzi.run_keys AS x (key_scope, run_key, namespace_id, available_at)
	SELECT e.key_scope, e.run_key, $1, e.place
	FROM e
	WHERE (SELECT count(*) FROM (
		SELECT FROM kagzi.run_keys x WHERE x.key_scope = e.key_scope AND x.run_key = e.run_key AND x.namespace_id = $1 LIMIT 1
	) k) = 0 OR e.place < 'infinity' AND EXISTS (SELECT FROM o WHERE o.waits AND o.key_scope = e.key_scope AND o.run_key = e.run_key)
	ORDER BY 1, 2
	ON CONFLICT (key_scope, run_key, namespace_id) DO UPDATE SET available_at = excluded.available_at WHERE excluded.available_at < x.available_at
	RETURNING key_scope, run_key, available_at = 'infinity' AS looks
), n AS MATERIALIZED (
	SELECT o.key_scope, o.run_key, o.waits AND o.place = 'infinity' AS looks FROM o
	UNION ALL
	SELECT i.key_scope, i.run_key, i.looks FROM i
), d AS (
	DELETE FROM kagzi.key_changes x
	WHERE x.key_scope = ANY (ARRAY[$2::text, '']) AND x.namespace_id = $1
		AND x.change_id = ANY (ARRAY (SELECT c.change_id FROM c JOIN n ON n.key_scope = c.key_scope AND n.run_key = c.run_key))
)
SELECT l.key_scope, l.run_key, l.available_at, true, 0::bigint, 0::bigint FROM l
UNION ALL
SELECT n.key_scope, n.run_key, NULL, n.looks, 0, 0 FROM n
UNION ALL
SELECT NULL, NULL, NULL, false, count(*), coalesce(max(c.change_id), 0) FROM c
ORDER BY 3`

// How many tokens a rate has now. The columns of c are rate_at, rate_interval and rate_burst, and that of t is now.
const tokens = `CASE WHEN c.rate_at > t.now THEN 0 WHEN c.rate_interval > 0 THEN
		LEAST(c.rate_burst, floor(extract(epoch FROM t.now - GREATEST(c.rate_at, t.now - (c.rate_burst - 1) * c.rate_interval * interval '1 microsecond')) * 1000000 / c.rate_interval) + 1) END`

// What the limits of a queue leave to a claim that holds the queue's lock: room for so many runs that take a slot, of the $7
// that the worker takes.
const roomOfQueue = `limits AS MATERIALIZED (
	SELECT t.now, coalesce(c.limited, false) AS limited, CASE WHEN c.held THEN 2 ELSE 1 END::smallint AS slot, c.rate_interval, c.rate_burst, c.rate_at,
		c.key_max_running, c.key_interval, c.key_burst,
		GREATEST(0, LEAST($7::int,
			CASE WHEN c.max_running > 0 THEN c.max_running - (
				SELECT count(*) FROM (
					SELECT FROM kagzi.workflow_runs WHERE task_queue = $2 AND namespace_id = $1 AND ` + holds + ` LIMIT c.max_running
				) x
			) END,
			CASE WHEN (SELECT p.everything FROM paused p) THEN 0 END, ` + tokens + `))::int AS room
	FROM (SELECT now() AS now) t
	LEFT JOIN LATERAL (
		SELECT x.*, x.max_running > 0 OR coalesce(x.rate_interval > 0, false) AS limited
		FROM kagzi.queues x
		WHERE x.task_queue = $2 AND x.namespace_id = $1
		OFFSET 0
	) c ON true
)`

// Takes the tokens of the queue's rate for the runs of the CTE due.
const spendTokens = `rate AS MATERIALIZED (
	SELECT GREATEST(q.rate_at, q.now - (q.rate_burst - 1) * q.rate_interval * interval '1 microsecond') + n.taken * q.rate_interval * interval '1 microsecond' AS rate_at
	FROM limits q
	CROSS JOIN (SELECT count(*) AS taken FROM due WHERE NOT due.holding) n
	WHERE q.rate_interval > 0 AND n.taken > 0
), spent AS (
	UPDATE kagzi.queues x
	SET rate_at = rate.rate_at
	FROM rate
	WHERE x.task_queue = $2 AND x.namespace_id = $1
)`

// claimLimited is claimRuns for a queue that may have limits, after lockQueue: it takes no more runs than these leave. A run
// that holds a slot needs no room. While there is room, such runs are among the others; else the statement finds them by their
// index (h).
const claimLimited = `
WITH ` + pausesNow + `, ` + roomOfQueue + `, h AS MATERIALIZED (
	SELECT q.run_id, q.workflow_type, q.priority, q.status, q.version, q.recoveries, q.started_at, q.deadline_at, q.available_at AS since, now() AS now,
		q.status = 'RUNNING' AND q.recoveries + 1 >= 3 AS set_back
	FROM kagzi.workflow_runs q
	WHERE (SELECT k.limited AND k.room = 0 FROM limits k) AND q.namespace_id = $1 AND q.task_queue = $2 AND ` + holds + `
		AND q.available_at <= now() AND q.workflow_type = ANY ($3::text[]) AND q.recoveries < $11 AND q.outcome IS NULL AND q.paused_at IS NULL
		AND (SELECT NOT p.everything FROM paused p) AND ` + unpausedHolder + `
	LIMIT $7
	FOR UPDATE SKIP LOCKED
), due AS MATERIALIZED (
	` + claimDue + `
	UNION ALL
	SELECT h.run_id, h.status, h.version, h.started_at, w.initial, 0, h.since, h.now, h.set_back, true, (SELECT k.slot FROM limits k),
		LEAST(h.now + CASE WHEN h.set_back THEN interval '1 minute' ELSE $10::bigint * interval '1 microsecond' END,
			CASE WHEN h.deadline_at > h.now THEN h.deadline_at + interval '3 seconds' END)
	FROM h
	CROSS JOIN LATERAL (
		SELECT w.initial
		FROM unnest($3::text[], $4::smallint[], $5::text[], $6::int[]) AS w (workflow_type, priority, versions, initial)
		WHERE w.workflow_type = h.workflow_type AND w.priority = h.priority AND (h.version IS NULL OR h.version = ANY (w.versions::int[]))
		LIMIT 1
	) w
), ` + claimUpdate + `, ` + spendTokens + `
SELECT t.now, (SELECT p.some OR p.keys FROM paused p), (SELECT k.limited FROM limits k), (SELECT k.room FROM limits k) - (SELECT count(*) FROM due WHERE NOT due.holding)::int,` + claimResult

// Whether the key x is paused.
const keyPaused = `(SELECT p.some FROM paused p) AND (
				SELECT count(*) FROM pauses p
				WHERE p.of_type = '' AND p.in_queue IN ('', x.key_scope) AND NOT p.releases AND (pg_catalog.hashtext(x.run_key) & 2147483647) % 100 >= p.percent
			) > 0 OR (SELECT p.keys FROM paused p) AND (
				SELECT count(*) FROM (
					SELECT FROM kagzi.pauses p WHERE p.run_key = x.run_key AND p.key_scope = x.key_scope AND p.namespace_id = $1 LIMIT 1
				) p
			) > 0`

// Locks the pauses: see claimKeys.
const steady = `steady AS MATERIALIZED (
	SELECT p.paused_at FROM kagzi.pauses p WHERE p.run_key = '' AND p.namespace_id = $1 FOR SHARE SKIP LOCKED
), `

// The place of a key if somebody ends a pause.
const placeOfPaused = `CASE WHEN (SELECT count(*) FROM pauses) > (SELECT count(*) FROM steady) THEN s.now + interval '1 second' END`

// claimKeys takes runs of the keys that lockKeys has locked, in an earlier statement of the transaction: so it counts all runs
// that others have taken under these locks. In their order each key gets the rest of its turn, which is as many runs as its weight, and
// further turns while there is room for those of all (a). A key whose limit is one run until its end is a sequence: only its first due run may
// be taken (strict).
//
// Then each key gets its next place (p): none while all its slots are taken or no run waits; the time of the next token, or of
// the next run; else it stays in the line, at its end once its turn is over. The place of a key of which this worker could
// execute no run stays.
//
// A key also has no place while it is paused, or all of its waiting runs are. Whoever ends a pause leaves changes of the keys that
// have such runs. It could miss a key of a run that is younger than its search, if it commits after this claim has seen the pause.
// So the claim locks the pauses (steady). Then whoever ends one waits for the claim before it searches, or the claim finds
// its lock, and the keys are looked at again soon.
//
// The places are written by ON CONFLICT, because the planner could read all keys for a join.
const claimKeys = `
WITH ` + pausesNow + `, ` + steady + roomOfQueue + `, k AS MATERIALIZED (
	SELECT c.*, n.running, c.paused OR c.max_running <= n.running AS full, ` + tokens + ` AS tokens
	FROM limits t
	CROSS JOIN LATERAL (
		SELECT u.place, x.key_scope, x.run_key, x.available_at, x.rate_at, x.credit, coalesce(x.weight, 1) AS weight,
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
	CROSS JOIN LATERAL (
		SELECT CASE WHEN c.key_scope = '' THEN (
			SELECT count(*) FROM kagzi.workflow_runs WHERE run_key = c.run_key AND namespace_id = $1 AND ` + holdsGroup + `
		) WHEN c.max_running > 0 THEN (
			SELECT count(*) FROM (
				SELECT FROM kagzi.workflow_runs
				WHERE task_queue = $2 AND namespace_id = $1 AND run_key = c.run_key AND ` + holds + ` AND key_scope <> ''
				LIMIT c.max_running
			) x
		) ELSE 0 END AS running
		OFFSET 0
	) n
), a AS MATERIALIZED (
	SELECT m.*, GREATEST(0, LEAST(m.turn, m.room - m.before, m.max_running - m.running, m.tokens))::int AS allowed, m.slot = 2 AND coalesce(m.max_running = 1, false) AS strict
	FROM (
		SELECT r.*, sum(r.turn) OVER (ORDER BY r.place) - r.turn AS before
		FROM (
			SELECT f.*, f.rest + CASE WHEN f.rest > 0
				THEN f.weight * GREATEST(0, (f.room - sum(f.rest) OVER ()) / sum(CASE WHEN f.rest > 0 THEN f.weight ELSE 0 END) OVER ()) ELSE 0 END AS turn
			FROM (
				SELECT k.*, q.room, q.now, CASE WHEN k.full OR k.tokens = 0 THEN 0 WHEN k.credit > 0 THEN k.credit ELSE k.weight END AS rest
				FROM k CROSS JOIN limits q
			) f
		) r
	) m
), due AS MATERIALIZED (
	SELECT r.run_id, r.status, r.version, r.started_at, ($6::int[])[array_position($3::text[], r.workflow_type)] AS initial, r.since, a.now, false AS set_back, false AS holding,
		a.slot, a.place,
		LEAST(a.now + $10::bigint * interval '1 microsecond', CASE WHEN r.deadline_at > a.now THEN r.deadline_at + interval '3 seconds' END) AS available_at
	FROM a
	CROSS JOIN LATERAL (
		(
			SELECT r.run_id, r.status, r.version, r.started_at, r.workflow_type, r.deadline_at, r.since
			FROM unnest($4::smallint[]) AS p (priority)
			CROSS JOIN LATERAL (
				SELECT x.run_id, x.status, x.version, x.started_at, x.workflow_type, x.deadline_at, x.available_at AS since
				FROM kagzi.workflow_runs x
				WHERE x.key_scope = a.key_scope AND x.namespace_id = $1 AND x.run_key = a.run_key AND x.priority = p.priority
					AND ` + waits + ` AND x.available_at <= now() AND x.outcome IS NULL AND x.task_queue = $2 AND ` + unpaused + `
					AND x.workflow_type || '/' || coalesce(x.version::text, '') = ANY ($5::text[]) AND x.recoveries < $11
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
				WHERE x.key_scope = a.key_scope AND x.namespace_id = $1 AND x.run_key = a.run_key AND x.priority = p.priority
					AND ` + waits + ` AND x.available_at <= now() AND x.outcome IS NULL AND ` + unpaused + `
				ORDER BY x.available_at, x.run_id
				LIMIT 1
			) r
			WHERE a.strict AND a.allowed > 0
			LIMIT 1
		) h
		CROSS JOIN LATERAL (
			SELECT x.run_id, x.status, x.version, x.started_at, x.workflow_type, x.deadline_at, x.available_at AS since
			FROM kagzi.workflow_runs x
			WHERE x.run_id = h.run_id AND x.namespace_id = $1 AND x.status NOT IN ('RUNNING', 'COMPLETED', 'FAILED', 'CANCELLED') AND x.slot IS DISTINCT FROM 2 AND x.paused_at IS NULL AND x.available_at <= now() AND x.outcome IS NULL AND x.task_queue = $2
				AND x.workflow_type || '/' || coalesce(x.version::text, '') = ANY ($5::text[]) AND x.recoveries < $11
			FOR UPDATE SKIP LOCKED
		) r
	) r
), ` + claimUpdate + `, ` + spendTokens + `, s AS MATERIALIZED (
	SELECT a.key_scope, a.run_key, a.available_at AS before, a.now, a.credit, a.weight, coalesce(t.taken, 0) AS taken, a.paused OR a.max_running <= a.running + coalesce(t.taken, 0) AS full,
		CASE WHEN t.taken > 0 AND a.rate_interval > 0
			THEN GREATEST(a.rate_at, a.now - (a.rate_burst - 1) * a.rate_interval * interval '1 microsecond') + t.taken * a.rate_interval * interval '1 microsecond'
			ELSE a.rate_at END AS rate_at, a.rate_at AS old_rate_at,
		CASE WHEN a.paused OR a.max_running <= a.running + coalesce(t.taken, 0) THEN NULL ELSE (
			SELECT min(n.available_at)
			FROM generate_series(1, 4) AS p (priority)
			CROSS JOIN LATERAL (
				SELECT x.available_at
				FROM kagzi.workflow_runs x
				WHERE x.key_scope = a.key_scope AND x.namespace_id = $1 AND x.run_key = a.run_key AND x.priority = p.priority
					AND ` + waits + ` AND x.outcome IS NULL AND x.run_id <> ALL (coalesce(t.runs, '{}')) AND ` + unpaused + `
				ORDER BY x.available_at
				LIMIT 1
			) n
		) END AS next
	FROM a
	LEFT JOIN (SELECT due.place, count(*)::int AS taken, pg_catalog.array_agg(due.run_id) AS runs FROM due GROUP BY 1) t ON t.place = a.place
), p AS MATERIALIZED (
	SELECT s.key_scope, s.run_key, s.rate_at, s.before, s.credit AS old_credit, s.old_rate_at,
		s.taken = 0 AND s.before > s.now AND NOT coalesce(s.full OR s.rate_at > s.now, false) AND s.next <= s.now AS entered,
		CASE WHEN s.full OR s.next > s.now OR s.next IS NULL OR s.rate_at > s.now THEN 0
			WHEN s.taken = 0 THEN s.credit
			ELSE GREATEST(0, CASE WHEN s.credit > 0 THEN s.credit ELSE s.weight END - s.taken) END AS credit,
		LEAST(CASE WHEN s.full THEN timestamptz 'infinity'
			WHEN s.next > s.now OR s.next IS NULL THEN coalesce(GREATEST(s.next, s.rate_at), 'infinity')
			WHEN s.rate_at > s.now THEN s.rate_at
			WHEN s.before <= s.now AND (s.taken = 0 OR CASE WHEN s.credit > 0 THEN s.credit ELSE s.weight END > s.taken) THEN s.before
			ELSE clock_timestamp() END,
			` + placeOfPaused + `) AS available_at
	FROM s
), moved AS (
	INSERT INTO kagzi.run_keys AS x (key_scope, run_key, namespace_id, available_at, credit, rate_at)
	SELECT p.key_scope, p.run_key, $1, p.available_at, p.credit, p.rate_at
	FROM p
	WHERE (p.before, p.old_credit, p.old_rate_at) IS DISTINCT FROM (p.available_at, p.credit, p.rate_at)
	ON CONFLICT (key_scope, run_key, namespace_id) DO UPDATE SET available_at = excluded.available_at, credit = excluded.credit, rate_at = excluded.rate_at
)
SELECT t.now, (SELECT k.room FROM limits k) - (SELECT count(*) FROM due)::int, ARRAY (
		SELECT DISTINCT CASE WHEN p.key_scope <> '' THEN p.key_scope ELSE (
			SELECT r.task_queue
			FROM generate_series(1, 4) AS n (priority)
			CROSS JOIN LATERAL (
				SELECT x.task_queue
				FROM kagzi.workflow_runs x
				WHERE x.key_scope = p.key_scope AND x.namespace_id = $1 AND x.run_key = p.run_key AND x.priority = n.priority AND ` + waits + ` AND x.outcome IS NULL AND ` + unpaused + `
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

// What is left in the line, and of the changes. After claimKeys the statement sees what that has written.
const nextKeys = `
SELECT (
		SELECT min(n.available_at)
		FROM unnest(ARRAY[$2::text, '']) AS s (key_scope)
		CROSS JOIN LATERAL (
			SELECT x.available_at
			FROM kagzi.run_keys x
			WHERE x.key_scope = s.key_scope AND x.namespace_id = $1 AND x.available_at < 'infinity'
				AND x.available_at >= timestamptz 'epoch' + $3::bigint * interval '1 microsecond'
			ORDER BY x.available_at
			LIMIT 1
		) n
	), coalesce((
		SELECT min(n.change_id)
		FROM unnest(ARRAY[$2::text, '']) AS s (key_scope)
		CROSS JOIN LATERAL (
			SELECT x.change_id
			FROM kagzi.key_changes x
			WHERE x.key_scope = s.key_scope AND x.namespace_id = $1 AND x.change_id >= $4
			ORDER BY x.change_id
			LIMIT 1
		) n
	), 0), (
		SELECT c.rate_at FROM kagzi.queues c WHERE c.task_queue = $2 AND c.namespace_id = $1 AND c.rate_interval > 0
	)`

// claimKeyed is Claim for a queue that has keys or limits. It is one transaction and two round trips: the first locks what the second
// counts, and takes runs without keys. Its commit waits for the disk: a claim that a crash of the server undoes would leave
// executions that no limit counts.
func (s *Store) claimKeyed(ctx context.Context, req ClaimRequest, statements claimStatements) (claim Claim, err error) {
	var locked lockedKeys
	plain, keyed := req, req
	plain.Limit = min(req.Keys.Plain, req.Limit)
	asked := time.Now()
	scopes, keys := keyArrays(req.Keys.Handed, req.Queue)
	first, then := &pgx.Batch{}, &pgx.Batch{}
	first.Queue(lockQueue, s.namespace, req.Queue)
	first.Queue(lockKeys, s.namespace, req.Queue, req.Keys.Keyed, scopes, keys, epoch(req.Keys.Line), req.Keys.Change, req.Keys.Most)
	first.Queue(statements.limited, s.claimArgs(plain)...)
	err = converse(ctx, s.pool, brief, first, []func(pgx.Rows) error{nil, locked.read, plain.reads(&claim, statements, asked)}, func() (*pgx.Batch, []func(pgx.Rows) error) {
		claim.Keys = locked.Keys
		claim.Keys.Busy = locked.missing(req.Keys.Handed, req.Queue)
		var reads []func(pgx.Rows) error
		if len(locked.names) > 0 {
			keyed.Limit = min(req.Keys.Keyed, req.Limit-len(claim.Runs))
			then.Queue(statements.keys, s.keyedArgs(keyed, locked.scopes, locked.names)...)
			reads = append(reads, func(rows pgx.Rows) error {
				runs, err := readClaimed(rows, req.Queue, asked, &claim.Now, &claim.Room, &claim.Keys.Announce)
				claim.Keys.Taken, claim.Runs = len(runs), append(runs, claim.Runs...)
				return err
			})
		}
		then.Queue(nextKeys, s.nextKeysArgs(req)...)
		return then, append(reads, claim.Keys.readNext)
	})
	return claim, err
}

// nextKeysArgs returns the arguments of nextKeys.
func (s *Store) nextKeysArgs(req ClaimRequest) []any {
	var line time.Time
	var change int64
	if req.Keys != nil {
		line, change = req.Keys.Line, req.Keys.Change
	}
	return []any{s.namespace, req.Queue, epoch(line), change}
}

// readNext reads the answer of nextKeys.
func (k *Keys) readNext(rows pgx.Rows) error {
	_, err := pgx.ForEachRow(rows, []any{utc(&k.Next), &k.Change, utc(&k.RateAt)}, func() error { return nil })
	return err
}

// keyedArgs returns the arguments of claimKeys.
func (s *Store) keyedArgs(req ClaimRequest, scopes, keys []string) []any {
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

// lockedKeys is the answer of lockKeys.
type lockedKeys struct {
	Keys
	scopes, names []string           // of the keys to look at
	all           map[[2]string]bool // by scope and name; false: not to be looked at
}

func (l *lockedKeys) read(rows pgx.Rows) error {
	l.all = map[[2]string]bool{}
	var scope, name *string
	var place time.Time
	var looks bool
	var changes int
	var last int64
	_, err := pgx.ForEachRow(rows, []any{&scope, &name, utc(&place), &looks, &changes, &last}, func() error {
		if scope == nil {
			l.Read, l.LastChange = changes, last
			return nil
		}
		if !place.IsZero() {
			l.Looked, l.Last = l.Looked+1, place
		}
		k := [2]string{*scope, *name}
		if looks && !l.all[k] {
			l.scopes, l.names = append(l.scopes, *scope), append(l.names, *name)
		}
		l.all[k] = l.all[k] || looks
		return nil
	})
	return err
}

// missing returns those of the keys that were not locked.
func (l *lockedKeys) missing(keys []Key, queue string) (missing []Key) {
	for _, k := range keys {
		if _, ok := l.all[[2]string{k.scope(queue), k.Name}]; !ok && k != (Key{}) {
			missing = append(missing, k)
		}
	}
	return missing
}

// keyArrays returns the keys as two arrays, without the zero key.
func keyArrays(keys []Key, queue string) (scopes, names []string) {
	for _, k := range keys {
		if k != (Key{}) {
			scopes, names = append(scopes, k.scope(queue)), append(names, k.Name)
		}
	}
	return scopes, names
}

const leaveChanges = `
WITH k AS MATERIALIZED (
	SELECT u.key_scope, u.run_key FROM unnest($2::text[], $3::text[]) AS u (key_scope, run_key)
), ` + insertChanges + ` k WHERE k.run_key IS NOT NULL
)
SELECT count(*) FROM k`

// LeaveChanges lets other workers look at keys of which this one has given up slots.
func (s *Store) LeaveChanges(ctx context.Context, queue string, handed []Key) error {
	scopes, keys := keyArrays(handed, queue)
	if keys == nil {
		return nil
	}
	return wrap("hand on slots", do(ctx, func(ctx context.Context) error {
		return ask(ctx, s.pool, leaveChanges, []any{s.namespace, scopes, keys}, nil)
	}))
}
