package store

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/store/internal/clause"
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
			AND ` + clause.Claimable + ` AND x.available_at > now()
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

// Given returns the runs that are RUNNING under the leases of g, and up to which time it has searched. It also
// returns the worker's runs whose leases end with their deadlines, whenever these were given: of very many runs with
// near deadlines, those that end first.
func (s Leases) Given(ctx context.Context, g LeasesGiven) (found []LeasedRun, until time.Time, err error) {
	err = pg.Do(ctx, func(ctx context.Context) error {
		found = nil
		args := []any{
			s.namespace, g.Worker, g.Queues, g.Types, pg.Epoch(g.After), pg.Micros(g.Age), pg.Micros(g.LeaseTimeout),
			deadlinesRead,
		}
		return pg.Ask(ctx, s.pool, leasesGiven, args, func(rows pgx.Rows) error {
			var r LeasedRun
			var queue, key *string
			_, err := pgx.ForEachRow(rows, []any{
				pg.UTC(&until), pg.UUIDTo(&r.RunID), pg.UUIDTo(&r.Lease), &queue, &key,
				&r.Key.Group, &r.Cut,
			}, func() error {
				if r.RunID != uuid.Nil {
					r.Queue, r.Key.Name = pg.Deref(queue), pg.Deref(key)
					found = append(found, r)
				}
				return nil
			})
			return err
		})
	})
	return found, until.Add(-g.Age), pg.Wrap("find leases of this worker", err)
}
