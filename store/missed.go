package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/store/internal/clause"
)

// The statement searches the part of the claim's index that a claim with Since leaves out.
const missedRuns = `
WITH ` + clause.PausesOfRuns + `
SELECT w.workflow_type, w.priority, d.available_at
FROM unnest($3::text[], $4::smallint[], $5::text[], $6::bigint[]) AS w (workflow_type, priority, versions, since)
CROSS JOIN LATERAL (
	SELECT q.available_at
	FROM kagzi.workflow_runs q
	WHERE q.namespace_id = $1 AND q.task_queue = $2 AND q.workflow_type = w.workflow_type AND q.priority = w.priority
		AND ` + clause.Claimable + ` AND q.available_at <= now()
		AND q.available_at < timestamptz 'epoch' + w.since * interval '1 microsecond'
		AND (q.version IS NULL OR q.version = ANY (w.versions::int[]))
		AND (q.recoveries < ($7::bigint[])[1] OR q.recoveries = ($7::bigint[])[2]
			AND ` + lastBits + ` & ($7::bigint[])[3] = ($7::bigint[])[4])
		AND q.outcome IS NULL AND ` + clause.KeyUnpaused + `
	ORDER BY q.available_at
	LIMIT 1
) d
WHERE ` + unpausedPair

// missedTimeout is how long the search for missed runs may take. Nothing waits for it.
const missedTimeout = time.Minute

// Missed returns the pairs with runs that are due and that the claim would leave out because of its Since, and for each
// when the first of these became due. Unlike a claim without Since, it locks nothing, so other claims can go on
// meanwhile. The end of ctx ends the call and costs the connection.
func (s Claims) Missed(ctx context.Context, req ClaimRequest) (map[Pair]time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, missedTimeout)
	defer cancel()
	missed := map[Pair]time.Time{}
	err := pg.Ask(ctx, s.pool, missedRuns, s.missedArgs(req), func(rows pgx.Rows) error {
		var pair Pair
		var due time.Time
		_, err := pgx.ForEachRow(rows, []any{&pair.Type, &pair.Priority, pg.UTC(&due)}, func() error {
			missed[pair] = due
			return nil
		})
		return err
	})
	return missed, pg.Wrap("find runs that claims missed", err)
}

func (s Claims) missedArgs(req ClaimRequest) []any {
	types, priorities, versions, _ := req.pairs()
	return []any{
		s.namespace, req.Queue, types, priorities, versions, req.sinces(types, priorities),
		req.Suspects.args(),
	}
}
