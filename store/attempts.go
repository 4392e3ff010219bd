package store

import "github.com/google/uuid"

// The log of a run keeps its 20 newest failed attempts. The statement in front of this gives those to add as failed.
const addAttempts = `, old AS MATERIALIZED (
	SELECT o.run_id, o.event_id
	FROM failed
	CROSS JOIN LATERAL (
		SELECT x.run_id, x.event_id FROM kagzi.run_events x
		WHERE x.run_id = failed.run_id AND x.namespace_id = $1 AND x.event = 'ATTEMPT_FAILED'
			AND x.event_id <> failed.event_id
		ORDER BY x.occurred_at DESC
		OFFSET 19
	) o
), dropped AS (
	DELETE FROM kagzi.run_events e
	WHERE e.run_id = ANY (ARRAY (SELECT old.run_id FROM old)) AND e.namespace_id = $1
		AND (e.run_id, e.event_id) IN (SELECT old.run_id, old.event_id FROM old)
)
INSERT INTO kagzi.run_events (run_id, event_id, namespace_id, event, reason, occurred_at)
SELECT failed.run_id, failed.event_id, $1, 'ATTEMPT_FAILED', failed.reason, failed.at
FROM failed
ON CONFLICT DO NOTHING`

// The lease of an attempt is the ID of its event, so that a flush whose answer was lost writes it once. An earlier
// statement has suspended the runs.
const logAttempts = `
WITH failed AS MATERIALIZED (
	SELECT u.run_id, u.lease AS event_id, u.reason, statement_timestamp() AS at
	FROM unnest($2::uuid[], $3::uuid[], $4::text[]) AS u (run_id, lease, reason)
	CROSS JOIN LATERAL (
		SELECT FROM kagzi.workflow_runs q
		WHERE q.run_id = u.run_id AND q.namespace_id = $1 AND q.lease = u.lease AND q.status = 'PENDING'
		OFFSET 0
	) r
)` + addAttempts

var attemptColumns = columnsOf(logAttempts,
	uuids("run_id", func(p *Suspension) uuid.UUID { return p.RunID }),
	uuids("lease", func(p *Suspension) uuid.UUID { return p.Lease }),
	texts("reason", func(p *Suspension) string { return shortened(p.failed().ErrorKind + ": " + p.failed().Error) }),
)

// The failure with which a run has ended is in its row until it is resumed.
const logLastAttempt = `
WITH failed AS MATERIALIZED (
	SELECT q.run_id, $3::uuid AS event_id, q.finished_at AS at,
		substring(concat_ws(': ', q.error_kind, q.error) FROM 1 FOR $4::int) AS reason
	FROM kagzi.workflow_runs q
	WHERE q.run_id = $2 AND q.namespace_id = $1 AND q.status = 'FAILED'
)` + addAttempts

func hasFailed(p *Suspension) bool { return p.Failed != nil }
