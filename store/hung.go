package store

import (
	"context"
	"encoding/json"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
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
func (s Runs) DueAmong(ctx context.Context, ids []uuid.UUID) (due []uuid.UUID, err error) {
	err = pg.Do(ctx, func(ctx context.Context) error {
		return pg.Ask(ctx, s.pool, dueAmong, []any{s.namespace, array(ids)}, pg.Collect(&due, pgx.RowTo[uuid.UUID]))
	})
	return due, pg.Wrap("find runs that are due", err)
}
