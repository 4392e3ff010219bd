package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"
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
// events of a sixth of that time. keep is that of this namespace. It waits only briefly for those who publish. If they take longer, it does
// what else there is to do, and returns the lock's error.
//
// Each step is a transaction of its own. One that empties a partition and then waits for publishers would wait for those who wait
// for that partition.
func (s *Store) RotateEvents(ctx context.Context, keep time.Duration) error {
	step := func(f func(context.Context, pgx.Tx, []eventPart) error) error {
		return do(ctx, func(ctx context.Context) error {
			return transact(ctx, s.pool, brief, func(tx pgx.Tx) error {
				var parts []eventPart
				err := ask(ctx, tx, readEventParts, nil, collect(&parts, func(row pgx.CollectableRow) (p eventPart, err error) {
					return p, row.Scan(&p.number, &p.closed, &p.due)
				}))
				if err != nil {
					return err
				}
				return f(ctx, tx, parts)
			})
		})
	}
	err := do(ctx, func(ctx context.Context) error {
		return ask(ctx, s.pool, keepEvents, []any{s.namespace, micros(keep)}, nil)
	})
	if err != nil {
		return wrap("rotate events", err)
	}
	for more := true; more && err == nil; {
		err = step(func(ctx context.Context, tx pgx.Tx, parts []eventPart) (err error) {
			more, err = s.removeOldPart(ctx, tx, parts)
			return err
		})
	}
	if opened := step(s.openNextPart); err == nil || Locked(err) {
		err = cmp.Or(opened, err)
	}
	return wrap("rotate events", err)
}

// removeOldPart empties one partition whose events are too old, if there is one.
func (s *Store) removeOldPart(ctx context.Context, tx pgx.Tx, parts []eventPart) (did bool, err error) {
	i := slices.IndexFunc(parts, func(p eventPart) bool { return p.closed && p.due })
	if i < 0 {
		return false, nil
	}
	if err := ask(ctx, tx, fmt.Sprintf(`TRUNCATE kagzi.events_%d`, parts[i].number), nil, nil); err != nil {
		return false, err
	}
	return true, ask(ctx, tx, deleteEventPart, []any{parts[i].number}, nil)
}

// openNextPart opens another partition if it is time, and there is one without events. Otherwise the one that is open has to do.
func (s *Store) openNextPart(ctx context.Context, tx pgx.Tx, parts []eventPart) error {
	if len(parts) == 0 {
		return ask(ctx, tx, openFirstPart, nil, nil)
	}
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
