package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/store/internal/clause"
)

// A Rate limits how often a run takes a slot; the zero Rate does not.
type Rate struct {
	Interval time.Duration // between two tokens, in whole microseconds
	Burst    int           // how many tokens may be saved up; at least one
}

// KeyLimits are the limits of a key. A zero field is no limit; of a key's own limits, that of its queue.
type KeyLimits struct {
	MaxRunning int
	Weight     int // how many runs the key starts in its turn; zero: one
	Rate       Rate
}

// QueueLimits are the limits of a queue. A zero field is no limit.
type QueueLimits struct {
	Queue      string
	MaxRunning int
	Rate       Rate
	EachKey    KeyLimits // without a weight
	Held       bool      // a run holds its slot until it ends
}

// limits reports whether there is any limit.
func (q *QueueLimits) limits() bool { return *q != QueueLimits{Queue: q.Queue} }

const setQueue = `
INSERT INTO kagzi.queues AS x (task_queue, namespace_id, max_running, rate_interval, rate_burst, key_max_running,
	key_interval, key_burst, held)
VALUES ($2, $1, NULLIF($3::int, 0), NULLIF($4::bigint, 0), GREATEST($5::int, 1), NULLIF($6::int, 0),
	NULLIF($7::bigint, 0), GREATEST($8::int, 1), $9::bool)
ON CONFLICT (task_queue, namespace_id) DO UPDATE
SET max_running = excluded.max_running, rate_interval = excluded.rate_interval, rate_burst = excluded.rate_burst,
	rate_at = CASE WHEN excluded.rate_interval > 0 THEN x.rate_at END, key_max_running = excluded.key_max_running,
	key_interval = excluded.key_interval, key_burst = excluded.key_burst, held = excluded.held,
	changed_at = excluded.changed_at, settled = false, slots_from = excluded.slots_from
WHERE (x.max_running, x.rate_interval, x.rate_burst, x.key_max_running, x.key_interval, x.key_burst, x.held)
	IS DISTINCT FROM (excluded.max_running, excluded.rate_interval, excluded.rate_burst, excluded.key_max_running,
		excluded.key_interval, excluded.key_burst, excluded.held)`

// A slower rate may have moved the next token into the far future: it comes an interval from now at the latest.
const capQueueRate = `
WITH bound AS MATERIALIZED (
	SELECT now() + $3::bigint * interval '1 microsecond' AS latest
)
UPDATE kagzi.queues x
SET rate_at = bound.latest
FROM bound
WHERE x.task_queue = $2 AND x.namespace_id = $1 AND x.rate_at > bound.latest`

const noteQueue = `
WITH noted AS MATERIALIZED (SELECT $4::jsonb || jsonb_build_object('at', clock_timestamp()) AS set_by)
UPDATE kagzi.queues x
SET declared = $3::jsonb, set_by = noted.set_by
FROM noted
WHERE x.task_queue = $2 AND x.namespace_id = $1`

// The row exists, so that its lock keeps another change out.
const nameQueue = `
INSERT INTO kagzi.queues (task_queue, namespace_id) VALUES ($2, $1) ON CONFLICT (task_queue, namespace_id) DO NOTHING`

const declareQueue = `UPDATE kagzi.queues x SET declared = $3::jsonb WHERE x.task_queue = $2 AND x.namespace_id = $1`

const unsettled = `SELECT NOT c.settled FROM kagzi.queues c WHERE c.task_queue = $2 AND c.namespace_id = $1`

const queueBefore = `
SELECT coalesce(c.max_running, 0), coalesce(c.rate_interval, 0), c.rate_burst, coalesce(c.key_max_running, 0),
	coalesce(c.key_interval, 0), c.key_burst, c.held, c.declared, c.set_by
FROM kagzi.queues c
WHERE c.task_queue = $2 AND c.namespace_id = $1
FOR UPDATE`

// SetQueue sets the limits of a queue: see Settle for what claims have done before. Claims wait for its lock on the
// queue's row, so it is no part of a caller's transaction.
func (s Limits) SetQueue(ctx context.Context, q QueueLimits, why Why) error {
	_, err := s.changeQueue(ctx, q, sets, why)
	return err
}

// DeclareQueue is SetQueue for code: it changes nothing that SetQueue has set, and returns who has set that; nil: it
// has changed it.
func (s Limits) DeclareQueue(ctx context.Context, q QueueLimits) (by *SetBy, err error) {
	return s.changeQueue(ctx, q, declares, Why{Reason: "declared by the code"})
}

// ResetQueue takes back what SetQueue has set, in favour of what the code declares. It returns ErrNotDeclared.
func (s Limits) ResetQueue(ctx context.Context, queue string, why Why) error {
	_, err := s.changeQueue(ctx, QueueLimits{Queue: queue}, resets, why)
	return err
}

// changeQueue changes the limits of a queue, and returns who had set them.
func (s Limits) changeQueue(ctx context.Context, limits QueueLimits, c change, why Why) (by *SetBy, err error) {
	settle := false
	entry := NewEntry(EventUpdated, OnQueue, limits.Queue, why)
	err = s.change(ctx, nil, func(ctx context.Context, tx pgx.Tx) error {
		q, before, old := limits, QueueLimits{}, Origin{}
		settle, entry.Changes = false, nil
		if err := pg.Ask(ctx, tx, nameQueue, []any{s.namespace, q.Queue}, nil); err != nil {
			return err
		}
		if err := pg.AskRow(ctx, tx, queueBefore, []any{s.namespace, q.Queue}, append([]any{
			&before.MaxRunning, pg.MicrosTo(&before.Rate.Interval), &before.Rate.Burst,
			&before.EachKey.MaxRunning, pg.MicrosTo(&before.EachKey.Rate.Interval), &before.EachKey.Rate.Burst,
			&before.Held,
		}, originTo(&old)...)...); err != nil {
			return err
		}
		by = old.Set
		now, applies, err := c.next(old, q, why)
		if err == nil && c == resets {
			err = json.Unmarshal(now.Declared, &q)
		}
		if err != nil {
			return err
		}
		if now.Declared == nil && !q.limits() { // nothing is left of it
			now.Set = nil
		}
		if !applies {
			return pg.Ask(ctx, tx, declareQueue, []any{s.namespace, q.Queue, now.Declared}, nil)
		}
		entry.changeQueue(before, q)
		if now.Declared != nil {
			entry.Change("origin", old.String(), now.String())
		}
		if len(entry.Changes) > 0 {
			if err := s.audit(ctx, tx, entry); err != nil {
				return err
			}
		}
		b := &pgx.Batch{}
		b.Queue(setQueue, s.namespace, q.Queue, q.MaxRunning, pg.Micros(q.Rate.Interval), q.Rate.Burst,
			q.EachKey.MaxRunning,
			pg.Micros(q.EachKey.Rate.Interval), q.EachKey.Rate.Burst, q.Held)
		b.Queue(noteQueue, append([]any{s.namespace, q.Queue}, now.args()...)...)
		b.Queue(capQueueRate, s.namespace, q.Queue, pg.Micros(q.Rate.Interval))
		b.Queue(unsettled, s.namespace, q.Queue)
		return pg.Exchange(ctx, tx, pg.Untimed, b, nil, nil, nil, func(rows pgx.Rows) (err error) {
			settle, err = pgx.CollectOneRow(rows, pgx.RowTo[bool])
			return err
		})
	})
	if err == nil && settle {
		err = s.Settle(ctx, limits.Queue)
	}
	return by, pg.Wrap("set the limits of a queue", err)
}

// changeQueue adds the changes of a queue's limits.
func (e *AuditEntry) changeQueue(from, to QueueLimits) {
	e.Change("max_running", from.MaxRunning, to.MaxRunning)
	e.changeRate("rate", from.Rate, to.Rate)
	e.Change("key_max_running", from.EachKey.MaxRunning, to.EachKey.MaxRunning)
	e.changeRate("key_rate", from.EachKey.Rate, to.EachKey.Rate)
	e.Change("hold", from.Held, to.Held)
}

// auditLimits reads the limits that are there, calls compare, which adds the changes to the entry, and writes the entry
// if there are some.
func (s Limits) auditLimits(ctx context.Context, tx pgx.Tx, before string, args []any, entry *AuditEntry, dest []any,
	compare func(),
) error {
	entry.Changes = nil
	if err := pg.AskRow(ctx, tx, before, args, dest...); err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return err
	}
	compare()
	if len(entry.Changes) == 0 {
		return nil
	}
	return s.audit(ctx, tx, *entry)
}

// The key gets a change, so that a claim looks at it by its new limits.
const setKey = `
WITH written AS (
	UPDATE kagzi.run_keys x
	SET weight = NULLIF($4::int, 0), max_running = NULLIF($5::int, 0), rate_interval = NULLIF($6::bigint, 0),
		rate_burst = NULLIF($7::int, 0)
	WHERE x.key_scope = $2 AND x.run_key = $3 AND x.namespace_id = $1
	RETURNING x.key_scope, x.run_key
), ` + insertChanges + ` written k
)
SELECT FROM written`

// Without a rate there is no next token.
const capKeyRate = `
WITH bound AS MATERIALIZED (
	SELECT now() + coalesce(NULLIF($4::bigint, 0), (SELECT c.key_interval FROM kagzi.queues c WHERE c.task_queue = $2
		AND c.namespace_id = $1)) * interval '1 microsecond' AS latest
)
UPDATE kagzi.run_keys x
SET rate_at = bound.latest
FROM bound
WHERE x.key_scope = $2 AND x.run_key = $3 AND x.namespace_id = $1
	AND (x.rate_at > bound.latest OR bound.latest IS NULL)`

const keyBefore = `
SELECT coalesce(x.weight, 0), coalesce(x.max_running, 0), coalesce(x.rate_interval, 0), coalesce(x.rate_burst, 0)
FROM kagzi.run_keys x
WHERE x.key_scope = $2 AND x.run_key = $3 AND x.namespace_id = $1`

// SetKey sets a key's own limits. It waits for no longer than a claim of the key takes.
func (s Limits) SetKey(ctx context.Context, queue, key string, k KeyLimits, why Why) error {
	entry := NewEntry(EventUpdated, OnKey, key, why)
	entry.Queue = queue
	return pg.Wrap("set the limits of a key", s.withKeyRow(ctx, func() error {
		return s.change(ctx, nil, func(ctx context.Context, tx pgx.Tx) error {
			if err := s.lockKeyRow(ctx, tx, queue, key); err != nil {
				return err
			}
			return s.setKey(ctx, tx, queue, key, k, &entry)
		})
	}))
}

// setKey is SetKey for a key whose row tx has locked.
func (s Limits) setKey(ctx context.Context, tx pgx.Tx, queue, key string, k KeyLimits, entry *AuditEntry) error {
	var before KeyLimits
	if err := s.auditLimits(ctx, tx, keyBefore, []any{s.namespace, queue, key}, entry, []any{
		&before.Weight, &before.MaxRunning, pg.MicrosTo(&before.Rate.Interval), &before.Rate.Burst,
	}, func() {
		entry.Change("max_running", before.MaxRunning, k.MaxRunning)
		entry.changeRate("rate", before.Rate, k.Rate)
		entry.Change("weight", before.Weight, k.Weight)
	}); err != nil {
		return err
	}
	b := &pgx.Batch{}
	b.Queue(setKey, s.namespace, queue, key, k.Weight, k.MaxRunning, pg.Micros(k.Rate.Interval), k.Rate.Burst)
	b.Queue(capKeyRate, s.namespace, queue, key, pg.Micros(k.Rate.Interval))
	return pg.Exchange(ctx, tx, pg.Untimed, b)
}

// ---- settling ----

// Runs of a queue whose slots are counted from now on, which workers execute without a slot. Their leases are in a
// known part of the claim's index: see runsOfWorker. It waits for a claim of the queue, whose cursor it lowers.
const giveSlots = `
WITH locked AS MATERIALIZED (
	SELECT r.run_id, CASE WHEN c.held THEN 2 ELSE 1 END::smallint AS slot
	FROM (
		SELECT x.held, (SELECT max(w.lease_timeout) FROM kagzi.workers w WHERE w.namespace_id = $1
			AND w.status <> 'OFFLINE') AS lease
		FROM kagzi.queues x
		WHERE x.task_queue = $2 AND x.namespace_id = $1 AND x.max_running > 0
		OFFSET 0
	) c
	CROSS JOIN LATERAL (SELECT * FROM unnest($3::text[]) AS t (workflow_type)
		CROSS JOIN generate_series(1, 4) AS p (priority) OFFSET 0) w
	CROSS JOIN LATERAL (
		SELECT k.run_id
		FROM kagzi.workflow_runs k
		WHERE k.namespace_id = $1 AND k.task_queue = $2 AND k.workflow_type = w.workflow_type
			AND k.priority = w.priority
			AND ` + clause.Claimable + ` AND k.available_at > now() AND k.available_at <= now() + 2 * c.lease
			AND k.status = 'RUNNING' AND k.slot IS NULL
		ORDER BY k.available_at
		LIMIT $4
		FOR UPDATE SKIP LOCKED
	) r
	LIMIT $4
), found AS (
	UPDATE kagzi.queues x
	SET slots_from = LEAST(x.slots_from, n.first)
	FROM (SELECT min(locked.run_id::text COLLATE "C")::uuid AS first FROM locked) n
	WHERE x.task_queue = $2 AND x.namespace_id = $1 AND n.first IS NOT NULL
)
UPDATE kagzi.workflow_runs r
SET slot = locked.slot
FROM locked
WHERE r.run_id = locked.run_id AND r.namespace_id = $1
RETURNING r.run_id`

// Caps the next tokens of the keys after $3, which have no rate of their own, by the queue's rate for keys: see
// capQueueRate. It waits for no lock.
const capKeyRates = `
WITH batch AS MATERIALIZED (
	SELECT x.run_key, x.rate_at
	FROM kagzi.run_keys x
	WHERE x.key_scope = $2 AND x.namespace_id = $1 AND x.run_key > $3
	ORDER BY x.run_key
	LIMIT $4
), locked AS MATERIALIZED (
	SELECT f.run_key, t.latest
	FROM (SELECT now() + (SELECT c.key_interval FROM kagzi.queues c WHERE c.task_queue = $2
		AND c.namespace_id = $1) * interval '1 microsecond' AS latest) t
	CROSS JOIN batch
	CROSS JOIN LATERAL (
		SELECT x.run_key
		FROM kagzi.run_keys x
		WHERE x.key_scope = $2 AND x.run_key = batch.run_key AND x.namespace_id = $1 AND x.rate_interval IS NULL
			AND (x.rate_at > t.latest OR x.rate_at IS NOT NULL AND t.latest IS NULL)
		FOR UPDATE SKIP LOCKED
	) f
	WHERE batch.rate_at IS NOT NULL
), updated AS (
	UPDATE kagzi.run_keys x
	SET rate_at = locked.latest
	FROM locked
	WHERE x.key_scope = $2 AND x.run_key = locked.run_key AND x.namespace_id = $1
)
SELECT count(*), coalesce(max(batch.run_key), '') FROM batch`

// The keys after $3 that have waiting runs, or consumers. A queue of a million runs costs as much as one of a run for
// each key.
const keysToRecheck = `
WITH RECURSIVE waiting (run_key) AS (
	(
		SELECT r.run_key
		FROM kagzi.workflow_runs r
		WHERE ` + clause.Waits + ` AND r.key_scope = $2 AND r.namespace_id = $1 AND r.run_key > $3
		ORDER BY r.run_key
		LIMIT 1
	)
	UNION ALL
	SELECT n.run_key
	FROM waiting
	CROSS JOIN LATERAL (
		SELECT r.run_key
		FROM kagzi.workflow_runs r
		WHERE ` + clause.Waits + ` AND r.key_scope = $2 AND r.namespace_id = $1 AND r.run_key > waiting.run_key
		ORDER BY r.run_key
		LIMIT 1
	) n
)
SELECT u.run_key
FROM (
	(SELECT waiting.run_key FROM waiting LIMIT $4)
	UNION
	(SELECT x.run_key FROM kagzi.consumers x WHERE x.run_key > $3 AND x.namespace_id = $1 AND $2::text = ''
		ORDER BY x.run_key LIMIT $4)
) u
ORDER BY u.run_key
LIMIT $4`

// The sizes of the batches of Settle: each is a transaction.
const (
	settledRuns = 500
	settledKeys = 1000
)

// Settle makes what claims have done before the limits of the queue were changed as if they had known the new ones:
// runs that workers execute count, tokens come by the new rate, and claims look again at each key that has waiting
// runs. It may be repeated at any time.
func (s Limits) Settle(ctx context.Context, queue string) error {
	var types []string
	err := pg.Do(ctx, func(ctx context.Context) error {
		types = nil
		return pg.Ask(ctx, s.pool, clause.ActiveTypes, []any{s.namespace, []string{queue}, clause.MaxQueues},
			func(rows pgx.Rows) error {
				var typ string
				_, err := pgx.ForEachRow(rows, []any{nil, &typ}, func() error {
					types = append(types, typ)
					return nil
				})
				return err
			})
	})
	for n := settledRuns; err == nil && n == settledRuns; {
		err = pg.Again(ctx, func(ctx context.Context) error {
			n = 0
			return pg.Ask(ctx, s.pool, giveSlots, []any{s.namespace, queue, types, settledRuns},
				func(rows pgx.Rows) error {
					for rows.Next() {
						n++
					}
					return nil
				})
		})
	}
	if err == nil {
		err = eachKey(ctx, s.pool, func(ctx context.Context, after string) (n int, last string, err error) {
			err = pg.AskRow(ctx, s.pool, capKeyRates, []any{s.namespace, queue, after, settledKeys}, &n, &last)
			return n, last, err
		})
	}
	if err == nil {
		err = s.recheckKeys(ctx, s.pool, queue)
	}
	return pg.Wrap("settle the limits of a queue", err)
}

// recheckKeys leaves changes for the keys of the scope that have waiting runs, or consumers.
func (s Limits) recheckKeys(ctx context.Context, db pg.DB, scope string) error {
	return eachKey(ctx, db, func(ctx context.Context, after string) (n int, last string, err error) {
		var keys []string
		args := []any{s.namespace, scope, after, settledKeys}
		err = pg.Ask(ctx, db, keysToRecheck, args, pg.Collect(&keys, pgx.RowTo[string]))
		if err != nil || len(keys) == 0 {
			return 0, "", err
		}
		scopes := slices.Repeat([]string{scope}, len(keys))
		return len(keys), keys[len(keys)-1], pg.Ask(ctx, db, leaveChanges, []any{
			s.namespace, scopes, keys, make([]bool, len(keys)),
		}, nil)
	})
}

// eachKey calls send for the keys of a scope, batch by batch: send returns how many it has found after a key, and the
// last one. If an answer is lost, it sends the batch again.
func eachKey(ctx context.Context, db pg.DB, batch func(ctx context.Context, after string) (int, string, error)) error {
	after := ""
	for n := settledKeys; n == settledKeys; {
		var last string
		send := func(ctx context.Context) (err error) {
			n, last, err = batch(ctx, after)
			return err
		}
		var err error
		if _, inTx := db.(pgx.Tx); inTx {
			err = send(ctx)
		} else {
			err = pg.Again(ctx, send)
		}
		if err != nil {
			return err
		}
		after = last
	}
	return nil
}

// A claim that began before a change of limits may commit so long after changed_at: the change may have waited for a
// lock, and the claim takes its time.
const settleAfter = 2 * LateClaims

const unsettledQueues = `
SELECT c.task_queue, (extract(epoch FROM c.changed_at) * 1000000)::bigint
FROM kagzi.queues c
WHERE c.namespace_id = $1 AND c.task_queue > '' AND NOT c.settled
	AND c.changed_at < now() - $2::bigint * interval '1 microsecond'
ORDER BY c.task_queue
LIMIT 100`

const markSettled = `
UPDATE kagzi.queues c
SET settled = true
WHERE c.task_queue = $2 AND c.namespace_id = $1
	AND c.changed_at = timestamptz 'epoch' + $3::bigint * interval '1 microsecond'`

const deleteQueue = `
DELETE FROM kagzi.queues c WHERE c.task_queue = $2 AND c.namespace_id = $1 AND c.settled
	AND NOT coalesce(` + clause.HasLimits + `, false)`

// SettleQueues settles the queues whose limits were changed so long ago that all claims know them, and returns these
// queues. It deletes the rows of those that have no limits any more.
func (s Limits) SettleQueues(ctx context.Context) (settled []string, err error) {
	type queue struct {
		Name    string
		Changed int64
	}
	var queues []queue
	err = pg.Do(ctx, func(ctx context.Context) error {
		return pg.Ask(ctx, s.pool, unsettledQueues, []any{s.namespace, pg.Micros(settleAfter)},
			pg.Collect(&queues, pgx.RowToStructByPos[queue]))
	})
	for _, q := range queues {
		if err == nil {
			err = s.Settle(ctx, q.Name)
		}
		if err != nil {
			break
		}
		err = pg.Do(ctx, func(ctx context.Context) error {
			b := &pgx.Batch{}
			b.Queue(markSettled, s.namespace, q.Name, q.Changed)
			b.Queue(deleteQueue, s.namespace, q.Name)
			return pg.Exchange(ctx, s.pool, pg.Brief, b)
		})
		settled = append(settled, q.Name)
	}
	return settled, pg.Wrap("settle the limits of queues", err)
}

// changeRate adds a change of a rate.
func (e *AuditEntry) changeRate(field string, from, to Rate) { e.Change(field, from.text(), to.text()) }

// text returns the rate as people read it: "every 100ms, burst 5".
func (r Rate) text() string {
	switch {
	case r.Interval <= 0:
		return ""
	case r.Burst > 1:
		return fmt.Sprintf("every %v, burst %d", r.Interval, r.Burst)
	}
	return fmt.Sprintf("every %v", r.Interval)
}
