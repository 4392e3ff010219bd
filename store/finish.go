package store

import (
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// A Finish ends a run.
type Finish struct {
	RunID       uuid.UUID
	Lease       uuid.UUID
	Parent      uuid.UUID // the zero UUID if the run has none
	Status      string    // Completed, Failed or Cancelled
	Output      []byte
	ErrorKind   string
	Error       string
	Quarantined bool     // FAILED, and only people can help: no compensations run, and a pending cancel does not count
	Forget      []string // of a run that failed: the steps whose failures the next attempt forgets, if there is one

	Outcome      Outcome
	Compensating bool // once Done: the run ends when its compensations have run
}

// While a cancel is pending, a run can only end as cancelled, with the error that the cancel has left in its row. A run that
// has compensations to run does not end yet: its final outcome is decided, and it sleeps until they have run. The lease
// stays in the row, so that a lost answer can be told from a lost lease.
const finishRuns = `
WITH l AS MATERIALIZED (
	SELECT q.run_id, q.parent_run_id, statement_timestamp() AS now, NULL::timestamptz AS until, q.lease,
		u.status, u.output, NULLIF(u.error_kind, '') AS error_kind, NULLIF(q.error, '') AS error, u.quarantined,
		CASE WHEN u.status = 'COMPLETED' OR u.quarantined THEN 'end' WHEN ` + registered + ` THEN 'compensate' ELSE 'end' END AS act,
		CASE WHEN u.status <> 'COMPLETED' THEN jsonb_build_object('status', u.status, 'kind', u.error_kind, 'error', q.error) END AS outcome
	FROM unnest($2::uuid[], $3::uuid[], $4::text[], $5::bytea[], $6::text[], $7::text[], $8::bool[])
		AS u (run_id, lease, status, output, error_kind, error, quarantined)
	CROSS JOIN LATERAL (
		SELECT k.run_id, k.parent_run_id, k.lease,
			CASE WHEN u.status = 'CANCELLED' AND k.cancel_requested_at IS NOT NULL THEN coalesce(k.error, u.error) ELSE u.error END AS error
		FROM kagzi.workflow_runs k
		WHERE k.run_id = u.run_id AND k.namespace_id = $1 AND k.lease = u.lease AND k.status = 'RUNNING'
			AND (u.quarantined OR u.status = 'CANCELLED' OR k.cancel_requested_at IS NULL)
		FOR UPDATE
	) q
), p AS (
	UPDATE kagzi.workflow_payloads p
	SET output = l.output
	FROM l
	WHERE p.run_id = l.run_id AND p.namespace_id = $1 AND l.output IS NOT NULL
), ` + writeEndings

var finishColumns = columnsOf(finishRuns,
	uuids("run_id", func(e *Finish) uuid.UUID { return e.RunID }),
	uuids("lease", func(e *Finish) uuid.UUID { return e.Lease }),
	texts("status", func(e *Finish) string { return e.Status }),
	byteas("output", func(e *Finish) []byte { return e.Output }),
	texts("error_kind", func(e *Finish) string { return e.ErrorKind }),
	texts("error", func(e *Finish) string { return e.Error }),
	bools("quarantined", func(e *Finish) bool { return e.Quarantined }),
)

func (f *Flush) readFinished(act string, w DueRun) {
	switch act {
	case "due":
		f.Woken = append(f.Woken, w)
	case "step":
		f.Step = append(f.Step, w.RunID)
	case "end", "compensate":
		if e, ok := ofRun(f.Finishes, w.RunID); ok {
			e.Outcome, e.Compensating = Done, act == "compensate"
		}
		if act == "compensate" {
			f.Step = append(f.Step, w.RunID)
		}
	}
}

// What a statement does to the runs of its CTE l, by their act:
//   - end: the run ends;
//   - compensate: its final outcome is decided, and its compensations run first;
//   - mark: its worker has to end it;
//   - decide: its compensations are under way, and another final outcome is decided.
//
// An end wakes the parent, unless the parent is in l, too: a row cannot be updated twice. For a parent the statement returns
// "due" if it became due, "step" if its compensations have to continue, else "wake". The condition on parents names the
// statuses that it excludes. If it named the active ones, it would allow the claim's index, which the planner prefers
// without statistics, and reads whole.
const writeEndings = `w AS (
	UPDATE kagzi.workflow_runs r
	SET wakeups = r.wakeups + k.ended,
		available_at = CASE WHEN r.status = 'SLEEPING' AND r.wakeups + k.ended >= r.wakeups_awaited THEN LEAST(r.available_at, k.now) ELSE r.available_at END
	FROM (SELECT l.parent_run_id, count(*) AS ended, min(l.now) AS now FROM l WHERE l.parent_run_id IS NOT NULL AND l.act = 'end' GROUP BY 1) k
	WHERE r.run_id = k.parent_run_id AND r.namespace_id = $1 AND r.status NOT IN ('COMPLETED', 'FAILED', 'CANCELLED')
		AND NOT EXISTS (SELECT FROM l WHERE l.run_id = r.run_id)
	RETURNING r.run_id, r.task_queue, r.workflow_type, r.version, r.status = 'SLEEPING' AND r.available_at <= k.now AS due, r.outcome IS NOT NULL AS compensating
), d AS (
	UPDATE kagzi.workflow_runs r
	SET status = CASE l.act WHEN 'end' THEN l.status WHEN 'compensate' THEN 'SLEEPING' ELSE r.status END,
		outcome = CASE WHEN l.act IN ('compensate', 'decide') THEN l.outcome ELSE r.outcome END,
		finished_at = CASE WHEN l.act = 'end' THEN l.now END,
		available_at = CASE l.act WHEN 'end' THEN NULL WHEN 'mark' THEN r.available_at ELSE l.now END,
		deadline_at = CASE l.act WHEN 'mark' THEN LEAST(r.deadline_at, l.until) WHEN 'compensate' THEN NULL ELSE r.deadline_at END,
		wakeups_awaited = CASE WHEN l.act = 'compensate' THEN r.wakeups ELSE r.wakeups_awaited END,
		lease = CASE WHEN l.act IN ('end', 'compensate') THEN l.lease ELSE r.lease END,
		locked_by = CASE WHEN l.act IN ('end', 'compensate') THEN NULL ELSE r.locked_by END,
		waiting_on = CASE WHEN l.act IN ('end', 'compensate') THEN NULL ELSE r.waiting_on END,
		attempts = r.attempts + CASE WHEN l.act IN ('end', 'compensate') AND l.status = 'FAILED' AND r.outcome IS NULL THEN 1 ELSE 0 END,
		error_kind = l.error_kind, error = l.error, quarantined = l.quarantined,
		cancel_requested_at = CASE WHEN l.act = 'mark' THEN coalesce(r.cancel_requested_at, l.now) ELSE r.cancel_requested_at END
	FROM l
	WHERE r.run_id = l.run_id AND r.namespace_id = $1
	RETURNING r.run_id, l.act
)
SELECT d.run_id, d.act, ''::text, ''::text, 0 FROM d
UNION ALL
SELECT w.run_id, CASE WHEN NOT w.due THEN 'wake' WHEN w.compensating THEN 'step' ELSE 'due' END, w.task_queue, w.workflow_type, coalesce(w.version, 0) FROM w`

// readEndings reads the rows of writeEndings. Queue, type and version are those of parents.
func readEndings(f func(act string, w DueRun)) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		var act string
		var w DueRun
		_, err := pgx.ForEachRow(rows, []any{uuidTo(&w.RunID), &act, &w.Queue, &w.Type, &w.Version}, func() error {
			f(act, w)
			return nil
		})
		return err
	}
}
