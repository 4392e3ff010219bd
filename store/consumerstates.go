package store

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
)

// ---- skipping ----

// The range of an event that readers can see begins behind the event before it that is not consumed, as in peekEvents:
// no event will appear between them. That of another event ($5 is the answer of settledEvents) is the event alone.
//
// The end of a run may change the subscription after l has read it. That only adds consumed ranges, so the range
// stays right, and the UPDATE adds it to the row's newest version.
const skipEvent = `
WITH subscription AS MATERIALIZED (
	SELECT x.position, x.consumed FROM kagzi.subscriptions x WHERE x.topic = $2 AND x.consumer = $3
		AND x.namespace_id = $1
), event AS MATERIALIZED (
	SELECT x.position FROM kagzi.events x WHERE x.event_id = $4 AND x.topic || '' = $2 AND x.namespace_id = $1
), done AS MATERIALIZED (
	SELECT pg_catalog.int8multirange(pg_catalog.int8range(CASE WHEN event.position <= $5
		THEN coalesce(b.position, lower(g.gap) - 1) ELSE event.position - 1 END, event.position, '(]')) AS ranges
	FROM subscription
	CROSS JOIN event
	CROSS JOIN LATERAL unnest(pg_catalog.int8multirange(pg_catalog.int8range(subscription.position + 1,
		NULL)) - subscription.consumed) AS g (gap)
	LEFT JOIN LATERAL (
		SELECT x.position FROM kagzi.events x
		WHERE x.topic = $2 AND x.namespace_id = $1 AND x.position >= lower(g.gap) AND x.position < event.position
		ORDER BY x.position DESC
		LIMIT 1
	) b ON true
	WHERE g.gap @> event.position
), updated AS (
	UPDATE kagzi.subscriptions s
	SET ` + consumeRanges + `
	FROM done
	WHERE s.topic = $2 AND s.consumer = $3 AND s.namespace_id = $1
)
SELECT (SELECT count(*) FROM subscription) > 0, (SELECT count(*) FROM event) > 0, (SELECT count(*) FROM done) > 0`

// ErrNoEvent reports that the topic has no such event.
var ErrNoEvent = errors.New("no such event")

// Claims and the ends of runs leave a consumer alone whose row is locked. They would wait for the row of the
// subscription.
const lockConsumerRow = `SELECT x.consumer FROM kagzi.consumers x WHERE x.consumer = $2 AND x.namespace_id = $1
	FOR UPDATE`

// SkipEvent makes the event one that the consumer has consumed; it may be so already. A run's end does the same with
// other events: both only add consumed ranges. It returns ErrNoConsumer if the consumer has never had the
// topic, and ErrNoEvent.
func (s Consumers) SkipEvent(ctx context.Context, tx pgx.Tx, consumer, topic, id string, why Why) error {
	entry := NewEntry(ActionSkipped, OnConsumer, consumer, why)
	entry.Changes = []Changed{{"topic", topic, ""}, {"event", id, ""}}
	return pg.Wrap("skip an event", s.change(ctx, tx, func(ctx context.Context, tx pgx.Tx) error {
		settled, err := pg.AskOne[*int64](ctx, tx, settledEvents, s.namespace, topic)
		if err != nil {
			return err
		}
		if settled == nil {
			return errStandby
		}
		if err := pg.Ask(ctx, tx, lockConsumerRow, []any{s.namespace, consumer}, nil); err != nil {
			return err
		}
		var subscribed, found, skipped bool
		err = pg.AskRow(ctx, tx, skipEvent, []any{s.namespace, topic, consumer, id, *settled}, &subscribed,
			&found, &skipped)
		switch {
		case err != nil:
			return err
		case !subscribed:
			return ErrNoConsumer
		case !found:
			return ErrNoEvent
		case !skipped:
			return nil
		}
		return s.audit(ctx, tx, entry)
	}))
}
