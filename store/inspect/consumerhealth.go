package inspect

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
)

// A consumer is due as startConsumers has it, except that events count which readers do not see yet: a time ago they
// were published.
const lateConsumers = `
WITH consumers AS MATERIALIZED (
	SELECT f.consumer, f.run_key, f.task_queue, LEAST(f.wake_at, CASE
			WHEN r.status = 'FAILED' AND f.pause_on_failure THEN r.finished_at
			WHEN r.status IN ('FAILED', 'CANCELLED') THEN r.finished_at + f.least_wake
		END) AS due_at
	FROM (
		SELECT x.* FROM kagzi.consumers x WHERE x.consumer > '' AND x.namespace_id = $1 ORDER BY x.consumer LIMIT $2
	) f
	LEFT JOIN LATERAL (
		SELECT x.status, x.finished_at FROM kagzi.workflow_runs x WHERE x.run_id = f.run_id
			AND x.namespace_id = $1 OFFSET 0
	) r ON true
	WHERE coalesce(r.status, 'COMPLETED') IN ('COMPLETED', 'FAILED', 'CANCELLED')
)
SELECT consumers.consumer, consumers.task_queue, (extract(epoch FROM now() - g.since) * 1000000)::bigint
FROM consumers
` + pauseOfConsumer + `
CROSS JOIN LATERAL (
	SELECT LEAST(min(e.published_at), consumers.due_at) AS since
	FROM (
		SELECT x.topic, x.looked_at FROM kagzi.subscriptions x WHERE x.consumer = consumers.consumer
			AND x.namespace_id = $1 AND x.subscribed OFFSET 0
	) s
	CROSS JOIN LATERAL (
		SELECT x.published_at FROM kagzi.events x WHERE x.topic = s.topic AND x.namespace_id = $1
			AND x.position > s.looked_at ORDER BY x.position LIMIT 1
	) e
) g
WHERE p.paused_at IS NULL AND g.since <= now() - $3::bigint * interval '1 microsecond'
ORDER BY g.since
LIMIT $4`

// A LateConsumer is due, and has no run.
type LateConsumer struct {
	Consumer, Queue string
	Waiting         time.Duration
}

// LateConsumers returns the first consumers that are due for longer than late, although nothing pauses them.
func (s *Health) LateConsumers(ctx context.Context, db pg.DB, late time.Duration,
	limit int,
) (out []LateConsumer, err error) {
	err = pg.Do(ctx, func(ctx context.Context) error {
		return pg.Ask(ctx, db, lateConsumers, []any{s.namespace, mostListed, pg.Micros(late), limit},
			pg.Collect(&out, func(row pgx.CollectableRow) (c LateConsumer, err error) {
				var waiting int64
				err = row.Scan(&c.Consumer, &c.Queue, &waiting)
				c.Waiting = time.Duration(waiting) * time.Microsecond
				return c, err
			}))
	})
	return out, pg.Wrap("find consumers that wait for a run", err)
}

const (
	topicsWithoutConsumers = `WITH RECURSIVE ` + topicsWithEvents + `
SELECT first_topics.topic` + unsubscribed
	ownTopicsWithoutConsumers = `WITH RECURSIVE ` + ownTopicsWithEvents + `
SELECT first_topics.topic` + unsubscribed
)

const unsubscribed = `
FROM first_topics
WHERE (
	SELECT count(*) FROM (SELECT FROM kagzi.subscriptions x WHERE x.topic = first_topics.topic AND x.namespace_id = $1
		AND x.subscribed LIMIT 1) x
) = 0 AND (
	SELECT count(*) FROM (SELECT FROM kagzi.events x WHERE x.topic = first_topics.topic
		AND x.namespace_id = $1 LIMIT 1) x
) > 0
ORDER BY first_topics.topic
LIMIT $3`

// TopicsWithoutConsumers returns the first topics that have events, and to which no consumer subscribes.
func (s *Health) TopicsWithoutConsumers(ctx context.Context, db pg.DB, limit int) (out []string, err error) {
	err = pg.Do(ctx, func(ctx context.Context) error {
		spread, err := pg.IsOnCitus(ctx, db)
		if err != nil {
			return err
		}
		statement := topicsWithoutConsumers
		if spread {
			statement = ownTopicsWithoutConsumers
		}
		return pg.Ask(ctx, db, statement, []any{s.namespace, 10 * mostListed, limit},
			pg.Collect(&out, pgx.RowTo[string]))
	})
	return out, pg.Wrap("find topics without consumers", err)
}
