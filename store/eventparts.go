package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// eventParts is how many partitions kagzi.events has. At most seven of them have events that are kept, and one is open.
const eventParts = 8

// A namespace whose coordinators have said nothing for a month keeps nothing.
const (
	keepEvents = `
WITH t AS MATERIALIZED (SELECT now() AS now, now() - interval '1 day' AS before)
INSERT INTO kagzi.event_keepers AS x (keeper, keep, told_at)
SELECT $1, $2::bigint * interval '1 microsecond', t.now FROM t
ON CONFLICT (keeper) DO UPDATE SET keep = excluded.keep, told_at = excluded.told_at
WHERE x.keep <> excluded.keep OR x.told_at < (SELECT t.before FROM t)`

	readEventParts = `
SELECT p.part, p.closed_at IS NOT NULL, coalesce(CASE WHEN p.closed_at IS NULL THEN p.opened_at <= now() - k.keep / 6 ELSE p.closed_at <= now() - k.keep END, false)
FROM kagzi.event_parts p
CROSS JOIN (SELECT max(x.keep) AS keep FROM kagzi.event_keepers x WHERE x.told_at > now() - interval '30 days') k
ORDER BY p.part
FOR UPDATE OF p`

	openFirstPart   = `INSERT INTO kagzi.event_parts (part, opened_at) VALUES (0, now()) ON CONFLICT DO NOTHING`
	closeEventPart  = `UPDATE kagzi.event_parts p SET closed_at = now() WHERE p.part = $1`
	openEventPart   = `INSERT INTO kagzi.event_parts (part, opened_at) VALUES ($1, now())`
	deleteEventPart = `DELETE FROM kagzi.event_parts p WHERE p.part = $1`

	// Nobody publishes while it is held: whoever publishes later sees what those before have published.
	lockEvents = `LOCK TABLE kagzi.events IN SHARE ROW EXCLUSIVE MODE`
)

// An eventPart is a partition of kagzi.events that is open or has events.
type eventPart struct {
	number int16
	closed bool
	due    bool // it has been open for long enough, or its events are old
}

// RotateEvents removes the events that are older than all namespaces keep them, and opens another partition once the one that is open has
// events of a sixth of that time. keep is that of this namespace. It waits only briefly for those who publish, and returns a lock's error
// if they take longer.
func (s *Store) RotateEvents(ctx context.Context, keep time.Duration) error {
	err := do(ctx, func(ctx context.Context) error {
		return transact(ctx, s.pool, brief, func(tx pgx.Tx) error {
			if err := ask(ctx, tx, keepEvents, []any{s.namespace, micros(keep)}, nil); err != nil {
				return err
			}
			var parts []eventPart
			err := ask(ctx, tx, readEventParts, nil, collect(&parts, func(row pgx.CollectableRow) (p eventPart, err error) {
				return p, row.Scan(&p.number, &p.closed, &p.due)
			}))
			if err == nil && len(parts) == 0 {
				return ask(ctx, tx, openFirstPart, nil, nil)
			}
			if err == nil {
				parts, err = s.removeOldParts(ctx, tx, parts)
			}
			if err == nil {
				err = s.openNextPart(ctx, tx, parts)
			}
			return err
		})
	})
	return wrap("rotate events", err)
}

// removeOldParts returns the parts that remain.
func (s *Store) removeOldParts(ctx context.Context, tx pgx.Tx, parts []eventPart) (rest []eventPart, err error) {
	for _, p := range parts {
		if !p.closed || !p.due {
			rest = append(rest, p)
			continue
		}
		if err := ask(ctx, tx, fmt.Sprintf(`TRUNCATE kagzi.events_%d`, p.number), nil, nil); err != nil {
			return nil, err
		}
		if err := ask(ctx, tx, deleteEventPart, []any{p.number}, nil); err != nil {
			return nil, err
		}
	}
	return rest, nil
}

// openNextPart opens another partition if it is time, and there is one without events. Otherwise the one that is open has to do.
func (s *Store) openNextPart(ctx context.Context, tx pgx.Tx, parts []eventPart) error {
	open, used := int16(-1), map[int16]bool{}
	for _, p := range parts {
		if used[p.number] = true; !p.closed && p.due {
			open = p.number
		}
	}
	if open < 0 || len(parts) == eventParts {
		return nil
	}
	next := open
	for used[next] {
		next = (next + 1) % eventParts
	}
	if err := ask(ctx, tx, lockEvents, nil, nil); err != nil {
		return err
	}
	if err := ask(ctx, tx, closeEventPart, []any{open}, nil); err != nil {
		return err
	}
	return ask(ctx, tx, openEventPart, []any{next}, nil)
}
