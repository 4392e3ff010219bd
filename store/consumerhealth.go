package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/store/internal/clause"
)

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
func (s Topics) EventsKept(ctx context.Context, db pg.DB) (out EventsKept, err error) {
	type part struct {
		number             int16
		closed             bool
		age, keep, pending int64 // since it was closed, or opened; in microseconds
	}
	err = pg.Do(ctx, func(ctx context.Context) error {
		out = EventsKept{}
		var parts []part
		err := pg.Ask(ctx, db, ageOfParts, nil, pg.Collect(&parts, func(row pgx.CollectableRow) (p part, err error) {
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
			case p.closed || len(parts) == clause.EventParts:
			case len(out.Holders) > 0:
				late(p, p.age-p.pending/6)
			default:
				late(p, p.age-p.keep/6)
			}
		}
		return err
	})
	return out, pg.Wrap("find events that are kept for too long", err)
}
