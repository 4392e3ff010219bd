package inspect

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/store"
	"github.com/kagzi/kagzi/store/internal/clause"
)

// The statements of this file read all namespaces. Each of the recursive ones finds the next namespace by one search of
// an index, whose first entry for it has the earliest time. No text is between a and a || E'\x01'.

// Namespaces that have a run of the queue $1 and the workflows $2 which is due within $3. Of a namespace with such a
// run, it searches no other workflow.
const dueRuns = `
WITH RECURSIVE line (namespace_id, workflow_type, priority, due) AS (
	(
		SELECT r.namespace_id, r.workflow_type, r.priority, ` + isDueRun + `
		FROM kagzi.workflow_runs r
		WHERE r.task_queue = $1 AND ` + clause.Claimable + `
		ORDER BY r.namespace_id, r.workflow_type, r.priority, r.available_at
		LIMIT 1
	)
	UNION ALL
	SELECT n.namespace_id, n.workflow_type, n.priority, n.due
	FROM line
	CROSS JOIN LATERAL (
		SELECT r.namespace_id, r.workflow_type, r.priority, ` + isDueRun + ` AS due
		FROM kagzi.workflow_runs r
		WHERE r.task_queue = $1 AND ` + clause.Claimable + `
			AND (r.namespace_id, r.workflow_type, r.priority) > (
				CASE WHEN line.due THEN line.namespace_id || E'\x01' ELSE line.namespace_id END,
				CASE WHEN line.due THEN '' ELSE line.workflow_type END,
				CASE WHEN line.due THEN 0 ELSE line.priority END
			)
		ORDER BY r.namespace_id, r.workflow_type, r.priority, r.available_at
		LIMIT 1
	) n
)
SELECT line.namespace_id FROM line WHERE line.due`

const isDueRun = `r.workflow_type = ANY ($2::text[])
			AND r.available_at <= now() + $3::bigint * interval '1 microsecond' AND (
				SELECT count(*)
				FROM kagzi.pauses p
				WHERE p.task_queue IN ('', $1) AND p.workflow_type IN ('', r.workflow_type)
					AND p.namespace_id = r.namespace_id
			) = 0`

// Namespaces that have a key of the scope $1 at which a claim is to look within $2.
const dueLines = `
WITH RECURSIVE line (namespace_id, available_at) AS (
	(
		SELECT k.namespace_id, k.available_at
		FROM kagzi.run_keys k
		WHERE k.key_scope = $1 AND k.available_at < 'infinity'
		ORDER BY k.namespace_id, k.available_at
		LIMIT 1
	)
	UNION ALL
	SELECT n.namespace_id, n.available_at
	FROM line
	CROSS JOIN LATERAL (
		SELECT k.namespace_id, k.available_at
		FROM kagzi.run_keys k
		WHERE k.key_scope = $1 AND k.available_at < 'infinity' AND k.namespace_id > line.namespace_id
		ORDER BY k.namespace_id, k.available_at
		LIMIT 1
	) n
)
SELECT line.namespace_id FROM line WHERE line.available_at <= now() + $2::bigint * interval '1 microsecond'`

// Namespaces that have a change at which no claim has looked, among the first changes of the scope $1. The changes of
// those that are not served stay, so they are left out ($2).
const changedKeys = `
SELECT DISTINCT c.namespace_id
FROM (SELECT x.namespace_id FROM kagzi.key_changes x WHERE x.key_scope = $1
	AND x.namespace_id <> ALL ($2::text[]) ORDER BY x.change_id LIMIT 10000) c`

// Namespaces that have a run whose deadline passes within $1.
const overdueRuns = `
WITH RECURSIVE line (namespace_id, deadline_at) AS (
	(
		SELECT r.namespace_id, r.deadline_at
		FROM kagzi.workflow_runs r
		WHERE r.deadline_at IS NOT NULL AND r.status IN ('PENDING', 'SLEEPING', 'RUNNING')
		ORDER BY r.namespace_id, r.deadline_at
		LIMIT 1
	)
	UNION ALL
	SELECT n.namespace_id, n.deadline_at
	FROM line
	CROSS JOIN LATERAL (
		SELECT r.namespace_id, r.deadline_at
		FROM kagzi.workflow_runs r
		WHERE r.deadline_at IS NOT NULL AND r.status IN ('PENDING', 'SLEEPING', 'RUNNING')
			AND r.namespace_id > line.namespace_id
		ORDER BY r.namespace_id, r.deadline_at
		LIMIT 1
	) n
)
SELECT line.namespace_id FROM line WHERE line.deadline_at <= now() + $1::bigint * interval '1 microsecond'`

// Namespaces that have a run which has to begin within $1.
const unbegunRuns = `
WITH RECURSIVE line (namespace_id, start_by) AS (
	(
		SELECT r.namespace_id, r.start_by
		FROM kagzi.workflow_runs r
		WHERE r.start_by IS NOT NULL AND r.status = 'PENDING' AND r.started_at IS NULL
		ORDER BY r.namespace_id, r.start_by
		LIMIT 1
	)
	UNION ALL
	SELECT n.namespace_id, n.start_by
	FROM line
	CROSS JOIN LATERAL (
		SELECT r.namespace_id, r.start_by
		FROM kagzi.workflow_runs r
		WHERE r.start_by IS NOT NULL AND r.status = 'PENDING' AND r.started_at IS NULL
			AND r.namespace_id > line.namespace_id
		ORDER BY r.namespace_id, r.start_by
		LIMIT 1
	) n
)
SELECT line.namespace_id FROM line WHERE line.start_by <= now() + $1::bigint * interval '1 microsecond'`

// Namespaces in which a step waits for a limit. $1 is the state of such a place.
const waitingSteps = `
WITH RECURSIVE line (limit_name, namespace_id) AS (
	(
		SELECT l.limit_name, l.namespace_id
		FROM kagzi.limit_places l
		WHERE l.state IN ('WAITING', 'CALLED', 'RUNNING')
		ORDER BY l.limit_name, l.namespace_id
		LIMIT 1
	)
	UNION ALL
	SELECT n.limit_name, n.namespace_id
	FROM line
	CROSS JOIN LATERAL (
		SELECT l.limit_name, l.namespace_id
		FROM kagzi.limit_places l
		WHERE l.state IN ('WAITING', 'CALLED', 'RUNNING')
			AND (l.limit_name, l.namespace_id) > (line.limit_name, line.namespace_id)
		ORDER BY l.limit_name, l.namespace_id
		LIMIT 1
	) n
)
SELECT DISTINCT line.namespace_id
FROM line
WHERE (
	SELECT count(*)
	FROM (
		SELECT FROM kagzi.limit_places l
		WHERE l.limit_name = line.limit_name AND l.namespace_id = line.namespace_id AND l.state = $1
			AND l.state IN ('WAITING', 'CALLED', 'RUNNING')
		LIMIT 1
	) x
) > 0`

// Namespaces that have something else for a coordinator: a schedule or compensations that are due within $1, a worker
// that has been silent for too long, or was declared dead and has runs to be released, a deletion under way, or events
// for which runs wait. A worker that has stopped by itself does not count, although a coordinator looks for runs of it
// once: each stop would make the namespace due again.
const duties = `
SELECT s.namespace_id
FROM kagzi.schedules s
WHERE NOT s.paused AND s.next_at <= now() + $1::bigint * interval '1 microsecond'
UNION
SELECT r.namespace_id
FROM kagzi.workflow_runs r
WHERE r.outcome IS NOT NULL AND r.finished_at IS NULL
	AND r.available_at <= now() + $1::bigint * interval '1 microsecond'
UNION
SELECT w.namespace_id
FROM kagzi.workers w
WHERE w.status <> 'OFFLINE' AND w.heartbeat_at < clock_timestamp() - w.stale_after
UNION
SELECT w.namespace_id
FROM kagzi.workers w
WHERE w.release_at IS NOT NULL AND w.release_at <= now() + $1::bigint * interval '1 microsecond' AND w.recheck_keys
UNION
SELECT r.namespace_id
FROM kagzi.workflow_runs r
WHERE r.waiting_on = '[{"kind": "deletion"}]' AND r.finished_at IS NOT NULL
UNION
SELECT a.namespace_id
FROM kagzi.awaited_events a`

// Namespaces that have a run which waits for the previous run of its schedule, although that has ended. A schedule has
// at most one run that waits so. $1 are the statuses of the previous one.
const followingRuns = `
SELECT DISTINCT q.namespace_id
FROM kagzi.workflow_runs q
WHERE q.schedule_id IS NOT NULL AND q.status = 'PENDING' AND q.waiting_on = '` + clause.PreviousRun + `' AND (
	SELECT count(*)
	FROM (
		SELECT FROM kagzi.workflow_runs a
		WHERE a.schedule_id = q.schedule_id AND a.namespace_id = q.namespace_id AND a.schedule_id IS NOT NULL
			AND a.status IN ('PENDING', 'SLEEPING', 'RUNNING') AND a.status = ANY ($1::text[])
			AND a.run_id <> q.run_id
		LIMIT 1
	) x
) = 0`

// A Search says what DueNamespaces searches.
type Search struct {
	Queues, Types []string      // of runs
	Except        []string      // namespaces that are not served, of which not all work is searched
	Soon          time.Duration // how soon they are due
	Most          time.Duration // how long the search may take
}

// ErrDistributed reports a search on Citus, where no statement may read all namespaces.
var ErrDistributed = errors.New("the tables are distributed by Citus, where no statement reads all namespaces: " +
	"run a worker for each namespace")

// refuseCitus returns ErrDistributed on Citus. Another error says nothing of it.
func refuseCitus(ctx context.Context, pool *pgxpool.Pool) error {
	distributed, err := pg.IsOnCitus(ctx, pool)
	if distributed {
		return ErrDistributed
	}
	return err
}

// DueNamespaces returns the namespaces, in their order, in which a worker or a coordinator has something to do: those
// with due runs of the queues and workflows, and those with a duty for a coordinator. Old snapshots make the search
// slow.
func DueNamespaces(ctx context.Context, pool *pgxpool.Pool, search Search) (due []string, err error) {
	err = pg.Do(ctx, func(ctx context.Context) error {
		if err := refuseCitus(ctx, pool); err != nil {
			return err
		}
		due = nil
		var reads []func(pgx.Rows) error
		b := &pgx.Batch{}
		find := func(statement string, args ...any) {
			b.Queue(statement, args...)
			reads = append(reads, func(rows pgx.Rows) error {
				found, err := pgx.CollectRows(rows, pgx.RowTo[string])
				due = append(due, found...)
				return err
			})
		}
		soon, except := pg.Micros(search.Soon), append([]string{}, search.Except...)
		for _, queue := range search.Queues {
			find(dueRuns, queue, search.Types, soon)
		}
		for _, scope := range append([]string{""}, search.Queues...) {
			find(dueLines, scope, soon)
			find(changedKeys, scope, except)
		}
		find(overdueRuns, soon)
		find(unbegunRuns, soon)
		find(waitingSteps, "WAITING")
		find(followingRuns, []string{store.Pending, store.Sleeping, store.Running})
		find(duties, soon)
		return pg.Exchange(ctx, pool, pg.Mode{Statements: search.Most}, b, reads...)
	})
	slices.Sort(due)
	return slices.Compact(due), pg.Wrap("find namespaces with work", err)
}
