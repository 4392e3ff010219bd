package store

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/store/internal/clause"
)

// A Retention says how long runs are kept after they end.
type Retention struct {
	Completed time.Duration
	Failed    time.Duration            // failed and cancelled runs
	Workflows map[string]time.Duration // instead of both
}

// Shortest returns the shortest time for which any run is kept.
func (r Retention) Shortest() time.Duration {
	shortest := min(r.Completed, r.Failed)
	for _, d := range r.Workflows {
		shortest = min(shortest, d)
	}
	return shortest
}

// args returns the retention as arguments of the statements.
func (r Retention) args() []any {
	types, keeps := make([]string, 0, len(r.Workflows)), make([]int64, 0, len(r.Workflows))
	for name, d := range r.Workflows {
		types, keeps = append(types, name), append(keeps, pg.Micros(d))
	}
	return []any{pg.Micros(r.Completed), pg.Micros(r.Failed), types, keeps}
}

// A Range is a part of the key that a walk still has to visit: the IDs above After, up to and including End.
type Range struct {
	After, End uuid.UUID
}

// Middle returns an ID between the ends of r, and false if r is too short to be divided.
func (r Range) Middle() (id uuid.UUID, ok bool) {
	after, end := binary.BigEndian.Uint64(r.After[:]), binary.BigEndian.Uint64(r.End[:])
	if end < after || end-after < 2 {
		return uuid.Nil, false
	}
	binary.BigEndian.PutUint64(id[:], after+(end-after)/2)
	return id, true
}

const beginWalk = `
SELECT now(), (SELECT count(*) FROM kagzi.workers w WHERE w.namespace_id = $1 AND w.status <> 'OFFLINE')`

// RetentionRanges returns the ranges in which runs may have ended longer ago than keep, and the number of workers. IDs
// are ordered by the time at which the client made them. No run ends before it was made, so the ranges leave out the
// IDs made within keep. They include IDs of the future: clients made them with a clock that is ahead, or without a
// clock.
func (s Deletions) RetentionRanges(ctx context.Context, keep time.Duration) (ranges []Range, workers int, err error) {
	var now time.Time
	err = pg.Do(ctx, func(ctx context.Context) error {
		return pg.AskRow(ctx, s.pool, beginWalk, []any{s.namespace}, pg.UTC(&now), &workers)
	})
	return []Range{{End: pg.IDAt(now.Add(-keep))}, {After: pg.IDAt(now), End: uuid.Max}}, workers, pg.Wrap("begin walk",
		err)
}

// The planner's statistics of the key: an estimate of the namespace's share of the runs, and IDs that divide the key
// into parts of equal size.
const keyStatistics = `
WITH stats AS MATERIALIZED (
	SELECT s.attname, s.histogram_bounds, s.most_common_freqs AS shares, s.most_common_vals::text::text[] AS namespaces,
		CASE WHEN s.n_distinct < 0 THEN -s.n_distinct * c.reltuples ELSE s.n_distinct END AS n
	FROM pg_catalog.pg_stats s
	JOIN pg_catalog.pg_namespace n ON n.nspname = s.schemaname
	JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = s.tablename
	WHERE s.schemaname = 'kagzi' AND s.tablename = 'workflow_runs' AND s.attname IN ('namespace_id', 'run_id')
)
SELECT coalesce((
		SELECT coalesce(stats.shares[array_position(stats.namespaces, $1::text)],
			(1 - coalesce((SELECT sum(u.share) FROM unnest(stats.shares) AS u (share)), 0)) / GREATEST(1,
				stats.n - coalesce(cardinality(stats.namespaces), 0)))
		FROM stats WHERE stats.attname = 'namespace_id'
	), 1)::float8,
	coalesce((SELECT stats.histogram_bounds::text::uuid[] FROM stats WHERE stats.attname = 'run_id'), '{}')`

// KeyStatistics returns the namespace's share of all runs, from 0 to 1, and IDs that divide the runs of all namespaces
// into parts of about equal size. They are as recent as the table's last ANALYZE. Without one, the share is 1 and there
// are no IDs.
func (s Deletions) KeyStatistics(ctx context.Context) (share float64, bounds []uuid.UUID, err error) {
	err = pg.Do(ctx, func(ctx context.Context) error {
		return pg.AskRow(ctx, s.pool, keyStatistics, []any{s.namespace}, &share, &bounds)
	})
	return min(1, max(0, share)), bounds, pg.Wrap("read the table's statistics", err)
}

// No index has the ends of runs, because every finish would pay for it. So the key is walked in portions.
const expiredRuns = `
SELECT w.run_id, w.old, w.visited
FROM (
	SELECT v.run_id, v.old, row_number() OVER () AS number, count(*) OVER () AS visited
	FROM (
		SELECT q.run_id, q.status IN ('COMPLETED', 'FAILED', 'CANCELLED')
			AND (q.finished_at <= now() - interval '1 microsecond' *
			coalesce(($7::bigint[])[array_position($6::text[], q.workflow_type)], CASE q.status WHEN 'COMPLETED'
				THEN $4::bigint ELSE $5::bigint END)
			OR coalesce(q.waiting_on = '` + clause.BeingDeleted + `', false)) AS old
		FROM kagzi.workflow_runs q
		WHERE q.run_id > $2 AND q.run_id <= $3 AND q.namespace_id = $1
		ORDER BY q.run_id
		LIMIT $8
	) v
) w
WHERE w.old OR w.number = w.visited`

// Expired visits the next n runs of r. It returns those that are past their retention, and the rest of r, nil at
// its end. The statement reads the key of all namespaces in the range, and gives up if another transaction has locked
// the table. If it takes longer than most, Expired returns ErrTooLong: r has too many runs, counting all
// namespaces.
func (s Deletions) Expired(ctx context.Context, keep Retention, r Range, n int,
	most time.Duration,
) (old []uuid.UUID, rest *Range, err error) {
	args := append([]any{s.namespace, r.After, r.End}, append(keep.args(), n)...)
	limited := pg.Mode{Locks: most / 2, Statements: most}
	err = pg.Do(ctx, func(ctx context.Context) error {
		old, rest = nil, nil
		b := &pgx.Batch{}
		b.Queue(expiredRuns, args...)
		return pg.Exchange(ctx, s.pool, limited, b, func(rows pgx.Rows) error {
			var id uuid.UUID
			var isOld bool
			var visited int
			_, err := pgx.ForEachRow(rows, []any{&id, &isOld, &visited}, func() error {
				if isOld {
					old = append(old, id)
				}
				return nil
			})
			if visited == n {
				rest = &Range{After: id, End: r.End}
			}
			return err
		})
	})
	if pg.Code(err) == "57014" {
		err = ErrTooLong
	}
	return old, rest, pg.Wrap("find expired runs", err)
}

// ErrTooLong reports that a statement was cancelled because it took too long.
var ErrTooLong = errors.New("it took too long")

// A run is checked again under its lock, because it may have been resumed. It stays as long as its parent's row exists:
// a parent that is over may be resumed, and needs its children. A parent that was deleted never comes back, so it need
// not be locked. The condition is a CASE, because the planner would make a join of it, and check that again under the
// lock with rows that are not locked.
//
// Runs are deleted in order while they have fewer than $7 rows together. A run that alone has $7 rows is marked
// instead. The deletes have arrays as conditions: without statistics, joins would read the keys whole. Slots of limits
// stay: see deleteRuns.
const pruneRuns = `
WITH turn AS MATERIALIZED (
	SELECT pg_try_advisory_xact_lock(hashtextextended('kagzi prune ' || $1::text, 0::bigint)) AS mine
), locked AS MATERIALIZED (
	SELECT r.run_id, r.batch
	FROM (SELECT u.run_id FROM unnest($2::uuid[]) AS u (run_id) ORDER BY 1) u
	CROSS JOIN LATERAL (
		SELECT q.run_id, q.input IS NULL AS batch
		FROM kagzi.workflow_runs q
		WHERE (SELECT mine FROM turn) AND q.run_id = u.run_id AND q.namespace_id = $1
			AND q.status IN ('COMPLETED', 'FAILED', 'CANCELLED')
				AND (q.finished_at <= now() - interval '1 microsecond' *
				coalesce(($6::bigint[])[array_position($5::text[], q.workflow_type)], CASE q.status WHEN 'COMPLETED'
					THEN $3::bigint ELSE $4::bigint END)
					AND (SELECT count(*) FROM (SELECT FROM kagzi.step_runs d WHERE d.run_id = q.run_id
						AND d.namespace_id = $1 AND d.status = 'RUNNING' AND d.error_kind IS NOT NULL LIMIT 1) x) = 0
				OR q.waiting_on = '` + clause.BeingDeleted + `')
			AND CASE WHEN q.parent_run_id IS NULL THEN true ELSE NOT EXISTS (
				SELECT FROM kagzi.workflow_runs p WHERE p.run_id = q.parent_run_id AND p.namespace_id = $1) END
		FOR UPDATE SKIP LOCKED
	) r
), counted AS MATERIALIZED (
	SELECT locked.run_id, locked.batch, s.rows + g.rows + i.rows AS rows,
		sum(s.rows + g.rows + i.rows) OVER (ORDER BY locked.run_id) AS total
	FROM locked
	CROSS JOIN LATERAL (
		SELECT count(*) AS rows FROM (SELECT FROM kagzi.step_runs s WHERE s.run_id = locked.run_id
			AND s.namespace_id = $1 LIMIT $7) x
	) s
	CROSS JOIN LATERAL (
		SELECT count(*) AS rows FROM (SELECT FROM kagzi.signals g WHERE g.run_id = locked.run_id AND g.namespace_id = $1
			LIMIT $7) x
	) g
	CROSS JOIN LATERAL (
		SELECT count(*) AS rows FROM (SELECT FROM kagzi.start_items i WHERE locked.batch AND i.run_id = locked.run_id
			AND i.namespace_id = $1 LIMIT $7) x
	) i
), runs AS MATERIALIZED (
	SELECT counted.run_id, counted.batch FROM counted WHERE counted.total < $7
), steps AS (
	DELETE FROM kagzi.step_runs s WHERE s.run_id = ANY (ARRAY (SELECT runs.run_id FROM runs)) AND s.namespace_id = $1
), messages AS (
	DELETE FROM kagzi.signals g WHERE g.run_id = ANY (ARRAY (SELECT runs.run_id FROM runs)) AND g.namespace_id = $1
), waits AS (
	DELETE FROM kagzi.event_waits w WHERE w.run_id = ANY (ARRAY (SELECT runs.run_id FROM runs)) AND w.namespace_id = $1
), places AS (
	DELETE FROM kagzi.limit_places x WHERE x.run_id = ANY (ARRAY (SELECT runs.run_id FROM runs)) AND x.namespace_id = $1
		AND CASE WHEN x.lease IS NULL THEN true ELSE false END
), items AS (
	DELETE FROM kagzi.start_items i WHERE i.run_id = ANY (ARRAY (SELECT runs.run_id FROM runs WHERE runs.batch))
		AND i.namespace_id = $1
), events AS (
	DELETE FROM kagzi.run_events e WHERE e.run_id = ANY (ARRAY (SELECT runs.run_id FROM runs)) AND e.namespace_id = $1
		AND e.event <> 'DELETED'
), deleted AS (
	DELETE FROM kagzi.workflow_runs r WHERE r.run_id = ANY (ARRAY (SELECT runs.run_id FROM runs))
		AND r.namespace_id = $1
), marked AS (
	UPDATE kagzi.workflow_runs r SET waiting_on = '` + clause.BeingDeleted + `'
	WHERE r.run_id = ANY (ARRAY (SELECT counted.run_id FROM counted WHERE counted.rows >= $7)) AND r.namespace_id = $1
)
SELECT turn.mine, counted.run_id, counted.total < $7, counted.rows >= $7
FROM turn
LEFT JOIN counted ON true`

// A Pruned says what happened to the runs given to Prune. Runs that it does not name stay: they are not over, another
// transaction has locked them, or they have a parent.
type Pruned struct {
	Elsewhere bool        // another process is pruning, and Prune did nothing
	Deleted   int         // runs that were deleted, with all their rows
	Left      []uuid.UUID // runs that did not fit in this transaction
	Long      []uuid.UUID // runs that are too long for one transaction: call PruneSteps for them, and then Prune again
}

// Prune deletes the runs past their retention, in one transaction of at most rows steps, signals and items.
func (s Deletions) Prune(ctx context.Context, keep Retention, ids []uuid.UUID, rows int) (out Pruned, err error) {
	args := append([]any{s.namespace, array(ids)}, append(keep.args(), rows)...)
	err = s.prune(ctx, pg.Relaxed, pruneRuns, args, func(rows pgx.Rows) error {
		out = Pruned{}
		var mine bool
		var id *uuid.UUID
		var deleted, long *bool
		_, err := pgx.ForEachRow(rows, []any{&mine, &id, &deleted, &long}, func() error {
			switch {
			case id == nil:
				out.Elsewhere = !mine
			case *deleted:
				out.Deleted++
			case *long:
				out.Long = append(out.Long, *id)
			default:
				out.Left = append(out.Left, *id)
			}
			return nil
		})
		return err
	})
	slices.SortFunc(out.Left, compareIDs)
	return out, pg.Wrap("prune", err)
}

// Only for a run that is marked: it cannot be resumed. The lock is for others that delete the run: they would delete
// its rows in another order, and both would wait for each other. The statement deletes a range of the key, up to its
// row $3. It counts a range whose rows another transaction has deleted while it waited for the lock: there may be more
// rows behind it.
const pruneSteps = `
WITH locked AS MATERIALIZED (
	SELECT q.run_id FROM kagzi.workflow_runs q WHERE q.run_id = $2 AND q.namespace_id = $1 AND q.waiting_on = '` +
	clause.BeingDeleted + `' FOR UPDATE
), last_step AS MATERIALIZED (
	SELECT x.step_id, x.attempt_number
	FROM (
		SELECT i.step_id, i.attempt_number FROM kagzi.step_runs i
		WHERE i.run_id = (SELECT locked.run_id FROM locked) AND i.namespace_id = $1
		ORDER BY i.step_id, i.attempt_number LIMIT $3
	) x
	ORDER BY x.step_id DESC, x.attempt_number DESC LIMIT 1
), last_message AS MATERIALIZED (
	SELECT x.name, x.sequence
	FROM (
		SELECT i.name, i.sequence FROM kagzi.signals i
		WHERE i.run_id = (SELECT locked.run_id FROM locked) AND i.namespace_id = $1
		ORDER BY i.name, i.sequence LIMIT $3
	) x
	ORDER BY x.name DESC, x.sequence DESC LIMIT 1
), steps AS (
	DELETE FROM kagzi.step_runs t
	WHERE t.run_id = $2 AND t.namespace_id = $1
		AND (t.step_id, t.attempt_number) <= ((SELECT last_step.step_id FROM last_step),
		(SELECT last_step.attempt_number FROM last_step))
	RETURNING 1
), messages AS (
	DELETE FROM kagzi.signals t
	WHERE t.run_id = $2 AND t.namespace_id = $1
		AND (t.name, t.sequence) <= ((SELECT last_message.name FROM last_message),
		(SELECT last_message.sequence FROM last_message))
	RETURNING 1
)
SELECT GREATEST((SELECT count(*) FROM steps) + (SELECT count(*) FROM messages),
	(SELECT count(*) FROM last_step) + (SELECT count(*)
	FROM last_message))`

// PruneSteps deletes up to n steps and n signals of a run that Prune reported as long, and returns their number, zero
// only if none remain. It does not wait for others that delete the run: then it returns an error that is Locked.
func (s Deletions) PruneSteps(ctx context.Context, id uuid.UUID, n int) (deleted int, err error) {
	return s.pruneSteps(ctx, pg.Relaxed, id, n)
}

func (s Deletions) pruneSteps(ctx context.Context, mode pg.Mode, id uuid.UUID, n int) (deleted int, err error) {
	err = s.prune(ctx, mode, pruneSteps, []any{s.namespace, id, n}, func(rows pgx.Rows) (err error) {
		deleted, err = pgx.CollectExactlyOneRow(rows, pgx.RowTo[int])
		return err
	})
	return deleted, pg.Wrap("prune steps", err)
}

// prune sends one of the statements above, a transaction in one round trip. The commit does not wait for the disk: a
// delete that a crash undoes is repeated.
func (s Deletions) prune(ctx context.Context, mode pg.Mode, sql string, args []any, read func(pgx.Rows) error) error {
	return pg.Do(ctx, func(ctx context.Context) error {
		b := &pgx.Batch{}
		b.Queue(sql, args...)
		return pg.Exchange(ctx, s.pool, mode, b, read)
	})
}

const pruneAudit = `
WITH locked AS MATERIALIZED (
	SELECT a.entry_id
	FROM kagzi.audit_log a
	WHERE a.namespace_id = $1 AND a.namespace_id = $1 COLLATE "POSIX"
		AND a.occurred_at < now() - $2::bigint * interval '1 microsecond'
	ORDER BY a.occurred_at
	LIMIT $3
	FOR UPDATE SKIP LOCKED
), deleted AS (
	DELETE FROM kagzi.audit_log a WHERE a.entry_id = ANY (ARRAY (SELECT locked.entry_id FROM locked))
		AND a.namespace_id = $1 RETURNING a.entry_id
)
SELECT count(*) FROM deleted`

// PruneAudit deletes up to limit entries of the audit log that are older than keep, and returns how many it has
// deleted.
func (s Deletions) PruneAudit(ctx context.Context, keep time.Duration, limit int) (n int64, err error) {
	err = pg.Do(ctx, func(ctx context.Context) error {
		n, err = pg.AskOne[int64](ctx, s.pool, pruneAudit, s.namespace, pg.Micros(keep), limit)
		return err
	})
	return n, pg.Wrap("prune the audit log", err)
}
