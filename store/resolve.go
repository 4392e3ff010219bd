package store

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
)

// undecided holds the writes of a flush that its statements did not write.
type undecided struct {
	records     []*Record
	suspensions []*Suspension
	finishes    []*Finish
	progress    []*Progress
	aside       []*SetAside
}

func (u undecided) runs() (runs []uuid.UUID) {
	for _, r := range u.records {
		runs = append(runs, r.RunID)
	}
	for _, p := range u.suspensions {
		runs = append(runs, p.RunID)
	}
	for _, e := range u.finishes {
		runs = append(runs, e.RunID)
	}
	for _, p := range u.progress {
		runs = append(runs, p.RunID)
	}
	for _, a := range u.aside {
		runs = append(runs, a.RunID)
	}
	return runs
}

// For each write that is undecided: the run's row, and the result that the step may have already.
const resolveRuns = `
SELECT r.run_id, r.lease, r.status, r.cancel_requested_at IS NOT NULL, r.paused_at IS NOT NULL, r.outcome IS NOT NULL
FROM unnest($2::uuid[]) AS u (run_id)
CROSS JOIN LATERAL (
	SELECT q.run_id, q.lease, q.status, q.cancel_requested_at, q.paused_at, q.outcome FROM kagzi.workflow_runs q
		WHERE q.run_id = u.run_id AND q.namespace_id = $1 OFFSET 0
) r`

const resolveSteps = `
SELECT h.*
FROM unnest($2::uuid[], $3::text[], $4::int[]) AS u (run_id, step_id, attempt_number)
CROSS JOIN LATERAL (
	SELECT ` + stepColumns + `, s.output
	FROM kagzi.step_runs s
	WHERE s.run_id = u.run_id AND s.namespace_id = $1 AND s.step_id = u.step_id AND s.attempt_number >= u.attempt_number
		AND s.status <> 'RUNNING'
	ORDER BY s.attempt_number DESC
	LIMIT 1
) h`

var resolveColumns = columnsOf(resolveSteps,
	uuids("run_id", func(r *Record) uuid.UUID { return r.RunID }),
	texts("step_id", func(r *Record) string { return r.StepID }),
	ints("attempt_number", func(r *Record) int { return r.Attempt }),
)

// resolve decides the outcome of writes that no statement has written. An earlier flush whose answer was lost may have
// written them, or another process. Otherwise they are busy, or lost.
func (s Records) resolve(ctx context.Context, u undecided) error {
	runs := u.runs()
	if len(runs) == 0 {
		return nil
	}
	b := &pgx.Batch{}
	b.Queue(resolveRuns, s.namespace, array(runs))
	b.Queue(resolveSteps, resolveColumns.args(s.namespace, u.records)...)
	found, recorded := map[uuid.UUID]runState{}, map[stepKey]*StepRow{}
	if err := pg.Exchange(ctx, s.pool, pg.Untimed, b, func(rows pgx.Rows) error {
		for rows.Next() {
			var id uuid.UUID
			var lease *uuid.UUID
			var st runState
			if err := rows.Scan(&id, &lease, &st.status, &st.cancelling, &st.paused, &st.compensated); err != nil {
				return err
			}
			st.lease = pg.Deref(lease)
			found[id] = st
		}
		return nil
	}, func(rows pgx.Rows) error {
		return eachStep(rows, func(r *StepRow) { recorded[stepKey{r.RunID, r.StepID}] = r })
	}); err != nil {
		return err
	}
	u.decide(found, recorded)
	return s.resolveTaken(ctx, u.records)
}

// StepResult returns the recorded result of an attempt, or of a later one, nil if there is none. It also returns
// whether h still holds the run.
func (s Records) StepResult(ctx context.Context, h HeldRun, stepID string,
	attempt int,
) (row *StepRow, holds bool, err error) {
	r := &Record{StepRow: StepRow{RunID: h.RunID, StepID: stepID, Attempt: attempt}, Lease: h.Lease}
	u := undecided{records: []*Record{r}}
	if err := pg.Do(ctx, func(ctx context.Context) error { return s.resolve(ctx, u) }); err != nil {
		return nil, false, pg.Wrap("resolve step", err)
	}
	if r.Outcome == Done {
		row = &r.StepRow
	}
	return row, r.Outcome != Lost, nil
}

type runState struct {
	lease       uuid.UUID
	status      string
	cancelling  bool
	paused      bool
	compensated bool // or its compensations are about to run
}

type stepKey struct {
	run  uuid.UUID
	step string
}

// decide sets the outcomes by the rows that were found.
func (u undecided) decide(runs map[uuid.UUID]runState, steps map[stepKey]*StepRow) {
	for _, r := range u.records {
		r.decide(runs[r.RunID], steps[stepKey{r.RunID, r.StepID}])
	}
	for _, p := range u.progress {
		p.Outcome = runs[p.RunID].outcome(p.Lease, false)
	}
	for _, a := range u.aside {
		a.Outcome = runs[a.RunID].outcome(a.Lease, false)
	}
	for _, p := range u.suspensions {
		st := runs[p.RunID]
		p.Outcome = st.outcome(p.Lease, st.status == p.Status)
	}
	for _, e := range u.finishes {
		e.decide(runs[e.RunID])
	}
}

// outcome returns the outcome of a write under the lease. done says that the run is in the state that the write asks
// for, which counts if its last lease is this one.
func (st runState) outcome(lease uuid.UUID, done bool) Outcome {
	switch {
	case st.lease != lease:
		return Lost
	case done:
		return Done
	case st.status == Running:
		return Busy
	default:
		return Lost
	}
}

// decide sets the outcome by the run's row and the step's result; nil: it has none.
func (r *Record) decide(st runState, row *StepRow) {
	switch {
	case st.outcome(r.Lease, false) == Lost:
		r.Outcome = Lost
	case row != nil && (!Replaces(r.Kind) || row.Position >= r.Position): // not what this record is to replace
		r.StepRow, r.Outcome, r.Found = *row, Done, true
	case r.Unheard && (st.cancelling || st.paused):
		r.Outcome = Unheard
	default:
		r.Outcome = Busy
	}
}

// decide sets the outcome by the run's row.
func (e *Finish) decide(st runState) {
	e.Outcome = st.outcome(e.Lease, st.status == e.Status || st.compensated && st.status != Running)
	e.Compensating = e.Outcome == Done && st.status == Sleeping
	if e.Outcome == Busy && st.cancelling && !e.Quarantined && e.Status != Cancelled {
		e.Outcome = Cancelling
	}
}
