package inspect

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/store"
	"github.com/kagzi/kagzi/store/internal/clause"
)

// A LimitState is a limit, and its use.
type LimitState struct {
	store.StepLimit
	Origin  store.Origin
	Running int       // slots in use, in units; without MaxRunning, zero
	Waiting int       // steps that wait
	NextAt  time.Time // when the next step of the line gets a token
	LineAt  time.Time // when a step that comes now would get one
}

// mostCounted bounds the counts of a LimitState.
const mostCounted = 10_000

const limits = `
SELECT c.limit_name, c.every, c.burst, coalesce(c.max_running, 0), c.retry_after, GREATEST(c.next_at, c.paused_until),
	CASE WHEN w.n > 0 THEN GREATEST(c.next_at, c.paused_until, now())
		+ LEAST(w.units * c.every::float8, 3e15) * interval '1 microsecond'
		ELSE GREATEST(c.next_at, c.paused_until) END,
	h.n, w.n, c.declared, c.set_by
FROM kagzi.limits c
CROSS JOIN LATERAL (
	SELECT coalesce(sum(x.units), 0)::bigint AS n FROM (SELECT p.units FROM kagzi.limit_places p
		WHERE p.limit_name = c.limit_name AND p.namespace_id = $1 AND p.state = 'RUNNING' AND c.max_running IS NOT NULL
			LIMIT $4) x
) h
CROSS JOIN LATERAL (
	SELECT count(*) AS n, sum(x.units) AS units FROM (SELECT p.units FROM kagzi.limit_places p
		WHERE p.limit_name = c.limit_name AND p.namespace_id = $1 AND p.state IN ('CALLED', 'WAITING') LIMIT $4) x
) w
WHERE c.limit_name > $2 AND c.namespace_id = $1
ORDER BY c.limit_name
LIMIT $3`

// Limits returns up to n limits by name, those after the given one.
func (s *Lists) Limits(ctx context.Context, after string, n int) (out []LimitState, err error) {
	err = pg.Do(ctx, func(ctx context.Context) error {
		return pg.Ask(ctx, s.pool, limits, []any{s.namespace, after, n, mostCounted},
			pg.Collect(&out, func(row pgx.CollectableRow) (l LimitState, err error) {
				var every int64
				err = row.Scan(&l.Name, &every, &l.Burst, &l.MaxRunning, &l.RetryAfter, pg.UTC(&l.NextAt),
					pg.UTC(&l.LineAt),
					&l.Running, &l.Waiting, &l.Origin.Declared, &l.Origin.Set)
				l.Every = time.Duration(every) * time.Microsecond
				return l, err
			}))
	})
	return out, pg.Wrap("list limits", err)
}

// A StuckLimit is a limit of whose line no worker takes the first step, or that an error has stopped.
type StuckLimit struct {
	Name  string
	Late  time.Duration // since the first due run of the line should have been claimed; zero: none is late
	RunID uuid.UUID     // that run
	Queue string
	Type  string
	Stop  time.Duration // for how long no step gets a token, because an error asked for that; zero: not for long
	Until time.Time
	Rated bool // the limit has a rate
	Unset bool // it was neither declared nor set, and steps wait for it
}

// The first steps that were called and have not come. A run that is paused, waits for a slot of its key, or is
// executed, is no worker's to take.
const stuckLimits = `
WITH ` + clause.PausesOfRuns + `
SELECT c.limit_name, coalesce((extract(epoch FROM now() - d.since) * 1000000)::bigint, 0), d.run_id,
	coalesce(d.task_queue, ''), coalesce(d.workflow_type, ''),
	CASE WHEN w.waits AND c.retry_after AND c.paused_until > now()
		THEN (extract(epoch FROM c.paused_until - now()) * 1000000)::bigint ELSE 0 END,
	GREATEST(c.next_at, c.paused_until),
		c.every > 0, c.declared IS NULL AND c.set_by IS NULL AND (
		SELECT count(*) FROM (
			SELECT FROM kagzi.limit_places p
			CROSS JOIN LATERAL (
				SELECT q.finished_at FROM kagzi.workflow_runs q WHERE q.run_id = p.run_id AND q.namespace_id = $1
				OFFSET 0
			) q
			WHERE p.limit_name = c.limit_name AND p.namespace_id = $1 AND p.state = 'WAITING' AND q.finished_at IS NULL
			LIMIT 1
		) x) = 1
FROM kagzi.limits c
CROSS JOIN LATERAL (
	SELECT count(*) > 0 AS waits FROM (
		SELECT FROM kagzi.limit_places p WHERE p.limit_name = c.limit_name AND p.namespace_id = $1
			AND p.state = 'CALLED' AND p.due_at > now() LIMIT 1
	) p
) w
LEFT JOIN LATERAL (
	SELECT r.*, p.since
	FROM (
		SELECT x.run_id AS waiting, x.due_at AS since
		FROM kagzi.limit_places x
		WHERE x.limit_name = c.limit_name AND x.namespace_id = $1 AND x.state = 'CALLED' AND x.due_at < now()
		ORDER BY x.due_at
		LIMIT 1000
	) p
	CROSS JOIN LATERAL (
		SELECT q.run_id, q.run_key, q.key_scope, q.task_queue, q.workflow_type, q.status = 'SLEEPING'
			AND q.available_at <= now() AND q.paused_at IS NULL
			AND (q.run_key IS NULL OR coalesce(q.slot = 2, false)) AS due
		FROM kagzi.workflow_runs q
		WHERE q.run_id = p.waiting AND q.namespace_id = $1
		OFFSET 0
	) r
	WHERE r.due AND ` + clause.Unstopped + ` AND ` + clause.KeyUnpaused + `
	ORDER BY p.since
	LIMIT 1
) d ON true
WHERE c.limit_name > '' AND c.namespace_id = $1
ORDER BY c.limit_name
LIMIT $2`

// StuckLimits returns the limits, of the first thousand, of whose line no worker has taken the first step for the time
// late, that are stopped for longer, or that steps wait for although they were never set.
func (s *Health) StuckLimits(ctx context.Context, db pg.DB, late time.Duration) (out []StuckLimit, err error) {
	err = pg.Do(ctx, func(ctx context.Context) error {
		out = nil
		return pg.Ask(ctx, db, stuckLimits, []any{s.namespace, clause.MaxQueues}, func(rows pgx.Rows) error {
			var l StuckLimit
			var waiting, stop int64
			_, err := pgx.ForEachRow(rows, []any{
				&l.Name, &waiting, pg.UUIDTo(&l.RunID), &l.Queue, &l.Type, &stop,
				pg.UTC(&l.Until), &l.Rated, &l.Unset,
			}, func() error {
				l.Late, l.Stop = time.Duration(waiting)*time.Microsecond, time.Duration(stop)*time.Microsecond
				if l.Late > late || l.Stop > late || l.Unset {
					out = append(out, l)
				}
				return nil
			})
			return err
		})
	})
	return out, pg.Wrap("find stuck limits", err)
}
