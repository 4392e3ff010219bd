package store

import (
	"context"
	"encoding/json"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// A Hung is what a worker reports of the code that hangs in it. It is written with the heartbeat, into the worker's
// row: so it costs no statement, and goes when the worker does.
type Hung struct {
	Functions int `json:"functions"` // that hang
	Slots     int `json:"slots"`     // that their runs hold
	// the oldest of the functions, and then steps that wait for runs: see HungCode.Awaits
	Codes []HungCode `json:"codes"`
}

// A HungCode is a function that hangs: that of a step, which goes on although its context has ended, or that of a
// workflow or a branch, which is in no operation.
type HungCode struct {
	RunID uuid.UUID `json:"run"`
	// under which the function began: if the run has another one by now, the function is no part of it
	Lease    uuid.UUID `json:"lease"`
	Workflow string    `json:"workflow"`
	Branch   string    `json:"branch,omitempty"` // without a step: empty for the workflow function
	Step     string    `json:"step,omitempty"`
	Attempt  int       `json:"attempt,omitempty"` // of the step
	Cause    string    `json:"cause,omitempty"`   // why the step's context ended
	// when it ended, or when the function was first seen outside of operations
	Since time.Time `json:"since"`
	// the run for whose result the step waits since then, while such steps hold all slots of the worker; the context
	// has not ended
	Awaits uuid.UUID `json:"awaits,omitzero"`
	Worker uuid.UUID `json:"-"` // set by Store.HungCode
}

// stored returns the report as the heartbeat takes it; empty: there is none.
func (h *Hung) stored() string {
	if h == nil {
		return ""
	}
	data, _ := json.Marshal(h) // texts, numbers and times
	return string(data)
}

// readHung reads what a worker has written; nil if that is nothing.
func readHung(raw json.RawMessage) *Hung {
	var h *Hung
	if json.Unmarshal(raw, &h) != nil {
		return nil
	}
	return h
}

const hungOfWorker = `SELECT w.worker_id, w.hung FROM kagzi.workers w WHERE w.worker_id = $2 AND w.namespace_id = $1
	AND w.status <> 'OFFLINE'`

// The row of a run that is over names no worker.
const hungOfEnded = `
SELECT w.worker_id, w.hung
FROM kagzi.workers w
WHERE w.namespace_id = $1 AND w.status <> 'OFFLINE' AND w.hung IS NOT NULL AND w.hung @> jsonb_build_object('codes',
	jsonb_build_array(jsonb_build_object('run', $2::uuid)))
ORDER BY w.worker_id`

// HungCode returns the functions of the run that hang in the worker that executes it, or, once it is over, in any
// worker.
func (s *Store) HungCode(ctx context.Context, r *Run) (codes []HungCode, err error) {
	statement, args := hungOfWorker, []any{s.namespace, r.LockedBy}
	over := r.Status == Completed || r.Status == Failed || r.Status == Cancelled
	switch {
	case over && !r.StartedAt.IsZero():
		statement, args = hungOfEnded, []any{s.namespace, r.RunID}
	case r.Status != Running || r.LockedBy == uuid.Nil:
		return nil, nil
	}
	err = do(ctx, func(ctx context.Context) error {
		codes = nil
		return ask(ctx, s.pool, statement, args, func(rows pgx.Rows) error {
			var worker uuid.UUID
			var raw json.RawMessage
			_, err := pgx.ForEachRow(rows, []any{uuidTo(&worker), &raw}, func() error {
				h := readHung(raw)
				if h == nil {
					return nil
				}
				for _, c := range h.Codes {
					if c.RunID == r.RunID && (over || c.Lease == r.Lease) {
						c.Worker = worker
						codes = append(codes, c)
					}
				}
				return nil
			})
			return err
		})
	})
	return codes, wrap("find code that hangs", err)
}

const dueAmong = `
SELECT r.run_id
FROM unnest($2::uuid[]) AS u (run_id)
CROSS JOIN LATERAL (
	SELECT q.run_id
	FROM kagzi.workflow_runs q
	WHERE q.run_id = u.run_id AND q.namespace_id = $1 AND q.status = 'PENDING' AND q.available_at <= now()
		AND q.paused_at IS NULL
	OFFSET 0
) r`

// DueAmong returns those of the runs that wait for a worker.
func (s *Store) DueAmong(ctx context.Context, ids []uuid.UUID) (due []uuid.UUID, err error) {
	err = do(ctx, func(ctx context.Context) error {
		return ask(ctx, s.pool, dueAmong, []any{s.namespace, array(ids)}, collect(&due, pgx.RowTo[uuid.UUID]))
	})
	return due, wrap("find runs that are due", err)
}

// The row that shows an attempt stays after the death of its worker.
const stepsUnderWay = `
SELECT s.step_id
FROM kagzi.step_runs s
WHERE s.run_id = $2 AND s.namespace_id = $1 AND s.status = 'RUNNING' AND s.step_kind = 'FUNCTION' AND s.worker_id = $3
ORDER BY s.step_id
LIMIT $4`

// StepsUnderWay returns up to limit of the steps that the run's worker shows as under way.
func (s *Store) StepsUnderWay(ctx context.Context, r *Run, limit int) (steps []string, err error) {
	err = do(ctx, func(ctx context.Context) error {
		return ask(ctx, s.pool, stepsUnderWay, []any{s.namespace, r.RunID, r.LockedBy, limit},
			collect(&steps, pgx.RowTo[string]))
	})
	return steps, wrap("find the steps under way", err)
}
