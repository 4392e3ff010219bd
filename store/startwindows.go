package store

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
)

func anyWindow(runs []NewRun) bool {
	for i := range runs {
		if runs[i].Window != nil {
			return true
		}
	}
	return false
}

// startInWindows is startEach for runs of which some have a Window. It locks the windows, and then the runs of those
// that are open, so that no claim takes them. From then until the end of the transaction no other transaction can join,
// open or close them. What it reads comes in a further statement, which sees what others have committed meanwhile.
// repeated says that the answer to an earlier try may have been lost; that one held the same locks, so it is over now.
//
// A transaction locks windows in the order of their IDs, then their runs in the order of theirs, and then inserts runs.
func (s Starts) startInWindows(ctx context.Context, tx pgx.Tx, runs []NewRun, repeated bool) ([]StartedRun, error) {
	p, err := s.readWindows(ctx, tx, runs)
	var settled map[int]bool
	if err == nil && repeated {
		settled, err = s.findRepeated(ctx, tx, p)
	}
	if err == nil {
		err = p.assign(settled)
	}
	if err != nil {
		return nil, err
	}
	if len(p.rest) > 0 {
		rest := pickRuns(p.runs, p.rest)
		started, err := s.startEach(ctx, tx, rest, repeated)
		if err != nil {
			return nil, err
		}
		for k, i := range p.rest {
			p.inserted(i, started[k])
		}
	}
	return p.out, s.writeWindows(ctx, tx, p)
}

func pickRuns(runs []NewRun, indexes []int) []NewRun {
	picked := make([]NewRun, len(indexes))
	for k, i := range indexes {
		picked[k] = runs[i]
	}
	return picked
}

// The conflicting rows are locked, although the condition lets none of them change.
const lockWindows = `
WITH given AS MATERIALIZED (
	SELECT u.window_id, u.policy, u.workflow_type, u.start_key, statement_timestamp() AS now
	FROM unnest($2::uuid[], $3::text[], $4::text[], $5::text[]) AS u (window_id, policy, workflow_type, start_key)
)
INSERT INTO kagzi.start_windows AS w (window_id, namespace_id, policy, workflow_type, start_key, closes_at)
SELECT given.window_id, $1, given.policy, given.workflow_type, given.start_key, given.now FROM given
	ORDER BY given.window_id
ON CONFLICT (window_id, namespace_id) DO UPDATE SET policy = w.policy WHERE false`

var windowColumns = columnsOf(lockWindows,
	uuids("window_id", func(w *openWindow) uuid.UUID { return w.id }),
	texts("policy", func(w *openWindow) string { return w.policy }),
	texts("workflow_type", func(w *openWindow) string { return w.typ }),
	texts("start_key", func(w *openWindow) string { return w.key }),
)

// A run that was claimed, and was given back before it began, waits like others.
const lockWaiting = `
SELECT r.run_id
FROM (
	SELECT w.run_id
	FROM unnest($2::uuid[]) AS u (window_id)
	CROSS JOIN LATERAL (
		SELECT w.run_id FROM kagzi.start_windows w
		WHERE w.window_id = u.window_id AND w.namespace_id = $1 AND w.policy <> 'once_per'
			AND w.closes_at > statement_timestamp()
		OFFSET 0
	) w
	ORDER BY 1
) w
CROSS JOIN LATERAL (
	SELECT q.run_id FROM kagzi.workflow_runs q
	WHERE q.run_id = w.run_id AND q.namespace_id = $1 AND q.status = 'PENDING' AND q.started_at IS NULL
	FOR UPDATE
) r`

// A run whose window closes within a second is announced with each start: a claim may skip it while it is locked.
const windowStates = `
SELECT w.window_id, w.run_id, w.start_id, w.items, w.bytes, w.most, w.closes_at > t.now,
	w.closes_at <= t.now + interval '1 second', r.workflow_type, coalesce(r.waits, false)
FROM (SELECT statement_timestamp() AS now) t
CROSS JOIN unnest($2::uuid[]) AS u (window_id)
CROSS JOIN LATERAL (
	SELECT w.window_id, w.run_id, w.start_id, w.items, w.bytes, w.most, w.closes_at
	FROM kagzi.start_windows w WHERE w.window_id = u.window_id AND w.namespace_id = $1 OFFSET 0
) w
LEFT JOIN LATERAL (
	SELECT q.workflow_type, q.status = 'PENDING' AND q.started_at IS NULL AS waits
	FROM kagzi.workflow_runs q WHERE q.run_id = w.run_id AND q.namespace_id = $1 OFFSET 0
) r ON true`

// readWindows locks the windows of the runs, with their runs, and reads them.
func (s Starts) readWindows(ctx context.Context, tx pgx.Tx, runs []NewRun) (*windowPlan, error) {
	p := planWindows(runs)
	ids := make([]uuid.UUID, len(p.windows))
	for i, w := range p.windows {
		ids[i] = w.id
	}
	b := &pgx.Batch{}
	b.Queue(lockWindows, windowColumns.args(s.namespace, p.windows)...)
	b.Queue(lockWaiting, s.namespace, array(ids))
	b.Queue(windowStates, s.namespace, array(ids))
	err := pg.Exchange(ctx, tx, pg.Untimed, b, nil, nil, func(rows pgx.Rows) error {
		for rows.Next() {
			var id uuid.UUID
			var found windowState
			var typ *string
			if err := rows.Scan(&id, pg.UUIDTo(&found.run), pg.UUIDTo(&found.start), &found.items, &found.bytes,
				&found.most,
				&found.open, &found.closing, &typ, &found.waits); err != nil {
				return err
			}
			found.runType = pg.Deref(typ)
			p.byID[id].windowState = found
		}
		return rows.Err()
	})
	return p, err
}

const itemsOfStarts = `
SELECT r.item_id, r.run_id
FROM unnest($2::uuid[]) AS u (item_id)
CROSS JOIN LATERAL (
	SELECT i.item_id, i.run_id FROM kagzi.start_items i WHERE i.item_id = u.item_id AND i.namespace_id = $1 OFFSET 0
) r`

// findRepeated sets the results of an earlier try of the same call, and returns the indexes of these runs. A debounce
// whose input another start has replaced since is not found: it replaces the other one's input in its turn.
func (s Starts) findRepeated(ctx context.Context, tx pgx.Tx, p *windowPlan) (map[int]bool, error) {
	var mine []int
	var ids []uuid.UUID
	for i := range p.runs {
		if p.of[i] != nil {
			mine, ids = append(mine, i), append(ids, p.runs[i].RunID)
		}
	}
	items := map[uuid.UUID]uuid.UUID{}
	err := pg.Ask(ctx, tx, itemsOfStarts, []any{s.namespace, array(ids)}, func(rows pgx.Rows) error {
		var item, run uuid.UUID
		_, err := pgx.ForEachRow(rows, []any{pg.UUIDTo(&item), pg.UUIDTo(&run)}, func() error {
			items[item] = run
			return nil
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	started, err := s.existing(ctx, tx, p.runs, mine)
	if err != nil {
		return nil, err
	}
	settled := map[int]bool{}
	for _, i := range mine {
		id, w := p.runs[i].RunID, p.of[i]
		switch run, added := items[id]; {
		case started[id]:
			p.out[i] = StartedRun{RunID: id}
		case added:
			p.out[i] = StartedRun{RunID: run, Existed: true, Due: true} // it may have filled the batch
		case w.start == id:
			p.out[i] = StartedRun{RunID: w.run, Existed: true}
		default:
			continue
		}
		settled[i] = true
	}
	return settled, nil
}

// opened is the run that has opened the window now, if one has: the window's time counts from its start.
const updateWindows = `
WITH given AS MATERIALIZED (
	SELECT u.window_id, u.run_id, u.start_id, u.items, u.bytes, u.most,
		r.created_at + u.length * interval '1 microsecond' AS closes_at
	FROM unnest($2::uuid[], $3::uuid[], $4::uuid[], $5::uuid[], $6::int[], $7::bigint[], $8::int[], $9::bigint[])
		AS u (window_id, run_id, opened, start_id, items, bytes, most, length)
	LEFT JOIN LATERAL (
		SELECT q.created_at FROM kagzi.workflow_runs q WHERE q.run_id = u.opened AND q.namespace_id = $1 OFFSET 0
	) r ON true
)
UPDATE kagzi.start_windows w
SET run_id = given.run_id, start_id = given.start_id, items = given.items, bytes = given.bytes, most = given.most,
	closes_at = coalesce(given.closes_at, w.closes_at)
FROM given
WHERE w.window_id = given.window_id AND w.namespace_id = $1`

var updateColumns = columnsOf(updateWindows,
	uuids("window_id", func(w *openWindow) uuid.UUID { return w.id }),
	uuids("run_id", func(w *openWindow) uuid.UUID { return w.run }),
	uuids("opened", func(w *openWindow) uuid.UUID { return w.opened }),
	uuids("start_id", func(w *openWindow) uuid.UUID { return w.start }),
	ints("items", func(w *openWindow) int { return w.items }),
	bigints("bytes", func(w *openWindow) int64 { return w.bytes }),
	ints("most", func(w *openWindow) int { return w.most }),
	bigints("length", func(w *openWindow) int64 { return pg.Micros(w.length) }),
)

const insertItems = `
INSERT INTO kagzi.start_items (run_id, place, namespace_id, item_id, input)
SELECT u.run_id, u.place, $1, u.item_id, u.input
FROM unnest($2::uuid[], $3::int[], $4::uuid[], $5::bytea[]) AS u (run_id, place, item_id, input)`

var itemColumns = columnsOf(insertItems,
	uuids("run_id", func(i startItem) uuid.UUID { return i.run }),
	ints("place", func(i startItem) int { return i.place }),
	uuids("item_id", func(i startItem) uuid.UUID { return i.id }),
	byteas("input", func(i startItem) []byte { return i.input }),
)

// The run is due after the delay, at the latest when its window closes. Its Timeout counts from then. A run with a key
// leaves a change, because it may be due earlier than a claim has seen.
const changeWaiting = `
WITH changed AS MATERIALIZED (
	SELECT d.run_id, d.due, CASE WHEN d.deadline_at IS NOT NULL THEN d.due + d.timeout END AS deadline,
		d.due + d.start_within AS start_by, d.input
	FROM (
		SELECT q.run_id, LEAST(statement_timestamp() + u.delay * interval '1 microsecond', w.closes_at) AS due,
			q.deadline_at, q.timeout, q.start_within, u.input
		FROM unnest($2::uuid[], $3::uuid[], $4::bigint[], $5::bytea[]) AS u (run_id, window_id, delay, input)
		CROSS JOIN LATERAL (
			SELECT w.closes_at FROM kagzi.start_windows w WHERE w.window_id = u.window_id
				AND w.namespace_id = $1 OFFSET 0
		) w
		CROSS JOIN LATERAL (
			SELECT q.run_id, q.deadline_at, q.timeout, q.start_within FROM kagzi.workflow_runs q
				WHERE q.run_id = u.run_id AND q.namespace_id = $1 OFFSET 0
		) q
	) d
), updated AS (
	UPDATE kagzi.workflow_runs r
	SET available_at = changed.due, deadline_at = changed.deadline, start_by = changed.start_by,
		input = coalesce(changed.input, r.input)
	FROM changed
	WHERE r.run_id = changed.run_id AND r.namespace_id = $1
	RETURNING r.run_key, r.key_scope
), ` + insertChanges + ` updated k WHERE k.run_key IS NOT NULL
)
SELECT count(*) FROM updated`

var changeColumns = columnsOf(changeWaiting,
	uuids("run_id", func(c *waitingChange) uuid.UUID { return c.run }),
	uuids("window_id", func(c *waitingChange) uuid.UUID { return c.window }),
	bigints("delay", func(c *waitingChange) int64 { return pg.Micros(c.delay) }),
	byteas("input", func(c *waitingChange) []byte { return c.input }),
)

// writeWindows writes the new states of the windows, and the runs before that: a run that is in the table is due when
// its own window closes, and not the one that may have taken its place.
func (s Starts) writeWindows(ctx context.Context, tx pgx.Tx, p *windowPlan) error {
	b := &pgx.Batch{}
	if changes := p.changes(); len(changes) > 0 {
		b.Queue(changeWaiting, changeColumns.args(s.namespace, changes)...)
	}
	if len(p.items) > 0 {
		b.Queue(insertItems, itemColumns.args(s.namespace, p.items)...)
	}
	if written := p.written(); len(written) > 0 {
		b.Queue(updateWindows, updateColumns.args(s.namespace, written)...)
	}
	if b.Len() == 0 {
		return nil
	}
	return pg.Exchange(ctx, tx, pg.Untimed, b)
}

// Only for windows that have closed: the next start opens another one in any case. A row stays some time longer, for a
// start whose answer was lost. Rows that are locked are about to be opened.
const pruneWindows = `
WITH locked AS MATERIALIZED (
	SELECT w.window_id
	FROM kagzi.start_windows w
	WHERE w.namespace_id = $1 AND w.closes_at < now() - $2::bigint * interval '1 microsecond'
	ORDER BY w.closes_at
	LIMIT $3
	FOR UPDATE SKIP LOCKED
), deleted AS (
	DELETE FROM kagzi.start_windows w
	WHERE w.window_id = ANY (ARRAY (SELECT locked.window_id FROM locked)) AND w.namespace_id = $1
	RETURNING w.window_id
)
SELECT count(*) FROM deleted`

// PruneWindows deletes up to limit windows that have been closed for longer than keep, and returns how many it has
// deleted.
func (s Starts) PruneWindows(ctx context.Context, keep time.Duration, limit int) (n int64, err error) {
	err = pg.Do(ctx, func(ctx context.Context) error {
		n, err = pg.AskOne[int64](ctx, s.pool, pruneWindows, s.namespace, pg.Micros(keep), limit)
		return err
	})
	return n, pg.Wrap("prune windows", err)
}
