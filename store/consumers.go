package store

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/store/internal/clause"
)

// Consumers keeps the consumers of topics, and reads events for them.
type Consumers struct{ *conn }

// A Consumer is a workflow that runs when there is something for it.
type Consumer struct {
	Name   string
	Key    string // of its runs, which is a group; see OwnGroup
	Topics []string
	Latest bool // it gets the events that are published from now on; else all that are kept

	Queue          string
	Priority       int
	RetryPolicy    []byte
	Timeout        time.Duration
	Metadata       []byte
	LeastWake      time.Duration
	MostWake       time.Duration
	PauseOnFailure bool
}

// OwnGroup returns the group of a consumer that belongs to no other one.
func OwnGroup(consumer string) string { return "consumer " + consumer }

// The first run of a new consumer is due at once. The statements leave rows alone that are as they should be: claims
// and the ends of runs have them locked all the time.
const (
	upsertConsumers = `
WITH given AS MATERIALIZED (
	SELECT u.consumer, u.run_key, u.task_queue, u.priority, NULLIF(u.retry_policy, '')::jsonb AS retry_policy,
		CASE WHEN u.timeout > 0 THEN u.timeout * interval '1 microsecond' END AS timeout,
			NULLIF(u.metadata, '')::jsonb AS metadata,
		u.least_wake * interval '1 microsecond' AS least_wake, u.most_wake * interval '1 microsecond' AS most_wake,
			u.pause_on_failure, statement_timestamp() AS now
	FROM unnest($2::text[], $3::text[], $4::text[], $5::smallint[], $6::text[], $7::bigint[], $8::text[], $9::bigint[],
		$10::bigint[], $11::bool[])
		AS u (consumer, run_key, task_queue, priority, retry_policy, timeout, metadata, least_wake, most_wake,
			pause_on_failure)
)
INSERT INTO kagzi.consumers AS x (consumer, namespace_id, run_key, task_queue, priority, retry_policy, timeout,
	metadata, least_wake, most_wake, pause_on_failure, wake_at, created_at)
SELECT given.consumer, $1, given.run_key, given.task_queue, given.priority, given.retry_policy, given.timeout,
	given.metadata, given.least_wake, given.most_wake, given.pause_on_failure, given.now, given.now
FROM given
WHERE (
	SELECT count(*) FROM kagzi.consumers x
	WHERE x.consumer = given.consumer AND x.namespace_id = $1
		AND (x.run_key, x.task_queue, x.priority, x.retry_policy, x.timeout, x.metadata, x.least_wake, x.most_wake,
			x.pause_on_failure)
			IS NOT DISTINCT FROM (given.run_key, given.task_queue, given.priority, given.retry_policy, given.timeout,
				given.metadata, given.least_wake, given.most_wake, given.pause_on_failure)
) = 0
ORDER BY given.consumer
ON CONFLICT (consumer, namespace_id) DO UPDATE
SET run_key = excluded.run_key, task_queue = excluded.task_queue, priority = excluded.priority,
	retry_policy = excluded.retry_policy, timeout = excluded.timeout,
	metadata = excluded.metadata, least_wake = excluded.least_wake, most_wake = excluded.most_wake,
		pause_on_failure = excluded.pause_on_failure
RETURNING x.run_key`

	upsertSubscriptions = `
INSERT INTO kagzi.subscriptions AS x (topic, consumer, namespace_id, run_key, task_queue, subscribed, position,
	looked_at)
SELECT u.topic, u.consumer, $1, u.run_key, u.task_queue, true, u.position, u.position
FROM unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::bigint[]) AS u (topic, consumer, run_key, task_queue,
	position)
WHERE (
	SELECT count(*) FROM kagzi.subscriptions x
	WHERE x.topic = u.topic AND x.consumer = u.consumer AND x.namespace_id = $1 AND x.run_key = u.run_key
		AND x.task_queue = u.task_queue AND x.subscribed
) = 0
ORDER BY u.topic, u.consumer
ON CONFLICT (topic, consumer, namespace_id) DO UPDATE SET run_key = excluded.run_key, task_queue = excluded.task_queue,
	subscribed = true`

	// A consumer keeps its place in a topic that its program no longer names: in a rolling deployment the old program
	// may name it again.
	endSubscriptions = `
UPDATE kagzi.subscriptions x
SET subscribed = false
FROM unnest($2::text[]) AS c (consumer)
WHERE x.consumer = c.consumer AND x.namespace_id = $1 AND x.subscribed
	AND (SELECT count(*) FROM unnest($3::text[], $4::text[]) AS u (topic, consumer) WHERE u.topic = x.topic
		AND u.consumer = x.consumer) = 0`

	keysWithoutConsumers = `
SELECT DISTINCT u.run_key
FROM unnest($2::text[]) AS u (run_key)
WHERE (
	SELECT count(*) FROM kagzi.run_keys x WHERE x.key_scope = '' AND x.run_key = u.run_key AND x.namespace_id = $1
		AND x.consumers_at IS NOT NULL
) = 0`

	keyOfConsumers = `
UPDATE kagzi.run_keys x
SET consumers_at = 'infinity'
WHERE x.key_scope = '' AND x.run_key = $2 AND x.namespace_id = $1 AND x.consumers_at IS NULL`

	changeKeysOfConsumers = `
WITH ` + insertChanges + ` (SELECT u.run_key, '' AS key_scope FROM unnest($2::text[]) AS u (run_key)) k
)
SELECT FROM (SELECT) k`

	drawnPosition = `SELECT ` + lastPosition
)

var consumerColumns = columnsOf(upsertConsumers,
	texts("consumer", func(c *Consumer) string { return c.Name }),
	texts("run_key", func(c *Consumer) string { return c.Key }),
	texts("task_queue", func(c *Consumer) string { return c.Queue }),
	smallints("priority", func(c *Consumer) int16 { return int16(c.Priority) }),
	texts("retry_policy", func(c *Consumer) string { return string(c.RetryPolicy) }),
	bigints("timeout", func(c *Consumer) int64 { return pg.Micros(c.Timeout) }),
	texts("metadata", func(c *Consumer) string { return string(c.Metadata) }),
	bigints("least_wake", func(c *Consumer) int64 { return pg.Micros(c.LeastWake) }),
	bigints("most_wake", func(c *Consumer) int64 { return pg.Micros(c.MostWake) }),
	bools("pause_on_failure", func(c *Consumer) bool { return c.PauseOnFailure }),
)

type subscription struct {
	*Consumer
	topic    string
	position int64
}

var subscriptionColumns = columnsOf(upsertSubscriptions,
	texts("topic", func(s subscription) string { return s.topic }),
	texts("consumer", func(s subscription) string { return s.Name }),
	texts("run_key", func(s subscription) string { return s.Key }),
	texts("task_queue", func(s subscription) string { return s.Queue }),
	bigints("position", func(s subscription) int64 { return s.position }),
)

// Register stores the consumers of a worker, and makes a claim look at their keys.
func (s Consumers) Register(ctx context.Context, consumers []*Consumer) error {
	if len(consumers) == 0 {
		return nil
	}
	return pg.Wrap("register consumers", s.withKeyRow(ctx, func() error {
		return pg.Do(ctx, func(ctx context.Context) error {
			return pg.Transact(ctx, s.pool, pg.Brief, func(tx pgx.Tx) error { return s.register(ctx, tx, consumers) })
		})
	}))
}

// register is Register if the keys have rows. Else it returns a keyWithoutRow. It locks the keys of consumers that it
// changes: a claim that does not see these may be about to write that the key has none.
func (s Consumers) register(ctx context.Context, tx pgx.Tx, consumers []*Consumer) error {
	var names, keys, topics, of, changed, unset []string
	for _, c := range consumers {
		names, keys = append(names, c.Name), append(keys, c.Key)
		for _, topic := range c.Topics {
			topics, of = append(topics, topic), append(of, c.Name)
		}
	}
	b := &pgx.Batch{}
	b.Queue(upsertConsumers, consumerColumns.args(s.namespace, consumers)...)
	b.Queue(keysWithoutConsumers, s.namespace, keys)
	err := pg.SendAll(ctx, tx, b, []func(pgx.Rows) error{
		pg.Collect(&changed, pgx.RowTo[string]), pg.Collect(&unset, pgx.RowTo[string]),
	})
	unset = slices.Compact(slices.Sorted(slices.Values(append(unset, changed...))))
	if err == nil && len(unset) > 0 {
		err = s.lockKeyRow(ctx, tx, groupScope, unset...)
	}
	if err != nil {
		return err
	}
	last, err := pg.AskOne[int64](ctx, tx, drawnPosition)
	if err != nil {
		return err
	}
	var subscriptions []subscription
	for _, c := range consumers {
		for _, topic := range c.Topics {
			sub := subscription{Consumer: c, topic: topic}
			if c.Latest {
				sub.position = last
			}
			subscriptions = append(subscriptions, sub)
		}
	}
	b = &pgx.Batch{}
	b.Queue(upsertSubscriptions, subscriptionColumns.args(s.namespace, subscriptions)...)
	b.Queue(endSubscriptions, s.namespace, names, topics, of)
	for _, key := range unset {
		b.Queue(keyOfConsumers, s.namespace, key)
	}
	b.Queue(changeKeysOfConsumers, s.namespace, keys)
	return pg.SendAll(ctx, tx, b, make([]func(pgx.Rows) error, b.Len()))
}

const deleteConsumer = `
WITH unsubscribed AS (
	DELETE FROM kagzi.subscriptions x WHERE x.consumer = $2 AND x.namespace_id = $1
), deleted AS (
	DELETE FROM kagzi.consumers x WHERE x.consumer = $2 AND x.namespace_id = $1 RETURNING x.run_key
), ` + insertChanges + ` (SELECT deleted.run_key, '' AS key_scope FROM deleted) k
)
SELECT count(*) > 0 FROM deleted`

// ErrNoConsumer reports that there is no such consumer.
var ErrNoConsumer = errors.New("no such consumer")

// Delete deletes the consumer with its state and its places in the topics. The events stay. A run of it that is
// under way goes on, and its end changes nothing more.
func (s Consumers) Delete(ctx context.Context, tx pgx.Tx, name string, why Why) error {
	entry := NewEntry(EventDeleted, OnConsumer, name, why)
	tried := false // an earlier try of our own transaction, whose answer may have been lost
	return pg.Wrap("delete a consumer", s.change(ctx, tx, func(ctx context.Context, tx pgx.Tx) error {
		did, err := pg.AskOne[bool](ctx, tx, deleteConsumer, s.namespace, name)
		if err == nil && !did && !tried {
			return ErrNoConsumer
		}
		tried = true
		if err == nil && did {
			err = s.audit(ctx, tx, entry)
		}
		return err
	}))
}

// A trigger makes a run due. While one is active, or another one of the group, the next one is.
const triggerConsumer = `
WITH locked AS MATERIALIZED (
	SELECT x.consumer, x.run_key, x.task_queue, statement_timestamp() AS now, coalesce((
			SELECT r.status NOT IN ('COMPLETED', 'FAILED', 'CANCELLED') FROM kagzi.workflow_runs r
				WHERE r.run_id = x.run_id AND r.namespace_id = $1
		), false) OR (
			SELECT count(*) FROM kagzi.workflow_runs WHERE run_key = x.run_key AND namespace_id = $1
				AND ` + clause.HoldsGroup + `
		) > 0 AS active
	FROM kagzi.consumers x
	WHERE x.consumer = $2 AND x.namespace_id = $1
	FOR NO KEY UPDATE
), woken AS (
	UPDATE kagzi.consumers x SET wake_at = LEAST(x.wake_at, locked.now) FROM locked WHERE x.consumer = locked.consumer
		AND x.namespace_id = $1 AND (NOT locked.active OR NOT $3::bool)
), ` + insertChanges + ` (SELECT locked.run_key, '' AS key_scope FROM locked WHERE NOT locked.active OR NOT $3::bool) k
)
SELECT locked.task_queue, locked.active FROM locked`

// Trigger makes a run of the consumer due now. If one of its group is active, then another one once that has
// ended; with unlessActive it does nothing instead, and returns ErrRunActive. It returns ErrNoConsumer if there is
// none.
func (s Consumers) Trigger(ctx context.Context, tx pgx.Tx, name string, unlessActive bool,
	why Why,
) (due DueRun, err error) {
	entry := NewEntry(ActionTriggered, OnConsumer, name, why)
	// an earlier try of our own transaction, whose answer may have been lost: its run may be active by now
	tried := false
	err = s.change(ctx, tx, func(ctx context.Context, tx pgx.Tx) error {
		var active bool
		due = DueRun{Type: name}
		err := pg.AskRow(ctx, tx, triggerConsumer, []any{s.namespace, name, unlessActive}, &due.Queue, &active)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			return ErrNoConsumer
		case err == nil && active && unlessActive && !tried:
			return ErrRunActive
		}
		tried = true
		if err == nil {
			err = s.audit(ctx, tx, entry)
		}
		return err
	})
	return due, pg.Wrap("trigger a consumer", err)
}

// Keys that stand in the line are looked at anyway. So are those of active runs, when these end.
const recheckConsumers = `
WITH overdue AS MATERIALIZED (
	SELECT x.run_key, x.task_queue, x.consumer
	FROM kagzi.consumers x
	WHERE x.namespace_id = $1 AND x.consumer > '' AND (x.wake_at <= now() OR (
		SELECT count(*)
		FROM kagzi.subscriptions s
		CROSS JOIN LATERAL (
			SELECT e.published_at FROM kagzi.events e WHERE e.topic = s.topic AND e.namespace_id = $1
				AND e.position > s.looked_at ORDER BY e.position LIMIT 1
		) e
		WHERE s.consumer = x.consumer AND s.namespace_id = $1 AND s.subscribed
			AND e.published_at < now() - interval '10 seconds'
	) > 0) AND (
		SELECT count(*) FROM kagzi.workflow_runs r
		WHERE r.run_id = x.run_id AND r.namespace_id = $1 AND r.status NOT IN ('COMPLETED', 'FAILED', 'CANCELLED')
	) = 0 AND coalesce((
		SELECT k.available_at = 'infinity' AND k.paused_at IS NULL FROM kagzi.run_keys k WHERE k.key_scope = ''
			AND k.run_key = x.run_key AND k.namespace_id = $1
	), true)
	ORDER BY x.consumer
	LIMIT $2
), ` + insertChanges + ` (SELECT overdue.run_key, '' AS key_scope FROM overdue) k
)
SELECT DISTINCT ON (overdue.task_queue) overdue.task_queue, overdue.consumer FROM overdue ORDER BY 1, 2`

// Recheck leaves changes of consumers that are due without a worker having been told, and returns one of each
// queue. That happens to a new subscription: a transaction that was publishing when it was stored does not see it.
func (s Consumers) Recheck(ctx context.Context) (due []DueRun, err error) {
	err = pg.Do(ctx, func(ctx context.Context) error {
		return pg.Ask(ctx, s.pool, recheckConsumers, []any{s.namespace, clause.MaxQueues}, pg.Collect(&due, readDue))
	})
	return due, pg.Wrap("recheck consumers", err)
}
