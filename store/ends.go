package store

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// An ending says how a run ends that is not ended by the worker that executes it.
type ending struct {
	run    uuid.UUID
	status string // Failed or Cancelled
	kind   string
	error  string
	asked  bool // people asked for it: it also changes the final outcome of a run whose compensations are under way
}

// The runs are locked, and the parents that they wake, so their compensations do not change meanwhile. The time is the
// clock's and not the transaction's: a step may have been recorded while the transaction waited for the lock. If
// compensations come first, $7, then
//   - a run whose compensations are under way changes its final outcome, but only for a cancel that was asked for;
//   - a run under way that may still register compensations is marked, and its worker has $8 to end it;
//   - the final outcome of a run that has registered compensations is decided, and the run sleeps until they have run;
//   - all others end.
//
// A run that ends, or whose final outcome is decided here, loses its lease: a late write of its worker must fail. $9 says
// that the leases of the runs under way have lapsed.
const endRuns = `
WITH k AS MATERIALIZED (
	SELECT r.run_id, r.parent_run_id, r.now, r.now + $8::bigint * interval '1 microsecond' AS until,
		CASE WHEN $9::bool AND r.cancelling THEN 'CANCELLED' ELSE r.status END AS status,
		CASE WHEN $9::bool AND r.cancelling THEN r.old_kind ELSE r.error_kind END AS error_kind,
		CASE WHEN $9::bool AND r.cancelling THEN r.old_error ELSE r.error END AS error,
		CASE
			WHEN NOT $7::bool THEN 'end'
			WHEN r.compensating THEN CASE WHEN r.asked AND r.status = 'CANCELLED' THEN 'decide' ELSE 'leave' END
			WHEN r.running AND NOT $9::bool AND r.registers THEN 'mark'
			WHEN r.registered THEN 'compensate'
			ELSE 'end'
		END AS act
	FROM (
		SELECT q.run_id, q.parent_run_id, u.status, u.error_kind, u.error, u.asked, q.error_kind AS old_kind, q.error AS old_error,
			clock_timestamp() AS now, q.outcome IS NOT NULL AS compensating, q.cancel_requested_at IS NOT NULL AS cancelling, q.status = 'RUNNING' AS running,
			` + registers + ` AS registers,
			` + registered + ` AS registered
		FROM unnest($2::uuid[], $3::text[], $4::text[], $5::text[], $6::bool[]) AS u (run_id, status, error_kind, error, asked)
		CROSS JOIN LATERAL (
			SELECT c.run_id, c.parent_run_id, c.status, c.outcome, c.cancel_requested_at, c.error_kind, c.error
			FROM kagzi.workflow_runs c
			WHERE c.run_id = u.run_id AND c.namespace_id = $1 AND c.status NOT IN ('COMPLETED', 'FAILED', 'CANCELLED')
			OFFSET 0
		) q
	) r
), l AS MATERIALIZED (
	SELECT k.*, jsonb_build_object('status', k.status, 'kind', k.error_kind, 'error', k.error) AS outcome, NULL::uuid AS lease, false AS quarantined
	FROM k
	WHERE k.act <> 'leave'
), ` + writeEndings

var endColumns = columnsOf(endRuns,
	uuids("run_id", func(e ending) uuid.UUID { return e.run }),
	texts("status", func(e ending) string { return e.status }),
	texts("error_kind", func(e ending) string { return e.kind }),
	texts("error", func(e ending) string { return e.error }),
	bools("asked", func(e ending) bool { return e.asked }),
)

// endLocked ends runs in tx, which has locked them and their parents. first says that their compensations run first, and
// lapsed that the leases of those under way have lapsed. The first compensation of each run starts in tx, too. Compensations
// of parents continue later, because the parents of those are not locked.
func (s *Store) endLocked(ctx context.Context, tx pgx.Tx, ends []ending, first, lapsed bool, grace time.Duration) (*CancelledRuns, error) {
	out := &CancelledRuns{}
	var next []uuid.UUID
	err := ask(ctx, tx, endRuns, endColumns.args(s.namespace, ends, first, micros(grace), lapsed), readEndings(func(act string, w DueRun) {
		switch act {
		case "end":
			out.Ended = append(out.Ended, w.RunID)
		case "compensate":
			out.Compensating, next = append(out.Compensating, w.RunID), append(next, w.RunID)
		case "mark":
			out.Marked = append(out.Marked, w.RunID)
		case "decide": // a child that it waits for may have ended in the same statement, which did not wake it
			out.Marked, out.Step = append(out.Marked, w.RunID), append(out.Step, w.RunID)
		case "wake":
			out.Woken = append(out.Woken, w.RunID)
		case "due":
			out.Woken, out.Due = append(out.Woken, w.RunID), append(out.Due, w)
		case "step":
			out.Woken, out.Step = append(out.Woken, w.RunID), append(out.Step, w.RunID)
		}
	}))
	slices.SortFunc(next, compareIDs)
	for _, id := range next {
		if err != nil {
			break
		}
		err = s.compensateLocked(ctx, tx, id, out)
	}
	return out, err
}

// CancelledRuns says what a statement that ends runs has done to which.
type CancelledRuns struct {
	Ended        []uuid.UUID // they have ended
	Compensating []uuid.UUID // they end once their compensations have run
	Marked       []uuid.UUID // their workers have to end them, or their final outcome has changed
	Woken        []uuid.UUID // parents of runs that ended
	Due          []DueRun    // runs that became due
	Step         []uuid.UUID // runs to call Compensate for
}

// Moved returns the runs that changed, for an announcement to those who wait for them or execute them.
func (c *CancelledRuns) Moved() []uuid.UUID {
	return slices.Concat(c.Ended, c.Compensating, c.Marked, c.Woken)
}

// has reports whether the run itself has changed.
func (c *CancelledRuns) has(id uuid.UUID) bool {
	return slices.Contains(c.Ended, id) || slices.Contains(c.Compensating, id) || slices.Contains(c.Marked, id)
}

func (c *CancelledRuns) add(more *CancelledRuns) {
	c.Ended, c.Compensating = append(c.Ended, more.Ended...), append(c.Compensating, more.Compensating...)
	c.Marked, c.Woken, c.Due = append(c.Marked, more.Marked...), append(c.Woken, more.Woken...), append(c.Due, more.Due...)
	c.Step = append(c.Step, more.Step...)
}
