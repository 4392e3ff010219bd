package store

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// An ending is how a statement ends a run that no flush of its own ends.
type ending struct {
	run    uuid.UUID
	status string // Failed or Cancelled
	kind   string
	error  string
	asked  bool // somebody asked for it: a run whose compensations are under way ends so, too
}

// The runs are locked, and the parents that their ends wake: what they have registered is decided. The time is the clock's,
// not the transaction's: a step may have been recorded while the lock was waited for. If compensations come first, $7, then
//   - a run whose compensations are under way may only end otherwise, if somebody asked for that;
//   - a run under way that may yet register more is marked, and its worker has $8 to end it;
//   - a run that has registered some has its outcome decided, and sleeps until they have run;
//   - all others end.
//
// What ends, or is decided here, has its lease taken away: its worker may yet come with a write. $9 says that the leases of
// the runs under way have lapsed.
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

// endLocked ends runs in tx, which has locked them with their parents. first says that their compensations run first, and
// lapsed that the leases of those under way have lapsed. The first compensations start in tx, too. Parents that go on with
// theirs do so later: their own parents are not locked.
func (s *Store) endLocked(ctx context.Context, tx pgx.Tx, ends []ending, first, lapsed bool, grace time.Duration) (*CancelledRuns, error) {
	out := &CancelledRuns{}
	var next []uuid.UUID
	err := ask(ctx, tx, endRuns, endColumns.args(s.namespace, ends, first, micros(grace), lapsed), readEndings(func(act string, w Woken) {
		switch act {
		case "end":
			out.Ended = append(out.Ended, w.RunID)
		case "compensate":
			out.Compensating, next = append(out.Compensating, w.RunID), append(next, w.RunID)
		case "mark":
			out.Marked = append(out.Marked, w.RunID)
		case "decide": // a child that it waits for may have ended with it, whose wake it has not had
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

// CancelledRuns says what a statement that ends runs has done.
type CancelledRuns struct {
	Ended        []uuid.UUID // are over
	Compensating []uuid.UUID // will be, once their compensations have run
	Marked       []uuid.UUID // their workers are to end them, or they end otherwise than was decided before
	Woken        []uuid.UUID // parents that learn of an end
	Due          []Woken     // runs that became due
	Step         []uuid.UUID // runs whose compensations are to go on: see Compensate
}

// Moved are the runs of which those who wait for them, or execute them, are to be told.
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
