package store

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
)

// An event belongs to a range of positions: from behind the one before it that is not consumed. So the ranges of events
// one behind the other make one range, and what a consumer has consumed are few ranges however many events it is.
//
// The gaps between those ranges come in order, and so do the events of a gap.
const peekEvents = `
SELECT g.event_id, coalesce(g.title, ''), g.payload, g.published_at, g.position,
	pg_catalog.lag(g.position, 1, g.consumed_to) OVER (), g.events > $4 OR g.total >= $5
FROM (
	SELECT l.*, row_number() OVER () AS place, sum(l.size) OVER (ROWS UNBOUNDED PRECEDING) AS bytes,
		count(*) OVER () AS events, sum(l.size) OVER () AS total
	FROM (
		SELECT e.*, s.position AS consumed_to
		FROM (
			SELECT x.position, pg_catalog.int8multirange(pg_catalog.int8range(x.position + 1,
				NULL)) - x.consumed - $6::int8multirange AS pending
			FROM kagzi.subscriptions x
			WHERE x.topic = $2 AND x.consumer = $3 AND x.namespace_id = $1
			OFFSET 0
		) s
		CROSS JOIN LATERAL unnest(s.pending) AS p (gap)
		CROSS JOIN LATERAL (
			SELECT x.event_id, x.title, x.payload, x.published_at, x.position, 200 + coalesce(octet_length(x.payload),
				0) AS size
			FROM kagzi.events x
			WHERE x.topic = $2 AND x.namespace_id = $1 AND x.position >= lower(p.gap)
				AND x.position < coalesce(upper(p.gap), 9223372036854775807)
			ORDER BY x.position
			LIMIT $4 + 1
		) e
		LIMIT $4 + 1
	) l
) g
WHERE g.place <= $4 AND g.bytes - g.size < $5`

// A Peek is what a consumer can read of a topic.
type Peek struct {
	Settled int64 // all events up to this position can be read
	More    bool  // there are, or may be, more events behind the last one
	Events  []PendingEvent
}

// A PendingEvent is an event that the consumer has not consumed.
type PendingEvent struct {
	Event
	After int64 // the position of the one before it, or up to which all are consumed
}

// Peek returns the first n events of the topic that the consumer has not consumed, and that its run has not reserved.
// Of these it returns no more than fit into the bytes; the first one always does.
func (s Consumers) Peek(ctx context.Context, consumer, topic string, n int, bytes int64,
	reserved [][2]int64,
) (p Peek, err error) {
	err = pg.Do(ctx, func(ctx context.Context) error {
		p = Peek{}
		var settled *int64
		b := &pgx.Batch{}
		b.Queue(settledEvents, s.namespace, topic)
		b.Queue(peekEvents, s.namespace, topic, consumer, n, bytes, multirange(reserved))
		err := pg.Exchange(ctx, s.pool, pg.Untimed, b, func(rows pgx.Rows) (err error) {
			settled, err = pgx.CollectOneRow(rows, pgx.RowTo[*int64])
			return err
		}, pg.Collect(&p.Events, func(row pgx.CollectableRow) (e PendingEvent, err error) {
			return e, row.Scan(&e.ID, &e.Title, &e.Payload, pg.UTC(&e.PublishedAt), &e.Position, &e.After, &p.More)
		}))
		switch {
		case err != nil:
			return err
		case settled == nil:
			return errStandby
		}
		p.Settled = *settled
		if i := slices.IndexFunc(p.Events, func(e PendingEvent) bool { return e.Position > p.Settled }); i >= 0 {
			p.Events, p.More = p.Events[:i], false
		}
		return nil
	})
	return p, pg.Wrap("peek events", err)
}

// A Consumed is what the end of a consumer's run changes.
type Consumed struct {
	Consumer string
	Named    []string  // topics that the run's program names
	WakeAt   time.Time // when the next run is due if no event comes; zero: never
	Topics   []ConsumedTopic
}

// A ConsumedTopic is the part of Consumed about one topic.
type ConsumedTopic struct {
	Topic  string
	Looked int64      // the run has seen what there was up to this position
	Ranges [][2]int64 // what it has consumed: behind the first position, up to the second
}

// multirange returns the ranges as an int8multirange.
func multirange(ranges [][2]int64) string {
	all := make([]string, len(ranges))
	for i, r := range ranges {
		all[i] = fmt.Sprintf("(%d,%d]", r[0], r[1])
	}
	return "{" + strings.Join(all, ",") + "}"
}

// The run has completed in the same transaction, or in an earlier try of it. A run that the consumer has left behind
// changes nothing.
//
// In a rolling deployment, an older program may have executed it that does not name all topics, and so has not looked
// at their events. Then another run follows after least_wake.
const (
	commitConsumers = `
WITH ended AS MATERIALIZED (
	SELECT u.run_id, u.consumer, r.output, LEAST(CASE WHEN u.wake > 0
		THEN LEAST(GREATEST(timestamptz 'epoch' + u.wake * interval '1 microsecond', r.now + c.least_wake),
			r.now + c.most_wake) END, CASE WHEN (
			SELECT count(*) FROM kagzi.subscriptions x
			WHERE x.consumer = u.consumer AND x.namespace_id = $1 AND x.subscribed
				AND x.topic <> ALL (string_to_array(u.named, E'\n'))
		) > 0 THEN r.now + c.least_wake END) AS wake_at
	FROM unnest($2::uuid[], $3::uuid[], $4::text[], $5::bigint[], $6::text[]) AS u (run_id, lease, consumer, wake,
		named)
	CROSS JOIN LATERAL (
		SELECT x.output, statement_timestamp() AS now FROM kagzi.workflow_runs x
		WHERE x.run_id = u.run_id AND x.namespace_id = $1 AND x.lease = u.lease AND x.status = 'COMPLETED'
		OFFSET 0
	) r
	CROSS JOIN LATERAL (
		SELECT x.least_wake, x.most_wake FROM kagzi.consumers x
		WHERE x.consumer = u.consumer AND x.namespace_id = $1 AND x.run_id = u.run_id
		FOR NO KEY UPDATE
	) c
	ORDER BY u.consumer
)
UPDATE kagzi.consumers c
SET state = ended.output, wake_at = LEAST(c.wake_at, ended.wake_at), noticed_at = 'infinity'
FROM ended
WHERE c.consumer = ended.consumer AND c.namespace_id = $1 AND c.run_id = ended.run_id`

	commitSubscriptions = `
WITH done AS MATERIALIZED (
	SELECT u.consumer, u.topic, u.looked, u.ranges::int8multirange AS ranges
	FROM unnest($2::uuid[], $3::uuid[], $4::text[], $5::text[], $6::bigint[], $7::text[]) AS u (run_id, lease, consumer,
		topic, looked, ranges)
	WHERE (
		SELECT count(*) FROM kagzi.workflow_runs x
		WHERE x.run_id = u.run_id AND x.namespace_id = $1 AND x.lease = u.lease AND x.status = 'COMPLETED'
	) > 0 AND (
		SELECT count(*) FROM kagzi.consumers x WHERE x.consumer = u.consumer AND x.namespace_id = $1
			AND x.run_id = u.run_id
	) > 0
)
UPDATE kagzi.subscriptions s
SET looked_at = done.looked, ` + consumeRanges + `
FROM done
WHERE s.topic = done.topic AND s.consumer = done.consumer AND s.namespace_id = $1`

	// What the subscription s has consumed with u.ranges. If the first range begins where position ends, the position
	// moves to its end.
	consumeRanges = `consumed = (s.consumed + done.ranges) - pg_catalog.int8multirange(pg_catalog.int8range(NULL, ` +
		consumedTo + `, '(]')),
	position = ` + consumedTo
	consumedTo = `coalesce((SELECT upper(r.part) - 1 FROM unnest(s.consumed + done.ranges) AS r (part)
		WHERE r.part @> s.position + 1), s.position)`
)

var commitColumns = columnsOf(commitConsumers,
	uuids("run_id", func(e *Finish) uuid.UUID { return e.RunID }),
	uuids("lease", func(e *Finish) uuid.UUID { return e.Lease }),
	texts("consumer", func(e *Finish) string { return e.Consumed.Consumer }),
	bigints("wake", func(e *Finish) int64 { return pg.Epoch(e.Consumed.WakeAt) }),
	// a name has no control characters
	texts("named", func(e *Finish) string { return strings.Join(e.Consumed.Named, "\n") }),
)

type topicEnd struct {
	*Finish
	*ConsumedTopic
}

var commitTopicColumns = columnsOf(commitSubscriptions,
	uuids("run_id", func(e topicEnd) uuid.UUID { return e.RunID }),
	uuids("lease", func(e topicEnd) uuid.UUID { return e.Lease }),
	texts("consumer", func(e topicEnd) string { return e.Consumed.Consumer }),
	texts("topic", func(e topicEnd) string { return e.Topic }),
	bigints("looked", func(e topicEnd) int64 { return e.Looked }),
	texts("ranges", func(e topicEnd) string { return multirange(e.Ranges) }),
)

// consumerEnds returns the ends of runs of consumers, and what they say of topics.
func consumerEnds(finishes []*Finish) (ends []*Finish, topics []topicEnd) {
	for _, e := range finishes {
		if e.Consumed == nil || e.Status != Completed {
			continue
		}
		ends = append(ends, e)
		for i := range e.Consumed.Topics {
			topics = append(topics, topicEnd{e, &e.Consumed.Topics[i]})
		}
	}
	return ends, topics
}
