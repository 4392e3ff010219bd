package store

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// A LeasedRun is a run that is RUNNING under a lease of a worker.
type LeasedRun struct {
	HeldRun
	Queue string
	Key   Key
	Cut   bool // its lease ends with its deadline, so the table does not say when it was given
}

// LeasesGiven says which leases of a worker are searched: those that its claims and starts in place have given between
// two times.
type LeasesGiven struct {
	Worker       uuid.UUID
	Queues       []string
	Types        []string
	LeaseTimeout time.Duration
	After        time.Time     // by the database's clock
	Age          time.Duration // those that are younger are left out: LateClaims, so that no later one can be as old
}

// From the end of a lease follows when it was given, so the leases are in a known part of the claim's index: see
// runsOfWorker. It also has those of other workers, and runs that will become due then. A lease that ends with its
// run's deadline is not there: those that end within a lease are read from the index of deadlines, up to $8 of all
// workers.
const leasesGiven = `
SELECT t.now, q.run_id, q.lease, q.task_queue, q.run_key, coalesce(q.key_scope = '', false), coalesce(q.cut, false)
FROM (SELECT now() AS now) t
LEFT JOIN LATERAL (
	SELECT k.run_id, k.lease, w.task_queue, k.run_key, k.key_scope, false AS cut
	FROM (
		SELECT * FROM unnest($3::text[]) AS q (task_queue) CROSS JOIN unnest($4::text[]) AS t (workflow_type)
			CROSS JOIN generate_series(1, 4) AS p (priority) OFFSET 0
	) w
	CROSS JOIN LATERAL (
		SELECT x.run_id, x.lease, x.run_key, x.key_scope
		FROM kagzi.workflow_runs x
		WHERE x.namespace_id = $1 AND x.task_queue = w.task_queue AND x.workflow_type = w.workflow_type
			AND x.priority = w.priority
			AND ` + claimable + ` AND x.available_at > now()
			AND x.available_at > timestamptz 'epoch' + ($5::bigint + $7::bigint) * interval '1 microsecond'
			AND x.available_at <= now() + ($7::bigint - $6::bigint) * interval '1 microsecond'
			AND x.status = 'RUNNING' AND x.locked_by = $2 AND (x.deadline_at IS NULL OR x.available_at <= x.deadline_at)
		ORDER BY x.available_at
	) k
	UNION ALL
	SELECT d.run_id, d.lease, d.task_queue, d.run_key, d.key_scope, true
	FROM (
		SELECT x.*
		FROM kagzi.workflow_runs x
		WHERE x.namespace_id = $1 AND x.deadline_at > now()
			AND x.deadline_at <= now() + $7::bigint * interval '1 microsecond'
			AND x.status IN ('PENDING', 'SLEEPING', 'RUNNING')
		ORDER BY x.deadline_at
		LIMIT $8
	) d
	WHERE d.status = 'RUNNING' AND d.locked_by = $2 AND d.available_at > d.deadline_at
) q ON true`

const deadlinesRead = 1000 // runs with a near deadline that leasesGiven reads

// LeasesGiven returns the runs that are RUNNING under the leases of g, and up to which time it has searched. It also
// returns the worker's runs whose leases end with their deadlines, whenever these were given: of very many runs with
// near deadlines, those that end first.
func (s *Store) LeasesGiven(ctx context.Context, g LeasesGiven) (found []LeasedRun, until time.Time, err error) {
	err = do(ctx, func(ctx context.Context) error {
		found = nil
		args := []any{
			s.namespace, g.Worker, g.Queues, g.Types, epoch(g.After), micros(g.Age), micros(g.LeaseTimeout),
			deadlinesRead,
		}
		return ask(ctx, s.pool, leasesGiven, args, func(rows pgx.Rows) error {
			var r LeasedRun
			var queue, key *string
			_, err := pgx.ForEachRow(rows, []any{
				utc(&until), uuidTo(&r.RunID), uuidTo(&r.Lease), &queue, &key,
				&r.Key.Group, &r.Cut,
			}, func() error {
				if r.RunID != uuid.Nil {
					r.Queue, r.Key.Name = deref(queue), deref(key)
					found = append(found, r)
				}
				return nil
			})
			return err
		})
	})
	return found, until.Add(-g.Age), wrap("find leases of this worker", err)
}

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
		AND ` + claimable + ` AND q.available_at > now() AND q.available_at < now() + l.half
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
func (s *Store) UnextendedRuns(ctx context.Context, db DB, queues, types []string,
	n int,
) (out []UnextendedRun, err error) {
	err = do(ctx, func(ctx context.Context) error {
		args := []any{s.namespace, queues, types, dueSoonRead, n}
		return ask(ctx, db, unextendedRuns, args,
			collect(&out, func(row pgx.CollectableRow) (r UnextendedRun, err error) {
				return r, row.Scan(uuidTo(&r.RunID), &r.Type, &r.Queue, uuidTo(&r.Worker), utc(&r.Ends))
			}))
	})
	return out, wrap("find runs that no worker reports", err)
}
