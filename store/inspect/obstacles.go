package inspect

import (
	"context"
	"errors"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/store"
	"github.com/kagzi/kagzi/store/internal/clause"
)

// An Obstacle is why no claim takes a run that is due. The zero one says that nothing keeps a claim from taking it, or
// that it is not due.
type Obstacle struct {
	Paused bool        // by Pause; if that is zero, the run itself or all runs
	Own    bool        // the run itself is paused
	Pause  store.Pause // the names in the pause
	Key    Full        // its key lets no run begin
	Queue  Full        // its queue lets none begin
}

// Full says why a key or a queue lets no run begin. The zero one lets one begin.
type Full struct {
	Running int  // runs that have a slot
	Most    int  // the limit, if as many have one; else zero
	Rate    bool // the next token is still to come

	// of a key that is full: the ID of the run that has held its slot for longest, that of the application if it has
	// one
	Holder string
}

// The pause of a key stops runs that hold its slot, too.
//
// The conditions on the run are columns of run: as conditions of its select, they could lead the planner to another
// index. A run that holds its slot until its end needs none.
const obstacle = `
WITH run AS MATERIALIZED (
	SELECT q.run_id, q.task_queue, q.workflow_type, coalesce(q.run_key, '') AS run_key,
		coalesce(q.key_scope, '') AS key_scope,
		q.status NOT IN ('RUNNING', 'COMPLETED', 'FAILED', 'CANCELLED') AND q.outcome IS NULL
			AND q.available_at <= now() AS due,
		q.paused_at IS NOT NULL AS own, q.slot IS DISTINCT FROM 2 AS takes
	FROM kagzi.workflow_runs q
	WHERE q.run_id = $2 AND q.namespace_id = $1
)
SELECT run.own, p.task_queue IS NOT NULL, coalesce(p.task_queue, ''), coalesce(p.workflow_type, ''),
	coalesce(p.run_key, ''), coalesce(p.run_key <> '' AND p.key_scope = '', false),
	k.running, CASE WHEN k.running >= c.max_running THEN c.max_running ELSE 0 END, coalesce(f.rate_at > now(), false)
		AND run.takes,
	n.running, CASE WHEN n.running >= m.most THEN m.most ELSE 0 END, coalesce(q.rate_at > now(), false) AND run.takes,
		coalesce(b.holder, '')
FROM run
LEFT JOIN LATERAL (
	SELECT x.* FROM kagzi.queues x WHERE x.task_queue = run.task_queue AND x.namespace_id = $1 OFFSET 0
) q ON true
LEFT JOIN LATERAL (
	SELECT x.* FROM kagzi.run_keys x WHERE x.key_scope = run.key_scope AND x.run_key = run.run_key
		AND x.namespace_id = $1 AND run.run_key <> '' OFFSET 0
) f ON true
LEFT JOIN LATERAL (
	SELECT '' AS run_key, '' AS key_scope, x.task_queue, x.workflow_type
	FROM kagzi.pauses x
	WHERE x.namespace_id = $1 AND x.task_queue IN ('', run.task_queue) AND x.workflow_type IN ('', run.workflow_type)
	UNION ALL
	SELECT run.run_key, run.key_scope, run.key_scope, '' WHERE f.paused_at IS NOT NULL
	ORDER BY run_key, task_queue, workflow_type
	LIMIT 1
) p ON true
CROSS JOIN LATERAL (
	SELECT CASE WHEN run.takes AND q.max_running > 0 THEN LEAST(q.max_running, $3::int) END AS most
) m
CROSS JOIN LATERAL (
	SELECT run.key_scope, run.run_key, CASE WHEN NOT run.takes OR run.run_key = '' THEN NULL WHEN run.key_scope = ''
		THEN 1 ELSE LEAST(coalesce(f.max_running, q.key_max_running), $3::int) END AS max_running
) c
CROSS JOIN LATERAL (
	SELECT count(*) AS running FROM (
		SELECT FROM kagzi.workflow_runs WHERE task_queue = run.task_queue AND namespace_id = $1
			AND ` + clause.Holds + ` LIMIT coalesce(m.most, 0)
	) x
) n
CROSS JOIN LATERAL (SELECT ` + clause.SlotsOfKey + ` AS running) k
LEFT JOIN LATERAL (
	SELECT coalesce(x.external_id, x.run_id::text) AS holder FROM ` + slotHolders + ` x ORDER BY x.started_at LIMIT 1
) b ON k.running >= c.max_running
WHERE run.due`

// Obstacle returns why no claim takes the run.
func (s *Lists) Obstacle(ctx context.Context, id uuid.UUID) (o Obstacle, err error) {
	err = pg.Do(ctx, func(ctx context.Context) error {
		o = Obstacle{}
		paused := false
		err := pg.AskRow(ctx, s.pool, obstacle, []any{s.namespace, id, maxSlotsCounted}, &o.Own, &paused,
			&o.Pause.Queue,
			&o.Pause.Type, &o.Pause.Key.Name, &o.Pause.Key.Group,
			&o.Key.Running, &o.Key.Most, &o.Key.Rate, &o.Queue.Running, &o.Queue.Most, &o.Queue.Rate, &o.Key.Holder)
		o.Paused = o.Own || paused
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		return err
	})
	return o, pg.Wrap("find what a run waits for", err)
}
