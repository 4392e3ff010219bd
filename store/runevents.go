package store

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
)

// RunsTopic is the topic of the starts and ends of runs that tell.
const RunsTopic = "kagzi.runs"

// What publishRuns publishes of a run.
const (
	started = false
	ended   = true
)

// Publishes the starts of the runs, or their ends ($5), in the transaction of the statement that has written them, and
// after it. The event is made of the row, so all that end a run say the same. A repetition makes the same IDs. A run
// that was resumed ends at another time.
const publishRuns = `
WITH ` + lockTopics + `, runs AS MATERIALIZED (
	SELECT q.run_id, q.lease,
		q.run_id || CASE WHEN $5::bool THEN '/ended/' || (extract(epoch FROM q.finished_at) * 1000000)::bigint
			ELSE '/started' END AS event_id,
		jsonb_strip_nulls(jsonb_build_object('run', q.run_id, 'id', q.external_id, 'workflow', q.workflow_type,
			'queue', q.task_queue,
			'status', CASE WHEN $5::bool THEN q.status ELSE 'PENDING' END, 'kind', q.error_kind, 'quarantined',
				NULLIF(q.quarantined, false),
			'at', CASE WHEN $5::bool THEN q.finished_at ELSE q.created_at END)) AS event
	FROM kagzi.workflow_runs q
	WHERE q.run_id = ANY ($3::uuid[]) AND q.namespace_id = $1 AND q.publishes
		AND (q.status IN ('COMPLETED', 'FAILED', 'CANCELLED')) = $5::bool
), events AS MATERIALIZED (
	SELECT '` + RunsTopic + `' AS topic, runs.event_id, true AS named, '' AS title,
		convert_to(runs.event::text, 'UTF8'::name) AS payload, moment.part, moment.now, ` + drawPosition + ` AS position
	FROM moment
	CROSS JOIN unnest($3::uuid[], $4::uuid[]) WITH ORDINALITY AS u (run_id, lease, place)
	JOIN runs ON runs.run_id = u.run_id
		AND (runs.lease = u.lease OR u.lease = '00000000-0000-0000-0000-000000000000')
	ORDER BY u.place
), ` + storeEvents

// runEvents returns the arguments of publishRuns. A lease is that of the row, or the zero UUID.
func (s *conn) runEvents(what bool, runs, leases []uuid.UUID) []any {
	return []any{s.namespace, []string{RunsTopic}, array(runs), array(leases), what}
}

// publishRuns publishes the starts or the ends of runs that tell, in the transaction that has written them. It returns
// consumers, one of each queue.
func (s *conn) publishRuns(ctx context.Context, tx pgx.Tx, what bool, runs ...uuid.UUID) (due []DueRun, err error) {
	err = pg.Ask(ctx, tx, publishRuns, s.runEvents(what, runs, make([]uuid.UUID, len(runs))), readSubscribers(&due))
	return due, err
}
