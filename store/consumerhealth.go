package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// A consumer is due as startConsumers has it, except that events count which readers do not see yet: a time ago
// somebody published them.
const lateConsumers = `
WITH c AS MATERIALIZED (
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
SELECT c.consumer, c.task_queue, (extract(epoch FROM now() - g.since) * 1000000)::bigint
FROM c
` + pauseOfConsumer + `
CROSS JOIN LATERAL (
	SELECT LEAST(min(e.published_at), c.due_at) AS since
	FROM (
		SELECT x.topic, x.looked_at FROM kagzi.subscriptions x WHERE x.consumer = c.consumer AND x.namespace_id = $1
			AND x.subscribed OFFSET 0
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
func (s *Store) LateConsumers(ctx context.Context, db DB, late time.Duration,
	limit int,
) (out []LateConsumer, err error) {
	err = do(ctx, func(ctx context.Context) error {
		return ask(ctx, db, lateConsumers, []any{s.namespace, mostListed, micros(late), limit},
			collect(&out, func(row pgx.CollectableRow) (c LateConsumer, err error) {
				var waiting int64
				err = row.Scan(&c.Consumer, &c.Queue, &waiting)
				c.Waiting = time.Duration(waiting) * time.Microsecond
				return c, err
			}))
	})
	return out, wrap("find consumers that wait for a run", err)
}

const topicsWithoutConsumers = `
WITH RECURSIVE ` + topicsWithEvents + `
SELECT e.topic
FROM e
WHERE (
	SELECT count(*) FROM (SELECT FROM kagzi.subscriptions x WHERE x.topic = e.topic AND x.namespace_id = $1
		AND x.subscribed LIMIT 1) x
) = 0 AND (
	SELECT count(*) FROM (SELECT FROM kagzi.events x WHERE x.topic = e.topic AND x.namespace_id = $1 LIMIT 1) x
) > 0
ORDER BY e.topic
LIMIT $3`

// TopicsWithoutConsumers returns the first topics that have events, and to which no consumer subscribes.
func (s *Store) TopicsWithoutConsumers(ctx context.Context, db DB, limit int) (out []string, err error) {
	err = do(ctx, func(ctx context.Context) error {
		return ask(ctx, db, topicsWithoutConsumers, []any{s.namespace, 10 * mostListed, limit},
			collect(&out, pgx.RowTo[string]))
	})
	return out, wrap("find topics without consumers", err)
}

const ageOfParts = `
SELECT p.part, p.closed_at IS NOT NULL,
	(extract(epoch FROM now() - coalesce(p.closed_at, p.opened_at)) * 1000000)::bigint,
	(extract(epoch FROM k.keep) * 1000000)::bigint, (extract(epoch FROM k.keep_pending) * 1000000)::bigint
FROM kagzi.event_parts p
CROSS JOIN (
	SELECT max(x.keep) AS keep, max(x.keep_pending) AS keep_pending FROM kagzi.event_keepers x
		WHERE x.told_at > now() - interval '30 days'
) k
WHERE k.keep IS NOT NULL
ORDER BY 3 DESC`

// EventsKept says which events are kept for longer than their time.
type EventsKept struct {
	// since then a partition should have been emptied, or another one opened; zero if that is less than a sixth of
	// their time
	Late    time.Duration
	Holders []PartHolder // consumers for which partitions are kept, one for each, of all namespaces
}

// EventsKept looks for events that are kept for longer than their time.
func (s *Store) EventsKept(ctx context.Context, db DB) (out EventsKept, err error) {
	type part struct {
		number             int16
		closed             bool
		age, keep, pending int64 // since it was closed, or opened; in microseconds
	}
	err = do(ctx, func(ctx context.Context) error {
		out = EventsKept{}
		var parts []part
		err := ask(ctx, db, ageOfParts, nil, collect(&parts, func(row pgx.CollectableRow) (p part, err error) {
			return p, row.Scan(&p.number, &p.closed, &p.age, &p.keep, &p.pending)
		}))
		late := func(p part, by int64) {
			if by >= p.keep/6 {
				out.Late = max(out.Late, time.Duration(by)*time.Microsecond)
			}
		}
		for _, p := range parts {
			if err != nil || !p.closed || p.age < p.keep {
				continue
			}
			var holder *PartHolder
			if holder, err = s.partHolder(ctx, db, p.number); holder != nil {
				out.Holders = append(out.Holders, *holder)
			} else if err == nil {
				late(p, p.age-p.keep)
			}
		}
		for _, p := range parts {
			switch {
			case p.closed || len(parts) == eventParts:
			case len(out.Holders) > 0:
				late(p, p.age-p.pending/6)
			default:
				late(p, p.age-p.keep/6)
			}
		}
		return err
	})
	return out, wrap("find events that are kept for too long", err)
}
