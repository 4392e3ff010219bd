package store

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// A Hung is what a worker reports of the code that hangs in it. It is written with the heartbeat, into the worker's row: so it costs no
// statement, and goes when the worker does.
type Hung struct {
	Functions int        `json:"functions"` // that hang
	Slots     int        `json:"slots"`     // that their runs hold
	Codes     []HungCode `json:"codes"`     // the oldest of the functions
}

// A HungCode is a function that hangs: that of a step, which goes on although its context has ended, or that of a workflow or a branch,
// which is in no operation.
type HungCode struct {
	RunID    uuid.UUID `json:"run"`
	Lease    uuid.UUID `json:"lease"` // under which the function began: if the run has another one by now, the function is no part of it
	Workflow string    `json:"workflow"`
	Branch   string    `json:"branch,omitempty"` // without a step: empty for the workflow function
	Step     string    `json:"step,omitempty"`
	Attempt  int       `json:"attempt,omitempty"` // of the step
	Cause    string    `json:"cause,omitempty"`   // why the step's context ended
	Since    time.Time `json:"since"`             // when it ended, or when the function was first seen outside of operations
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

const hungOfWorker = `SELECT w.hung FROM kagzi.workers w WHERE w.worker_id = $2 AND w.namespace_id = $1 AND w.status <> 'OFFLINE'`

// HungCode returns the functions of the run that hang in the worker that executes it.
func (s *Store) HungCode(ctx context.Context, r *Run) (codes []HungCode, err error) {
	if r.Status != Running || r.LockedBy == uuid.Nil {
		return nil, nil
	}
	var raw json.RawMessage
	err = do(ctx, func(ctx context.Context) error {
		raw = nil
		err := askRow(ctx, s.pool, hungOfWorker, []any{s.namespace, r.LockedBy}, &raw)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		return err
	})
	if h := readHung(raw); h != nil {
		codes = slices.DeleteFunc(h.Codes, func(c HungCode) bool { return c.RunID != r.RunID || c.Lease != r.Lease })
	}
	return codes, wrap("find code that hangs", err)
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
		return ask(ctx, s.pool, stepsUnderWay, []any{s.namespace, r.RunID, r.LockedBy, limit}, collect(&steps, pgx.RowTo[string]))
	})
	return steps, wrap("find the steps under way", err)
}
