package inspect

import (
	"context"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/store"
	"github.com/kagzi/kagzi/store/internal/clause"
)

// A QueueState is a queue that has limits, and the use of them.
type QueueState struct {
	store.QueueLimits
	Origin  store.Origin
	Running int // runs that hold a slot; counting stops at maxSlotsCounted
	// since when the first run or key waits that is due and has, or needs, no slot of a key; zero if none does
	Since     time.Time
	Waiting   time.Duration
	NextStart time.Time // when the rate allows the next start; zero if it allows one now
	RateUsed  bool      // a run took the newest token of the rate within the last few seconds
	ChangedAt time.Time
}

// maxSlotsCounted is how many slots of a queue are counted.
const maxSlotsCounted = 10_000

// The statement finds the first due run without a key of each workflow and priority by the claim's index: see
// activeTypes. Keys in the line have a due run and a free slot.
const queueStates = `
SELECT c.task_queue, coalesce(c.max_running, 0), coalesce(c.rate_interval, 0), c.rate_burst,
	coalesce(c.key_max_running, 0), coalesce(c.key_interval, 0), c.key_burst, c.held,
	n.running, s.since, coalesce((extract(epoch FROM now() - s.since) * 1000000)::bigint, 0),
		CASE WHEN c.rate_at > now() THEN c.rate_at END,
	coalesce(c.rate_interval > 0 AND c.rate_at > now() - interval '5 seconds', false), c.changed_at, c.declared,
	c.set_by
FROM (
	SELECT x.*
	FROM kagzi.queues x
	WHERE x.namespace_id = $1 AND x.task_queue > '' AND ` + clause.HasLimits + `
	ORDER BY x.task_queue
	LIMIT $2
) c
CROSS JOIN LATERAL (
	SELECT count(*) AS running FROM (
		SELECT FROM kagzi.workflow_runs WHERE task_queue = c.task_queue AND namespace_id = $1 AND ` +
	clause.Holds + ` LIMIT $3
	) x
) n
CROSS JOIN LATERAL (
	SELECT LEAST((
		SELECT min(f.available_at) FROM (
			SELECT x.available_at
			FROM kagzi.run_keys x
			WHERE x.key_scope = c.task_queue AND x.namespace_id = $1 AND x.available_at < 'infinity'
				AND x.available_at <= now()
			ORDER BY x.available_at
			LIMIT 1
		) f
	), (
		WITH RECURSIVE types (workflow_type) AS (
			(
				SELECT r.workflow_type
				FROM kagzi.workflow_runs r
				WHERE ` +
	clause.Claimable + ` AND r.task_queue = c.task_queue AND r.namespace_id = $1 AND r.workflow_type > ''
				ORDER BY r.workflow_type
				LIMIT 1
			)
			UNION ALL
			SELECT n.workflow_type
			FROM types
			CROSS JOIN LATERAL (
				SELECT r.workflow_type
				FROM kagzi.workflow_runs r
				WHERE ` +
	clause.Claimable + ` AND r.task_queue = c.task_queue AND r.namespace_id = $1
		AND r.workflow_type > types.workflow_type
				ORDER BY r.workflow_type
				LIMIT 1
			) n
		)
		SELECT min(d.available_at)
		FROM (SELECT types.workflow_type, p.priority FROM types CROSS JOIN generate_series(1, 4) AS p (priority)
			LIMIT 400) w
		CROSS JOIN LATERAL (
			SELECT r.available_at
			FROM kagzi.workflow_runs r
			WHERE r.namespace_id = $1 AND r.task_queue = c.task_queue AND r.workflow_type = w.workflow_type
				AND r.priority = w.priority
				AND ` +
	clause.Claimable + ` AND r.available_at <= now() AND r.status <> 'RUNNING' AND r.slot IS DISTINCT FROM 2
			ORDER BY r.available_at
			LIMIT 1
		) d
	)) AS since
) s
ORDER BY 1`

// QueueStates returns the first thousand queues that have limits, by name.
func (s *Lists) QueueStates(ctx context.Context, db pg.DB) (out []QueueState, err error) {
	if db == nil {
		db = s.pool
	}
	err = pg.Do(ctx, func(ctx context.Context) error {
		return pg.Ask(ctx, db, queueStates, []any{s.namespace, clause.MaxQueues, maxSlotsCounted},
			pg.Collect(&out, func(row pgx.CollectableRow) (q QueueState, err error) {
				var interval, keyInterval, waiting int64
				err = row.Scan(&q.Queue, &q.MaxRunning, &interval, &q.Rate.Burst, &q.EachKey.MaxRunning, &keyInterval,
					&q.EachKey.Rate.Burst, &q.Held,
					&q.Running, pg.UTC(&q.Since), &waiting, pg.UTC(&q.NextStart), &q.RateUsed, pg.UTC(&q.ChangedAt),
					&q.Origin.Declared, &q.Origin.Set)
				q.Rate, q.EachKey.Rate = rateOf(interval, q.Rate.Burst), rateOf(keyInterval, q.EachKey.Rate.Burst)
				q.Waiting = time.Duration(waiting) * time.Microsecond
				return q, err
			}))
	})
	return out, pg.Wrap("read the queues", err)
}

// rateOf returns the Rate with so many microseconds between two tokens, zero if there are none.
func rateOf(interval int64, burst int) store.Rate {
	if interval == 0 {
		return store.Rate{}
	}
	return store.Rate{Interval: time.Duration(interval) * time.Microsecond, Burst: burst}
}

// A KeyFilter chooses keys of a queue, or groups.
type KeyFilter struct {
	Queue  string // empty: groups
	Prefix string // of the keys
	After  string // with ByName, only later keys
	Order  KeyOrder
	Limit  int
}

// A KeyOrder is an order of keys.
type KeyOrder int

// The orders of keys.
const (
	ByName KeyOrder = iota
	Fullest
	LongestWaiting
)

// A KeyState is a key and the use of its limits.
type KeyState struct {
	Key     string
	Limits  store.KeyLimits // its own
	Running int             // runs that hold a slot; counting stops at some number, as for Waiting
	Waiting int             // runs that are due and wait for a slot
	Since   time.Time       // since when the first of these is due; zero if there is none
	Next    time.Time       // when a claim looks at the key next; zero if only an event makes it look
}

// The keys from which Keys chooses: by name; by name with a prefix; those of runs that hold slots, with the most of
// them; and those that claims look at soon, with those of runs that hold slots, since keys whose slots are all taken
// stand in no line. They read a bounded number of rows, so of many thousands of keys the last two may miss some.
const (
	keysByName = `
SELECT x.run_key
FROM kagzi.run_keys x
WHERE x.key_scope = $2 AND x.namespace_id = $1 AND x.run_key > $4
ORDER BY x.run_key
LIMIT $3`
	keysByPrefix = `
SELECT x.run_key
FROM kagzi.run_keys x
WHERE x.key_scope = $2 AND x.namespace_id = $1 AND x.run_key > $4 AND x.run_key >= $5 AND x.run_key < $6
ORDER BY x.run_key
LIMIT $3`
	keysFullest = `
SELECT h.run_key
FROM (` + holdersOfKeys + `) h
GROUP BY h.run_key
ORDER BY count(*) DESC, h.run_key
LIMIT $3`
	keysWaiting = `
SELECT l.run_key
FROM (
	SELECT x.run_key
	FROM kagzi.run_keys x
	WHERE x.key_scope = $2 AND x.namespace_id = $1 AND x.available_at < 'infinity'
	ORDER BY x.available_at
	LIMIT $3
) l
UNION
(
	SELECT DISTINCT h.run_key
	FROM (` + holdersOfKeys + `) h
	LIMIT $3
)`

	// The keys of runs of the scope $2 that hold slots.
	holdersOfKeys = `
	(
		SELECT run_key
		FROM kagzi.workflow_runs
		WHERE $2::text <> '' AND task_queue = $2 AND namespace_id = $1 AND run_key IS NOT NULL
			AND ` + clause.Holds + ` AND key_scope <> ''
		LIMIT 10000
	)
	UNION ALL
	(
		SELECT run_key
		FROM kagzi.workflow_runs
		WHERE $2::text = '' AND run_key > '' AND namespace_id = $1 AND ` + clause.HoldsGroup + `
		LIMIT 10000
	)
`
)

// The statement orders its keys, and returns the first of them.
const keyStates = `
WITH states AS MATERIALIZED (
	SELECT keys.run_key, n.running, w.since
	FROM unnest($6::text[]) AS keys (run_key)
	CROSS JOIN LATERAL (
		SELECT CASE WHEN $2::text = '' THEN (
			SELECT count(*) FROM kagzi.workflow_runs WHERE run_key = keys.run_key AND namespace_id = $1
				AND ` + clause.HoldsGroup + `
		) ELSE (
			SELECT count(*) FROM (
				SELECT FROM kagzi.workflow_runs
				WHERE task_queue = $2 AND namespace_id = $1 AND run_key = keys.run_key
					AND ` + clause.Holds + ` AND key_scope <> ''
				LIMIT $5
			) x
		) END AS running
	) n
	CROSS JOIN LATERAL (
		SELECT min(d.available_at) AS since
		FROM generate_series(1, 4) AS p (priority)
		CROSS JOIN LATERAL (
			SELECT x.available_at
			FROM kagzi.workflow_runs x
			WHERE x.key_scope = $2 AND x.namespace_id = $1 AND x.run_key = keys.run_key AND x.priority = p.priority
				AND ` + clause.Waits + ` AND x.available_at <= now()
			ORDER BY x.available_at
			LIMIT 1
		) d
	) w
	WHERE $3::int <> 2 OR w.since IS NOT NULL
	ORDER BY CASE WHEN $3::int = 1 THEN -n.running END, CASE WHEN $3::int = 2 THEN w.since END, keys.run_key
	LIMIT $4
)
SELECT states.run_key, coalesce(f.max_running, 0), coalesce(f.weight, 0), coalesce(f.rate_interval, 0),
	coalesce(f.rate_burst, 1), states.running, (
		SELECT count(*) FROM (
			SELECT FROM generate_series(1, 4) AS p (priority)
			CROSS JOIN LATERAL (
				SELECT FROM kagzi.workflow_runs x
				WHERE x.key_scope = $2 AND x.namespace_id = $1 AND x.run_key = states.run_key
					AND x.priority = p.priority
					AND ` + clause.Waits + ` AND x.available_at <= now()
				LIMIT $5
			) r
			WHERE states.since IS NOT NULL
			LIMIT $5
		) x
	), states.since, NULLIF(f.available_at, 'infinity')
FROM states
LEFT JOIN LATERAL (
	SELECT x.* FROM kagzi.run_keys x
	WHERE x.key_scope = $2 AND x.run_key = states.run_key AND x.namespace_id = $1
	OFFSET 0
) f ON true
ORDER BY CASE WHEN $3::int = 1 THEN -states.running END, CASE WHEN $3::int = 2 THEN states.since END, states.run_key`

// Bounds of Keys.
const (
	leastCandidates = 500    // keys among which it looks for the fullest, or those that wait the longest
	maxKeyRuns      = 1000   // runs of one key that are counted
	minKeyRuns      = 20     // the same, however many keys are asked for
	maxKeyTotal     = 20_000 // runs that are counted in all, about
)

// Keys returns up to f.Limit keys.
func (s *Lists) Keys(ctx context.Context, db pg.DB, f KeyFilter) (out []KeyState, err error) {
	if db == nil {
		db = s.pool
	}
	err = pg.Do(ctx, func(ctx context.Context) error {
		var keys []string
		statement, args := f.candidates(s.namespace)
		if err := pg.Ask(ctx, db, statement, args, pg.Collect(&keys, pgx.RowTo[string])); err != nil || len(keys) == 0 {
			return err
		}
		return pg.Ask(ctx, db, keyStates, f.args(s.namespace, keys), pg.Collect(&out, readKeyState))
	})
	return out, pg.Wrap("read the keys", err)
}

func readKeyState(row pgx.CollectableRow) (k KeyState, err error) {
	var interval int64
	var burst int
	err = row.Scan(&k.Key, &k.Limits.MaxRunning, &k.Limits.Weight, &interval, &burst, &k.Running, &k.Waiting,
		pg.UTC(&k.Since), pg.UTC(&k.Next))
	k.Limits.Rate = rateOf(interval, burst)
	return k, err
}

// candidates returns the statement that finds the keys from which Keys chooses.
func (f KeyFilter) candidates(namespace string) (sql string, args []any) {
	most := f.Limit
	if f.Order != ByName {
		most = max(f.Limit, leastCandidates)
	}
	switch {
	case f.Prefix != "":
		if f.Order != ByName {
			most *= 2
		}
		return keysByPrefix, []any{namespace, f.Queue, most, f.After, f.Prefix, afterPrefix(f.Prefix)}
	case f.Order == Fullest:
		return keysFullest, []any{namespace, f.Queue, most}
	case f.Order == LongestWaiting:
		return keysWaiting, []any{namespace, f.Queue, most}
	default:
		return keysByName, []any{namespace, f.Queue, most, f.After}
	}
}

// args returns the arguments of keyStates.
func (f KeyFilter) args(namespace string, keys []string) []any {
	counted := max(minKeyRuns, min(maxKeyRuns, maxKeyTotal/max(f.Limit, 1)))
	return []any{namespace, f.Queue, int(f.Order), f.Limit, counted, keys}
}

// afterPrefix returns the first text, in the order of bytes, that is after all those with the prefix. If the prefix
// ends with the last character, it misses texts: there is none in Unicode.
func afterPrefix(prefix string) string {
	r, size := utf8.DecodeLastRuneInString(prefix)
	next := r + 1
	if next == 0xD800 { // no characters are from here to 0xDFFF
		next = 0xE000
	}
	return prefix[:len(prefix)-size] + string(next)
}
