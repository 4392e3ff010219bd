package inspect

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
)

// A RouteLatency says how long the newest completed runs of one workflow in one queue took.
type RouteLatency struct {
	Queue string
	Type  string
	Runs  int       // that were read
	Wait  Quantiles // from the start to the first execution
	Took  Quantiles // from the start to the end
}

// Quantiles are some of the values of a distribution.
type Quantiles struct{ Median, P95, Max time.Duration }

// latencies finds the queues and workflows that have completed runs by one search of the index for each, $2 at most,
// and reads the newest runs of each: those started last, $3 in all and at least ten of each. Of these it takes those
// that ended within $4 microseconds, so the rows that it reads are bounded.
const latencies = `
WITH routes AS MATERIALIZED (
	SELECT t.task_queue, t.workflow_type
	FROM ` + firstPair + isCompleted + nextPair + isCompleted + endPairs + `
		SELECT pairs.task_queue, pairs.workflow_type FROM pairs LIMIT $2
	) t
), budget AS MATERIALIZED (
	SELECT GREATEST(10, $3::bigint / GREATEST(count(*), 1)) AS most FROM routes
)
SELECT routes.task_queue, routes.workflow_type, n.runs, n.wait[1], n.wait[2], n.wait[3], n.took[1], n.took[2], n.took[3]
FROM routes
CROSS JOIN LATERAL (
	SELECT count(*) AS runs, percentile_disc(ARRAY[0.5, 0.95, 1]) WITHIN GROUP (ORDER BY k.wait) AS wait,
		percentile_disc(ARRAY[0.5, 0.95, 1]) WITHIN GROUP (ORDER BY k.took) AS took
	FROM (
		SELECT r.finished_at, (extract(epoch FROM r.finished_at - r.created_at) * 1000000)::bigint AS took,
			(extract(epoch FROM coalesce(r.started_at, r.finished_at) - r.created_at) * 1000000)::bigint AS wait
		FROM kagzi.workflow_runs r
		WHERE ` + inNamespace + ` AND r.task_queue = routes.task_queue AND r.workflow_type = routes.workflow_type
			AND ` + isCompleted + `
		ORDER BY r.run_id DESC
		LIMIT (SELECT budget.most FROM budget)
	) k
	WHERE k.finished_at >= now() - $4::bigint * interval '1 microsecond'
) n
WHERE n.runs > 0
ORDER BY routes.task_queue, routes.workflow_type`

// Bounds of latencies.
const (
	mostLatencyRoutes = 1000
	mostLatencyRuns   = 5000
)

// Latencies returns how long the newest runs took that completed within the time recent, by queue and workflow.
func (s *Lists) Latencies(ctx context.Context, recent time.Duration) (out []RouteLatency, err error) {
	err = pg.Do(ctx, func(ctx context.Context) error {
		out = nil
		return pg.AskPlanned(ctx, s.pool, latencies, []any{
			s.namespace, mostLatencyRoutes, mostLatencyRuns,
			pg.Micros(recent),
		}, func(rows pgx.Rows) error {
			var l RouteLatency
			var wait, took [3]int64
			_, err := pgx.ForEachRow(rows, []any{
				&l.Queue, &l.Type, &l.Runs, &wait[0], &wait[1], &wait[2], &took[0],
				&took[1], &took[2],
			}, func() error {
				l.Wait, l.Took = quantiles(wait), quantiles(took)
				out = append(out, l)
				return nil
			})
			return err
		})
	})
	return out, pg.Wrap("read latencies", err)
}

func quantiles(us [3]int64) Quantiles {
	at := func(i int) time.Duration { return time.Duration(us[i]) * time.Microsecond }
	return Quantiles{at(0), at(1), at(2)}
}
