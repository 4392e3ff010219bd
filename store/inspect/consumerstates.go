package inspect

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/store"
)

// Bounds of the lists of topics and consumers.
const (
	mostListed        = 1000   // topics or consumers
	mostEvents        = 1000   // events of one of them that are counted
	mostEventsCounted = 50_000 // events that are counted in all, about
	mostNamed         = 100    // subscribers of a topic that are named
	mostReserves      = 100    // records of Reserve of one run that are counted
)

// ---- topics ----

// The names of topics that have events ($2 at most, of all namespaces), each by one search of events_order for the
// first name after the previous one: see activeQueues. The condition of the rows stands between these texts.
const (
	firstTopic = `topics (topic) AS (
	(
		SELECT x.topic
		FROM kagzi.events x
		WHERE x.topic > ''`
	nextTopic = `
		ORDER BY x.topic
		LIMIT 1
	)
	UNION ALL
	SELECT n.topic
	FROM topics
	CROSS JOIN LATERAL (
		SELECT x.topic
		FROM kagzi.events x
		WHERE x.topic > topics.topic`
	endTopics = `
		ORDER BY x.topic
		LIMIT 1
	) n
), first_topics AS MATERIALIZED (
	SELECT topics.topic FROM topics LIMIT $2
)`
	topicsWithEvents = firstTopic + nextTopic + endTopics

	// The same for tables that are distributed: see ownQueues.
	ownTopicsWithEvents = firstTopic + inTopicsNamespace + nextTopic + inTopicsNamespace + endTopics
	inTopicsNamespace   = ` AND x.namespace_id = $1`
)

const (
	topicStates    = `WITH RECURSIVE ` + topicsWithEvents + statesOfTopics
	ownTopicStates = `WITH RECURSIVE ` + ownTopicsWithEvents + statesOfTopics
)

const statesOfTopics = `, states AS MATERIALIZED (
	SELECT o.topic, l.published_at AS newest, s.subscribers
	FROM (
		SELECT first_topics.topic FROM first_topics
		UNION
		(
			SELECT x.topic FROM kagzi.subscriptions x WHERE x.namespace_id = $1 AND x.topic > '' AND x.subscribed
			GROUP BY x.topic ORDER BY x.topic LIMIT $3
		)
	) o
	LEFT JOIN LATERAL (
		SELECT x.published_at FROM kagzi.events x WHERE x.topic = o.topic AND x.namespace_id = $1
			ORDER BY x.position DESC LIMIT 1
	) l ON true
	CROSS JOIN LATERAL (
		SELECT ARRAY (
			SELECT x.consumer FROM kagzi.subscriptions x WHERE x.topic = o.topic AND x.namespace_id = $1
				AND x.subscribed ORDER BY x.consumer LIMIT $6
		) AS subscribers
	) s
	WHERE l.published_at IS NOT NULL OR s.subscribers <> '{}'
	ORDER BY o.topic
	LIMIT $3
), budget AS MATERIALIZED (
	SELECT GREATEST(1, LEAST($4::bigint, $5::bigint / GREATEST(count(*), 1))) AS most FROM states
)
SELECT states.topic, LEAST(c.events, budget.most), c.events > budget.most, states.newest, states.subscribers
FROM budget
CROSS JOIN states
CROSS JOIN LATERAL (
	SELECT count(*) AS events FROM (SELECT FROM kagzi.events x WHERE x.topic = states.topic AND x.namespace_id = $1
		LIMIT (SELECT budget.most + 1 FROM budget)) x
) c
ORDER BY states.topic`

// A TopicState is a topic that has events or subscribers.
type TopicState struct {
	Topic       string
	Events      int       // that are kept, as far as they were counted
	More        bool      // there are more
	Newest      time.Time // when the newest one was published; zero if there is none
	Subscribers []string  // the first consumers of the topic, by name
}

// TopicStates returns the first thousand topics of the namespace, by name. It finds them among the first ten thousand
// names of topics in the database.
func (s *Lists) TopicStates(ctx context.Context) (out []TopicState, err error) {
	err = pg.Do(ctx, func(ctx context.Context) error {
		spread, err := pg.IsOnCitus(ctx, s.pool)
		if err != nil {
			return err
		}
		statement := topicStates
		if spread {
			statement = ownTopicStates
		}
		return pg.Ask(ctx, s.pool, statement, []any{
			s.namespace, 10 * mostListed, mostListed, mostEvents,
			mostEventsCounted, mostNamed,
		}, pg.Collect(&out, func(row pgx.CollectableRow) (t TopicState, err error) {
			return t, row.Scan(&t.Topic, &t.Events, &t.More, pg.UTC(&t.Newest), &t.Subscribers)
		}))
	})
	return out, pg.Wrap("read the topics", err)
}

// ---- consumers ----

// The pause that stops runs of the consumer c. If there are several, that of its key comes first.
const pauseOfConsumer = `LEFT JOIN LATERAL (
	SELECT '' AS run_key, x.task_queue, x.workflow_type, x.parks, x.reason, x.actor, x.paused_at
	FROM kagzi.pauses x
	WHERE x.task_queue IN ('', consumers.task_queue) AND x.workflow_type IN ('', consumers.consumer)
		AND x.namespace_id = $1
	UNION ALL
	SELECT x.run_key, '', '', x.pause_parks, x.pause_reason, x.pause_actor, x.paused_at
	FROM kagzi.run_keys x
	WHERE x.key_scope = '' AND x.run_key = consumers.run_key AND x.namespace_id = $1 AND x.paused_at IS NOT NULL
	ORDER BY run_key DESC, workflow_type DESC, task_queue DESC
	LIMIT 1
) p ON true`

// One row for each consumer and topic; a consumer without topics has one. Rows of one consumer are together.
const consumerStates = `
WITH consumers AS MATERIALIZED (
	SELECT f.*, r.last_run, r.status, r.finished_at,
		LEAST(f.wake_at, CASE WHEN r.status = 'CANCELLED' OR r.status = 'FAILED' AND NOT f.pause_on_failure
			THEN r.finished_at + f.least_wake END) AS due_at
	FROM (
		SELECT x.* FROM kagzi.consumers x WHERE x.consumer > '' AND x.namespace_id = $1 ORDER BY x.consumer LIMIT $2
	) f
	LEFT JOIN LATERAL (
		SELECT x.run_id AS last_run, x.status, x.finished_at FROM kagzi.workflow_runs x WHERE x.run_id = f.run_id
			AND x.namespace_id = $1 OFFSET 0
	) r ON true
), subscriptions AS MATERIALIZED (
	SELECT consumers.consumer, x.topic, x.pending
	FROM consumers
	CROSS JOIN LATERAL (
		SELECT f.topic, pg_catalog.int8multirange(pg_catalog.int8range(f.position + 1, NULL)) - f.consumed AS pending
		FROM kagzi.subscriptions f
		WHERE f.consumer = consumers.consumer AND f.namespace_id = $1 AND f.subscribed
		OFFSET 0
	) x
), budget AS MATERIALIZED (
	SELECT GREATEST(1, LEAST($3::bigint, $4::bigint / GREATEST(count(*), 1))) AS most FROM subscriptions
)
SELECT consumers.consumer, consumers.run_key, consumers.task_queue, consumers.state, consumers.created_at,
	consumers.due_at, consumers.last_run, coalesce(consumers.status, ''), consumers.finished_at,
	p.paused_at, coalesce(p.run_key, ''), coalesce(p.task_queue, ''), coalesce(p.workflow_type, ''),
		coalesce(p.parks, false), coalesce(p.reason, ''), coalesce(p.actor, ''),
	coalesce(subscriptions.topic, ''), LEAST(n.events, budget.most), n.events > budget.most, o.published_at
FROM budget
CROSS JOIN consumers
` + pauseOfConsumer + `
LEFT JOIN subscriptions ON subscriptions.consumer = consumers.consumer
CROSS JOIN LATERAL (
	SELECT count(*) AS events FROM (
		SELECT
		FROM unnest(subscriptions.pending) AS g (gap)
		CROSS JOIN LATERAL (
			SELECT FROM kagzi.events x
			WHERE x.topic = subscriptions.topic AND x.namespace_id = $1 AND x.position >= lower(g.gap)
				AND x.position < coalesce(upper(g.gap), 9223372036854775807)
			LIMIT (SELECT budget.most + 1 FROM budget)
		) x
		LIMIT (SELECT budget.most + 1 FROM budget)
	) x
) n
LEFT JOIN LATERAL (
	SELECT x.published_at
	FROM unnest(subscriptions.pending) AS g (gap)
	CROSS JOIN LATERAL (
		SELECT x.published_at FROM kagzi.events x
		WHERE x.topic = subscriptions.topic AND x.namespace_id = $1 AND x.position >= lower(g.gap)
			AND x.position < coalesce(upper(g.gap), 9223372036854775807)
		ORDER BY x.position
		LIMIT 1
	) x
	LIMIT 1
) o ON true
ORDER BY consumers.consumer, subscriptions.topic`

// The events that the active run of each consumer has reserved are pairs of positions in its records: see
// topic.Reserve.
const reservedEvents = `
SELECT f.consumer, j.key, sum(jsonb_array_length(j.value))
FROM (
	SELECT x.consumer, x.run_id FROM kagzi.consumers x WHERE x.consumer > '' AND x.namespace_id = $1
	ORDER BY x.consumer LIMIT $2
) f
CROSS JOIN LATERAL (
	SELECT x.run_id FROM kagzi.workflow_runs x WHERE x.run_id = f.run_id AND x.namespace_id = $1
		AND x.status NOT IN ('COMPLETED', 'FAILED', 'CANCELLED') OFFSET 0
) r
CROSS JOIN LATERAL (
	SELECT x.output FROM kagzi.step_runs x WHERE x.run_id = r.run_id AND x.namespace_id = $1
		AND x.step_kind = 'RESERVE' AND x.output IS NOT NULL LIMIT $3
) o
CROSS JOIN LATERAL jsonb_each(convert_from(o.output, 'UTF8')::jsonb) j
GROUP BY 1, 2`

// A ConsumerState is a consumer and the events for it.
type ConsumerState struct {
	Name, Key, Queue string
	State            []byte // the output of the last run that completed
	CreatedAt        time.Time
	WakeAt           time.Time // when a run is due if no event comes; zero: never
	RunID            uuid.UUID // the last run; the zero UUID if there is none any more
	RunStatus        string
	RunEnded         time.Time
	Paused           bool // by Pause
	Pause            store.Pause
	Topics           []SubscriptionState // by name
}

// A SubscriptionState is a topic of a consumer.
type SubscriptionState struct {
	Topic    string
	Pending  int       // events that it has not consumed, as far as they were counted
	More     bool      // there are more
	Oldest   time.Time // when the first of these was published; zero if there is none
	Reserved int       // of these, its active run has reserved so many
}

// ConsumerStates returns the first thousand consumers, by name. Reserved events are read a moment after the others.
func (s *Lists) ConsumerStates(ctx context.Context) (out []ConsumerState, err error) {
	err = pg.Do(ctx, func(ctx context.Context) error {
		var found consumers
		b := &pgx.Batch{}
		b.Queue(consumerStates, s.namespace, mostListed, mostEvents, mostEventsCounted)
		b.Queue(reservedEvents, s.namespace, mostListed, mostReserves)
		err := pg.Exchange(ctx, s.pool, pg.Untimed, b, found.read, found.readReserved)
		out = found
		return err
	})
	return out, pg.Wrap("read the consumers", err)
}

// consumers are the results of the two statements.
type consumers []ConsumerState

// read reads the rows of consumerStates.
func (all *consumers) read(rows pgx.Rows) error {
	for rows.Next() {
		var c ConsumerState
		var t SubscriptionState
		err := rows.Scan(&c.Name, &c.Key, &c.Queue, &c.State, pg.UTC(&c.CreatedAt), pg.UTC(&c.WakeAt),
			pg.UUIDTo(&c.RunID), &c.RunStatus, pg.UTC(&c.RunEnded),
			pg.UTC(&c.Pause.At), &c.Pause.Key.Name, &c.Pause.Queue, &c.Pause.Type,
			&c.Pause.Parks, &c.Pause.Reason, &c.Pause.Actor,
			&t.Topic, &t.Pending, &t.More, pg.UTC(&t.Oldest))
		if err != nil {
			return err
		}
		out := *all
		if n := len(out); n == 0 || out[n-1].Name != c.Name {
			c.Paused, c.Pause.Key.Group = !c.Pause.At.IsZero(), c.Pause.Key.Name != ""
			out = append(out, c)
		}
		if last := &out[len(out)-1]; t.Topic != "" {
			last.Topics = append(last.Topics, t)
		}
		*all = out
	}
	return rows.Err()
}

// readReserved adds the rows of reservedEvents.
func (all *consumers) readReserved(rows pgx.Rows) error {
	reserved := map[[2]string]int{}
	var consumer, topic string
	var events int
	_, err := pgx.ForEachRow(rows, []any{&consumer, &topic, &events}, func() error {
		reserved[[2]string{consumer, topic}] = events
		return nil
	})
	for _, c := range *all {
		for i := range c.Topics {
			c.Topics[i].Reserved = reserved[[2]string{c.Name, c.Topics[i].Topic}]
		}
	}
	return err
}
