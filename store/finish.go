package store

import (
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
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
	RollsBack   bool      // COMPLETED once its compensations have run
	Quarantined bool      // FAILED until an operator acts: no compensations run, and a pending cancel is ignored
	Publishes   bool      // the run's end is published
	Forget      []string  // the steps whose failures the next attempt forgets, if a failed run gets one
	Consumed    *Consumed // what a consumer's run changes if it completes; nil if it is no such run

	Outcome      Outcome
	Compensating bool // once Done: the run ends when its compensations have run
	Scheduled    bool // once Done: the run is of a schedule, so a queued run may wait for its end
}

func (e *Finish) head() head {
	return head{run: e.RunID, lease: e.Lease, parent: e.Parent, outcome: &e.Outcome, forget: e.Forget}
}

// plain reports whether the end concerns no other row: the run completes, with no parent to wake and nothing to undo.
func (e *Finish) plain() bool { return e.Status == Completed && e.Parent == uuid.Nil && !e.RollsBack }

// Most runs end by this statement: it costs half of finishRuns, which locks and reads the rows first. The lease stays
// in the row, so that resolve can distinguish a lost answer from a lost lease.
const completeRuns = `
UPDATE kagzi.workflow_runs r
SET status = 'COMPLETED', finished_at = statement_timestamp(), available_at = NULL, locked_by = NULL, waiting_on = NULL,
	error_kind = NULL, error = NULL, output = u.output, paused_at = NULL
FROM unnest($2::uuid[], $3::uuid[], $4::bytea[]) AS u (run_id, lease, output)
WHERE r.run_id = u.run_id AND r.namespace_id = $1 AND r.lease = u.lease AND r.status = 'RUNNING'
	AND r.cancel_requested_at IS NULL
RETURNING r.run_id, r.schedule_id IS NOT NULL`

var completeColumns = columnsOf(completeRuns,
	uuids("run_id", func(e *Finish) uuid.UUID { return e.RunID }),
	uuids("lease", func(e *Finish) uuid.UUID { return e.Lease }),
	byteas("output", func(e *Finish) []byte { return e.Output }),
)

// readCompleted marks the ends that the statement wrote, which are sorted by run.
func readCompleted(finishes []*Finish) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		var id uuid.UUID
		var scheduled bool
		_, err := pgx.ForEachRow(rows, []any{pg.UUIDTo(&id), &scheduled}, func() error {
			if e, ok := ofRun(finishes, id); ok {
				e.Outcome, e.Scheduled = Done, scheduled
			}
			return nil
		})
		return err
	}
}

// While a cancel is pending, a run can only end as cancelled, with the error that the cancel has written in its row. A
// run that has compensations to run does not end yet: its final outcome is decided, and it sleeps until they have run.
// The lease stays in the row, so that resolve can distinguish a lost answer from a lost lease.
const finishRuns = `
WITH endings AS MATERIALIZED (
	SELECT q.run_id, q.parent_run_id, statement_timestamp() AS now, NULL::timestamptz AS until, q.lease,
		u.status, u.output, NULLIF(u.error_kind, '') AS error_kind, NULLIF(q.error, '') AS error, u.quarantined,
		CASE WHEN u.quarantined OR u.status = 'COMPLETED' AND NOT u.rolls_back THEN 'end'
			WHEN ` + registered + ` THEN 'compensate' ELSE 'end' END AS act,
		CASE WHEN u.rolls_back THEN jsonb_build_object('status', 'COMPLETED', 'kind', ''::text, 'error', ''::text,
				'output', encode(u.output, 'base64'))
			WHEN u.status <> 'COMPLETED' THEN jsonb_build_object('status', u.status, 'kind', u.error_kind, 'error',
			q.error) END AS outcome
	FROM unnest($2::uuid[], $3::uuid[], $4::text[], $5::bytea[], $6::text[], $7::text[], $8::bool[], $9::bool[])
		AS u (run_id, lease, status, output, error_kind, error, quarantined, rolls_back)
	CROSS JOIN LATERAL (
		SELECT k.run_id, k.parent_run_id, k.lease,
			CASE WHEN u.status = 'CANCELLED' AND k.cancel_requested_at IS NOT NULL THEN coalesce(k.error, u.error)
				ELSE u.error END AS error
		FROM kagzi.workflow_runs k
		WHERE k.run_id = u.run_id AND k.namespace_id = $1 AND k.lease = u.lease AND k.status = 'RUNNING'
			AND (u.quarantined OR u.status = 'CANCELLED' OR k.cancel_requested_at IS NULL)
		FOR UPDATE
	) q
), ` + writeEndings

var finishColumns = columnsOf(finishRuns,
	uuids("run_id", func(e *Finish) uuid.UUID { return e.RunID }),
	uuids("lease", func(e *Finish) uuid.UUID { return e.Lease }),
	texts("status", func(e *Finish) string { return e.Status }),
	byteas("output", func(e *Finish) []byte { return e.Output }),
	texts("error_kind", func(e *Finish) string { return e.ErrorKind }),
	texts("error", func(e *Finish) string { return e.Error }),
	bools("quarantined", func(e *Finish) bool { return e.Quarantined }),
	bools("rolls_back", func(e *Finish) bool { return e.RollsBack }),
)

// readFinished marks the finishes that the statement wrote, which are sorted by run. It appends to due the parents that
// became due, and to step the runs to call Compensate for.
func readFinished(finishes []*Finish, due *[]DueRun, step *[]uuid.UUID) func(pgx.Rows) error {
	return readEndings(func(w endingRow) {
		switch w.act {
		case "due":
			*due = append(*due, w.DueRun)
		case "step":
			*step = append(*step, w.RunID)
		case "end", "compensate":
			if e, ok := ofRun(finishes, w.RunID); ok {
				e.Outcome, e.Compensating, e.Scheduled = Done, w.act == "compensate", w.scheduled
			}
			if w.act == "compensate" {
				*step = append(*step, w.RunID)
			}
		}
	})
}

// tellingEnds returns the runs that tell of their ends, and the leases under which they end.
func tellingEnds(finishes []*Finish) (ids, leases []uuid.UUID) {
	for _, e := range finishes {
		if e.Publishes {
			ids, leases = append(ids, e.RunID), append(leases, e.Lease)
		}
	}
	return ids, leases
}
