package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/store/internal/clause"
)

// A namespace whose coordinators have said nothing for a month keeps nothing.
const (
	keepEvents = `
INSERT INTO kagzi.event_keepers AS x (keeper, keep, keep_pending, told_at)
VALUES ($1, $2::bigint * interval '1 microsecond', $3::bigint * interval '1 microsecond', now())
ON CONFLICT (keeper) DO UPDATE SET keep = excluded.keep, keep_pending = excluded.keep_pending,
	told_at = excluded.told_at
WHERE (x.keep, x.keep_pending) <> (excluded.keep, excluded.keep_pending)
	OR excluded.told_at - x.told_at > interval '1 day'`

	// While pending events hold up a partition ($1), the open one is used for a sixth of their time: the others then
	// suffice for that time.
	readEventParts = `
SELECT p.part, p.closed_at IS NOT NULL, coalesce(CASE
		WHEN p.closed_at IS NOT NULL THEN p.closed_at <= now() - k.keep
		WHEN $1::bool THEN p.opened_at <= now() - k.keep_pending / 6
		ELSE p.opened_at <= now() - k.keep / 6
	END, false)
FROM kagzi.event_parts p
CROSS JOIN (
	SELECT max(x.keep) AS keep, max(x.keep_pending) AS keep_pending FROM kagzi.event_keepers x
		WHERE x.told_at > now() - interval '30 days'
) k
ORDER BY p.part
FOR UPDATE OF p`

	// A consumer for which the partition $1 is kept: it has not consumed one of the events, and its namespace keeps
	// those for longer. For each subscription this is one search of events_order in each gap between the ranges that
	// are consumed, in all namespaces.
	partHolder = `
SELECT s.namespace_id, s.consumer, s.topic
FROM kagzi.event_parts p
CROSS JOIN kagzi.event_keepers k
CROSS JOIN LATERAL (
	SELECT x.topic, x.consumer, x.namespace_id, pg_catalog.int8multirange(pg_catalog.int8range(x.position + 1,
		NULL)) - x.consumed AS pending
	FROM kagzi.subscriptions x
	WHERE x.namespace_id = k.keeper AND x.subscribed
	OFFSET 0
) s
CROSS JOIN LATERAL unnest(s.pending) AS g (gap)
CROSS JOIN LATERAL (
	SELECT FROM kagzi.events x
	WHERE x.part = $1 AND x.topic = s.topic AND x.namespace_id = s.namespace_id AND x.position >= lower(g.gap)
		AND x.position < coalesce(upper(g.gap), 9223372036854775807)
	LIMIT 1
) e
WHERE p.part = $1 AND p.closed_at > now() - k.keep_pending AND k.told_at > now() - interval '30 days'
LIMIT 1`

	// partHolder for tables that are distributed: each server searches the subscriptions that it has. Citus refuses a
	// function in FROM there, so this reads the events after the first gap, and leaves out the consumed ones.
	spreadPartHolder = `
SELECT s.namespace_id, s.consumer, s.topic
FROM kagzi.event_parts p
CROSS JOIN kagzi.event_keepers k
JOIN kagzi.subscriptions s ON s.namespace_id = k.keeper AND s.subscribed
WHERE p.part = $1 AND p.closed_at > now() - k.keep_pending AND k.told_at > now() - interval '30 days' AND EXISTS (
	SELECT 1
	FROM kagzi.events x
	WHERE x.part = $1 AND x.topic = s.topic AND x.namespace_id = s.namespace_id AND x.position > s.position
		AND NOT s.consumed @> x.position
)
LIMIT 1`

	openFirstPart   = `INSERT INTO kagzi.event_parts (part, opened_at) VALUES (0, now()) ON CONFLICT DO NOTHING`
	closeEventPart  = `UPDATE kagzi.event_parts p SET closed_at = now() WHERE p.part = $1`
	openEventPart   = `INSERT INTO kagzi.event_parts (part, opened_at) VALUES ($1, now())`
	deleteEventPart = `DELETE FROM kagzi.event_parts p WHERE p.part = $1`

	// No transaction publishes while it is held: one that publishes later sees what those before have published.
	lockEvents = `LOCK TABLE kagzi.events IN SHARE ROW EXCLUSIVE MODE`
)

// An eventPart is a partition of kagzi.events that is open or has events.
type eventPart struct {
	number int16
	closed bool
	due    bool // it has been open for long enough, or its events are old
}

// RotateEvents removes the events that are older than all namespaces keep them, and opens another partition once the
// one that is open has events of a sixth of that time. keep is that of this namespace, pending that of events that a
// consumer has not consumed. It waits only briefly for those who publish. If they take longer, it does what else there
// is to do, and returns the lock's error.
//
// Each step is a transaction of its own. One that empties a partition and then waits for publishers would wait for
// those who wait for that partition.
func (s Topics) RotateEvents(ctx context.Context, keep, pending time.Duration) error {
	held := map[int16]bool{} // partitions that were found to have pending events
	step := func(f func(context.Context, pgx.Tx, []eventPart) error) error {
		return pg.Do(ctx, func(ctx context.Context) error {
			return pg.Transact(ctx, s.pool, pg.Brief, func(tx pgx.Tx) error {
				var parts []eventPart
				err := pg.Ask(ctx, tx, readEventParts, []any{len(held) > 0},
					pg.Collect(&parts, func(row pgx.CollectableRow) (p eventPart, err error) {
						return p, row.Scan(&p.number, &p.closed, &p.due)
					}))
				if err != nil {
					return err
				}
				return f(ctx, tx, parts)
			})
		})
	}
	err := pg.Do(ctx, func(ctx context.Context) error {
		return pg.Ask(ctx, s.pool, keepEvents, []any{s.namespace, pg.Micros(keep), pg.Micros(pending)}, nil)
	})
	if err != nil {
		return pg.Wrap("rotate events", err)
	}
	for more := true; more && err == nil; {
		err = step(func(ctx context.Context, tx pgx.Tx, parts []eventPart) (err error) {
			more, err = s.removeOldPart(ctx, tx, parts, held)
			return err
		})
	}
	if opened := step(s.openNextPart); err == nil || pg.Locked(err) {
		err = cmp.Or(opened, err)
	}
	return pg.Wrap("rotate events", err)
}

// removeOldPart empties one partition whose events are too old, if there is one without pending events. It adds those
// with pending events to held.
func (s Topics) removeOldPart(ctx context.Context, tx pgx.Tx, parts []eventPart,
	held map[int16]bool,
) (did bool, err error) {
	for _, p := range parts {
		if !p.closed || !p.due || held[p.number] {
			continue
		}
		holder, err := s.partHolder(ctx, tx, p.number)
		if err != nil {
			return false, err
		}
		if held[p.number] = holder != nil; held[p.number] {
			continue
		}
		if err := pg.Ask(ctx, tx, fmt.Sprintf(`TRUNCATE kagzi.events_%d`, p.number), nil, nil); err != nil {
			return false, err
		}
		return true, pg.Ask(ctx, tx, deleteEventPart, []any{p.number}, nil)
	}
	return false, nil
}

// A PartHolder is a consumer that has not consumed an event.
type PartHolder struct{ Namespace, Consumer, Topic string }

// partHolder returns a consumer for which the partition is kept, nil if there is none.
func (s Topics) partHolder(ctx context.Context, db pg.DB, part int16) (*PartHolder, error) {
	var h PartHolder
	spread, err := pg.IsOnCitus(ctx, db)
	if err != nil {
		return nil, err
	}
	statement := partHolder
	if spread {
		statement = spreadPartHolder
	}
	err = pg.AskRow(ctx, db, statement, []any{part}, &h.Namespace, &h.Consumer, &h.Topic)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	return &h, err
}

// openNextPart opens another partition if it is time, and there is one without events. Otherwise the one that is open
// has to do.
func (s Topics) openNextPart(ctx context.Context, tx pgx.Tx, parts []eventPart) error {
	if len(parts) == 0 {
		return pg.Ask(ctx, tx, openFirstPart, nil, nil)
	}
	open, used := int16(-1), map[int16]bool{}
	for _, p := range parts {
		if used[p.number] = true; !p.closed && p.due {
			open = p.number
		}
	}
	if open < 0 || len(parts) == clause.EventParts {
		return nil
	}
	next := open
	for used[next] {
		next = (next + 1) % clause.EventParts
	}
	if err := pg.Ask(ctx, tx, lockEvents, nil, nil); err != nil {
		return err
	}
	if err := pg.Ask(ctx, tx, closeEventPart, []any{open}, nil); err != nil {
		return err
	}
	return pg.Ask(ctx, tx, openEventPart, []any{next}, nil)
}
