package store

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
)

// Ends ends runs whose workers do not end them: cancelled ones, late ones, those that compensate.
type Ends struct{ *conn }

// An ending says how a run ends if its worker does not end it.
type ending struct {
	run    uuid.UUID
	status string // Failed or Cancelled; Completed if the run was rolled back
	kind   string
	error  string
	// a caller asked for it: then it also changes the final outcome of a run whose compensations are under way
	asked bool
}

// The time is the clock's and not the transaction's: a step may have been recorded while the transaction waited for the
// locks of its caller. If compensations run first ($7), then
//   - of runs whose compensations are under way, only a cancel that a caller asked for changes the final outcome;
//   - a RUNNING run that may register compensations is marked, and its worker has $8 to end it;
//   - the final outcome of a run with registered compensations is decided, and the run sleeps until they have run;
//   - all others end.
//
// A run that ends, or whose final outcome is decided, loses its lease: a late write of its worker must fail. With $9,
// leases have expired.
const endRuns = `
WITH endings AS MATERIALIZED (
	SELECT r.*, NULL::uuid AS lease, false AS quarantined, r.now + $8::bigint * interval '1 microsecond' AS until,
		jsonb_build_object('status', r.status, 'kind', r.error_kind, 'error', r.error) AS outcome,
		CASE
			WHEN NOT $7::bool THEN 'end'
			WHEN r.compensating THEN 'decide'
			WHEN r.running AND NOT $9::bool AND (r.registers OR r.holds) THEN 'mark'
			WHEN r.registered THEN 'compensate'
			ELSE 'end'
		END AS act
	FROM (
		SELECT q.run_id, q.parent_run_id, clock_timestamp() AS now, q.outcome IS NOT NULL AS compensating,
			u.asked AND u.status = 'CANCELLED' AS cancels, q.status = 'RUNNING' AS running, q.slot IS NOT NULL AS holds,
			CASE u.status WHEN 'FAILED' THEN q.output WHEN 'COMPLETED' THEN decode(q.outcome ->> 'output', 'base64') END
				AS output,
			CASE WHEN q.cancelling THEN 'CANCELLED' ELSE u.status END AS status,
			CASE WHEN q.cancelling THEN q.error_kind ELSE NULLIF(u.error_kind, '') END AS error_kind,
			CASE WHEN q.cancelling THEN q.error ELSE NULLIF(u.error, '') END AS error,
			` + registers + ` AS registers,
			` + registered + ` AS registered
		FROM unnest($2::uuid[], $3::text[], $4::text[], $5::text[], $6::bool[]) AS u (run_id, status, error_kind, error,
			asked)
		CROSS JOIN LATERAL (
			SELECT c.run_id, c.parent_run_id, c.status, c.outcome, c.error_kind, c.error, c.slot, c.output,
				$9::bool AND c.cancel_requested_at IS NOT NULL AS cancelling
			FROM kagzi.workflow_runs c
			WHERE c.run_id = u.run_id AND c.namespace_id = $1 AND c.status NOT IN ('COMPLETED', 'FAILED', 'CANCELLED')
			OFFSET 0
		) q
	) r
	WHERE r.cancels OR NOT r.compensating OR NOT $7::bool
), ` + writeEndings

var endColumns = columnsOf(endRuns,
	uuids("run_id", func(e ending) uuid.UUID { return e.run }),
	texts("status", func(e ending) string { return e.status }),
	texts("error_kind", func(e ending) string { return e.kind }),
	texts("error", func(e ending) string { return e.error }),
	bools("asked", func(e ending) bool { return e.asked }),
)

// The end of a statement that ends runs. It changes each run of the CTE endings by its act:
//   - end: the run ends;
//   - compensate: its final outcome, which has the output if it completes then, is decided, and its compensations run;
//   - mark: its worker has to end it;
//   - decide: its compensations are under way, and it gets another final outcome.
//
// An end wakes the parent, unless endings has the parent, too: it cannot update a row twice. For a parent the
// statement returns "due" if it became due, "step" if its compensations have to continue, else "wake". The condition on
// parents names the statuses that it excludes: else the planner may read the claim's whole index.
const writeEndings = `parents AS (
	UPDATE kagzi.workflow_runs r
	SET wakeups = r.wakeups + k.ended,
		available_at = CASE WHEN r.status = 'SLEEPING' AND r.wakeups + k.ended >= r.wakeups_awaited
			THEN LEAST(r.available_at, k.now) ELSE r.available_at END
	FROM (SELECT endings.parent_run_id, count(*) AS ended, min(endings.now) AS now FROM endings
		WHERE endings.parent_run_id IS NOT NULL AND endings.act = 'end' GROUP BY 1) k
	WHERE r.run_id = k.parent_run_id AND r.namespace_id = $1 AND r.status NOT IN ('COMPLETED', 'FAILED', 'CANCELLED')
		AND NOT EXISTS (SELECT FROM endings WHERE endings.run_id = r.run_id)
	RETURNING r.run_id, r.task_queue, r.workflow_type, r.version, r.status = 'SLEEPING'
		AND r.available_at <= k.now AS due, r.outcome IS NOT NULL AS compensating, r.run_key, r.key_scope
), written AS (
	UPDATE kagzi.workflow_runs r
	SET status = CASE endings.act WHEN 'end' THEN endings.status WHEN 'compensate' THEN 'SLEEPING' ELSE r.status END,
		outcome = CASE WHEN endings.act IN ('compensate', 'decide') THEN endings.outcome
			WHEN endings.status = 'COMPLETED' THEN r.outcome - 'output' ELSE r.outcome END,
		finished_at = CASE WHEN endings.act = 'end' THEN endings.now END,
		available_at = CASE endings.act WHEN 'end' THEN NULL WHEN 'mark' THEN r.available_at ELSE endings.now END,
		deadline_at = CASE endings.act WHEN 'mark' THEN LEAST(r.deadline_at, endings.until) WHEN 'compensate' THEN NULL
			ELSE r.deadline_at END,
		wakeups_awaited = CASE WHEN endings.act = 'compensate' THEN r.wakeups ELSE r.wakeups_awaited END,
		lease = CASE WHEN endings.act IN ('end', 'compensate') THEN endings.lease ELSE r.lease END,
		locked_by = CASE WHEN endings.act IN ('end', 'compensate') THEN NULL ELSE r.locked_by END,
		waiting_on = CASE WHEN endings.act IN ('end', 'compensate') THEN NULL ELSE r.waiting_on END,
		attempts = r.attempts + (endings.act <> 'mark' AND endings.status = 'FAILED' AND r.outcome IS NULL)::int,
		error_kind = endings.error_kind, error = endings.error, quarantined = endings.quarantined, paused_at = NULL,
		output = CASE WHEN endings.act = 'end' OR endings.status <> 'COMPLETED' THEN endings.output END,
		cancel_requested_at = coalesce(r.cancel_requested_at, CASE endings.act WHEN 'mark' THEN endings.now END)
	FROM endings WHERE r.run_id = endings.run_id AND r.namespace_id = $1
	RETURNING r.run_id, endings.act, r.run_key, r.key_scope, r.publishes, r.task_queue, r.workflow_type, r.version,
		r.status, r.error_kind, coalesce(extract(epoch FROM r.finished_at - r.created_at) * 1000000, 0)::bigint AS age,
		endings.act = 'end' AND r.slot IS NOT NULL AS frees, r.schedule_id IS NOT NULL AS scheduled
), ` + insertChanges + ` (SELECT parents.run_key, parents.key_scope FROM parents WHERE parents.due
	UNION ALL SELECT written.run_key, written.key_scope FROM written WHERE written.act IN ('end', 'compensate')) k
	WHERE k.run_key IS NOT NULL
)
SELECT written.run_id, written.act, written.task_queue, written.workflow_type, coalesce(written.version, 0),
	written.publishes AND written.act = 'end', written.status, coalesce(written.error_kind, ''), written.age, frees,
	scheduled FROM written
UNION ALL
SELECT parents.run_id, CASE WHEN NOT parents.due THEN 'wake' WHEN parents.compensating THEN 'step' ELSE 'due' END,
	parents.task_queue, parents.workflow_type, coalesce(parents.version, 0), false, '', '', 0, false, false
FROM parents`

// An endingRow is a row of writeEndings.
type endingRow struct {
	DueRun
	act       string
	publishes bool          // the run's end is to be published
	status    string        // of a run that ended; empty for a parent
	kind      string        // of its failure
	age       time.Duration // of a run that ended, from its start
	frees     bool          // the run may have held a slot to its end
	scheduled bool          // the run is of a schedule
}

func (r *endingRow) ended() EndedRun {
	return EndedRun{
		RunID: r.RunID, Queue: r.Queue, Type: r.Type, Version: r.Version, Status: r.status, Kind: r.kind,
		Age: r.age,
	}
}

// readEndings reads the rows of writeEndings.
func readEndings(f func(endingRow)) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		var r endingRow
		var age int64
		_, err := pgx.ForEachRow(rows, []any{
			pg.UUIDTo(&r.RunID), &r.act, &r.Queue, &r.Type, &r.Version, &r.publishes,
			&r.status, &r.kind, &age, &r.frees, &r.scheduled,
		}, func() error {
			r.age = time.Duration(age) * time.Microsecond
			f(r)
			return nil
		})
		return err
	}
}

// end ends runs in tx, which has locked them and the parents that they wake: so their compensations do not change
// meanwhile. first says that their compensations run first, and expired that the leases of those that are RUNNING have
// expired.
func (s Ends) end(ctx context.Context, tx pgx.Tx, ends []ending, first, expired bool,
	grace time.Duration,
) (*CancelledRuns, error) {
	out := &CancelledRuns{}
	var telling []uuid.UUID
	err := pg.Ask(ctx, tx, endRuns, endColumns.args(s.namespace, ends, first, pg.Micros(grace), expired),
		readEndings(func(r endingRow) {
			w := r.DueRun
			if r.publishes {
				telling = append(telling, w.RunID)
			}
			switch r.act {
			case "end":
				out.Ended, out.Ends = append(out.Ended, r.RunID), append(out.Ends, r.ended())
				if r.frees {
					out.Due = append(out.Due, DueRun{Queue: r.Queue})
				}
			case "compensate":
				out.Compensating = append(out.Compensating, w.RunID)
			case "mark":
				out.Marked = append(out.Marked, w.RunID)
			case "decide": // the same statement may have ended a child that it waits for, without waking it
				out.Marked, out.Step = append(out.Marked, w.RunID), append(out.Step, w.RunID)
			case "wake":
				out.Woken = append(out.Woken, w.RunID)
			case "due":
				out.Woken, out.Due = append(out.Woken, w.RunID), append(out.Due, w)
			case "step":
				out.Woken, out.Step = append(out.Woken, w.RunID), append(out.Step, w.RunID)
			}
		}))
	if err == nil && telling != nil {
		var due []DueRun
		due, err = s.publishRuns(ctx, tx, ended, telling...)
		out.Due = append(out.Due, due...)
	}
	return out, err
}

// An EndedRun is a run that has ended.
type EndedRun struct {
	RunID   uuid.UUID
	Queue   string
	Type    string
	Version int           // zero if no worker has claimed it
	Status  string        // Completed, Failed or Cancelled
	Kind    string        // of its failure; empty if it completed
	Age     time.Duration // from its start to its end
}

// CancelledRuns lists the runs that a statement which ends runs has changed.
type CancelledRuns struct {
	Ended        []uuid.UUID // they have ended
	Ends         []EndedRun  // how those have ended
	Compensating []uuid.UUID // they will end once their compensations have run
	Marked       []uuid.UUID // their workers have to end them, or their final outcome has changed
	Woken        []uuid.UUID // parents of runs that ended
	Due          []DueRun    // those that became due, and the queues in which a slot may be free
	Step         []uuid.UUID // runs to call Compensate for
}

// Changed returns the runs whose waiters and workers have to be notified.
func (c *CancelledRuns) Changed() []uuid.UUID {
	return slices.Concat(c.Ended, c.Compensating, c.Marked, c.Woken)
}

// has reports whether the run itself changed.
func (c *CancelledRuns) has(id uuid.UUID) bool {
	return slices.Contains(c.Ended, id) || slices.Contains(c.Compensating, id) || slices.Contains(c.Marked, id)
}

func (c *CancelledRuns) add(more *CancelledRuns) {
	c.Ended, c.Ends, c.Compensating = append(c.Ended, more.Ended...), append(c.Ends, more.Ends...),
		append(c.Compensating, more.Compensating...)
	c.Marked, c.Woken, c.Due = append(c.Marked, more.Marked...), append(c.Woken, more.Woken...),
		append(c.Due, more.Due...)
	c.Step = append(c.Step, more.Step...)
}
