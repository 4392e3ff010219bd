package inspect

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/store/internal/clause"
)

// An UnextendedRun is a run that is RUNNING under a worker that lives and has not extended its lease.
type UnextendedRun struct {
	RunID  uuid.UUID
	Type   string
	Queue  string
	Worker uuid.UUID
	Ends   time.Time // the end of the lease
}

// A worker extends a lease in the first heartbeat in which less than half of it is left, but not beyond the run's
// deadline. $4 bounds the runs that are read of each pair and priority: among very many that become due within half a
// lease, some are missed.
const unextendedRuns = `
SELECT k.run_id, u.workflow_type, u.task_queue, k.locked_by, k.available_at
FROM (
	SELECT max(w.lease_timeout) / 2 AS half FROM kagzi.workers w WHERE w.namespace_id = $1 AND w.status <> 'OFFLINE'
		AND NOT w.fixed_lease
) l
CROSS JOIN (
	SELECT * FROM unnest($2::text[], $3::text[]) AS u (task_queue, workflow_type)
		CROSS JOIN generate_series(1, 4) AS p (priority) OFFSET 0
) u
CROSS JOIN LATERAL (
	SELECT q.run_id, q.status, q.locked_by, q.available_at, q.deadline_at
	FROM kagzi.workflow_runs q
	WHERE q.namespace_id = $1 AND q.task_queue = u.task_queue AND q.workflow_type = u.workflow_type
		AND q.priority = u.priority
		AND ` + clause.Claimable + ` AND q.available_at > now() AND q.available_at < now() + l.half
	ORDER BY q.available_at
	LIMIT $4
) k
CROSS JOIN LATERAL (
	SELECT w.lease_timeout / 2 - w.stale_after AS late
	FROM kagzi.workers w
	WHERE w.worker_id = k.locked_by AND w.namespace_id = $1 AND w.status <> 'OFFLINE' AND NOT w.fixed_lease
		AND w.heartbeat_at >= clock_timestamp() - w.stale_after
	OFFSET 0
) w
WHERE k.status = 'RUNNING' AND k.available_at < now() + w.late
	AND (k.deadline_at IS NULL OR k.available_at < k.deadline_at)
ORDER BY k.available_at
LIMIT $5`

const dueSoonRead = 100 // runs of one workflow and priority that unextendedRuns reads

// UnextendedRuns returns up to n runs of these pairs of queue and workflow that a live worker holds by the table, and
// does not report: it would have extended their leases.
func (s *Health) UnextendedRuns(ctx context.Context, db pg.DB, queues, types []string,
	n int,
) (out []UnextendedRun, err error) {
	err = pg.Do(ctx, func(ctx context.Context) error {
		args := []any{s.namespace, queues, types, dueSoonRead, n}
		return pg.Ask(ctx, db, unextendedRuns, args,
			pg.Collect(&out, func(row pgx.CollectableRow) (r UnextendedRun, err error) {
				return r, row.Scan(pg.UUIDTo(&r.RunID), &r.Type, &r.Queue, pg.UUIDTo(&r.Worker), pg.UTC(&r.Ends))
			}))
	})
	return out, pg.Wrap("find runs that no worker reports", err)
}
