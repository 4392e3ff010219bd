package store

import (
	"encoding/json"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// A Progress is what the code of a run says of its progress, for people.
type Progress struct {
	RunID    uuid.UUID
	Lease    uuid.UUID
	Text     string
	Fraction *float64 // nil: not given

	Outcome Outcome
}

func (p *Progress) head() head { return head{run: p.RunID, lease: p.Lease, outcome: &p.Outcome} }

// A StoredProgress is the progress in a run's row.
type StoredProgress struct {
	Text     string    `json:"text,omitempty"`
	Fraction *float64  `json:"fraction,omitempty"`
	At       time.Time `json:"at,omitzero"` // set by the database
}

// stored returns the progress as the statement takes it; empty: the run has none any more.
func (p *Progress) stored() string {
	if p.Text == "" && p.Fraction == nil {
		return ""
	}
	data, _ := json.Marshal(StoredProgress{Text: p.Text, Fraction: p.Fraction}) // a text and a finite number
	return string(data)
}

const setProgress = `
WITH given AS MATERIALIZED (
	SELECT u.run_id, u.lease, NULLIF(u.progress, '')::jsonb || jsonb_build_object('at',
		statement_timestamp()) AS progress
	FROM unnest($2::uuid[], $3::uuid[], $4::text[]) AS u (run_id, lease, progress)
)
UPDATE kagzi.workflow_runs r
SET progress = given.progress
FROM given
WHERE r.run_id = given.run_id AND r.namespace_id = $1 AND r.lease = given.lease AND r.status = 'RUNNING'`

var progressColumns = columnsOf(setProgress,
	uuids("run_id", func(p *Progress) uuid.UUID { return p.RunID }),
	uuids("lease", func(p *Progress) uuid.UUID { return p.Lease }),
	texts("progress", (*Progress).stored),
)

// readProgress marks all of them as done. One whose lease is lost changes nothing, and there is nothing to write again.
func readProgress(all []*Progress) func(pgx.Rows) error {
	return func(pgx.Rows) error {
		for _, p := range all {
			p.Outcome = Done
		}
		return nil
	}
}
