package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
)

// ErrIDConflict reports that an active run has the external ID, and another workflow or input.
var ErrIDConflict = errors.New("external ID in use with another input")

// An IDConflict is an ErrIDConflict that names the run.
type IDConflict struct {
	ExternalID string
	RunID      uuid.UUID
	Type       string
	Differs    string // how the run differs: see holder.differs; empty for a restart
}

func (e *IDConflict) Error() string {
	text := fmt.Sprintf("ID %q is held by run %s of workflow %q", e.ExternalID, e.RunID, e.Type)
	switch e.Differs {
	case otherInput:
		text += ", which was started with another input: give that input to get that run, or another ID to start " +
			"another"
	case otherWorkflow:
		text += ": give the other workflow's run an ID of its own"
	}
	return text
}

func (e *IDConflict) Unwrap() error { return ErrIDConflict }

// ErrIDTaken reports that a policy refuses the start because another run has the external ID.
var ErrIDTaken = errors.New("external ID taken by another run")

// An IDTaken is an ErrIDTaken that names the run. It is an ErrIDConflict as well if that run is of another workflow, or
// was started with another input.
type IDTaken struct {
	ExternalID string
	RunID      uuid.UUID
	Type       string
	Status     string
	Differs    string // how the run differs: see holder.differs
}

func (e *IDTaken) Error() string {
	text := fmt.Sprintf("ID %q is that of run %s of workflow %q, which is %s", e.ExternalID, e.RunID, e.Type, e.Status)
	switch e.Differs {
	case otherInput:
		text += " and was started with another input"
	case otherWorkflow:
		text += ": give the other workflow's run an ID of its own"
	}
	return text
}

func (e *IDTaken) Unwrap() []error {
	if e.Differs != "" {
		return []error{ErrIDTaken, ErrIDConflict}
	}
	return []error{ErrIDTaken}
}

// The ways in which a start may differ from the run that has its external ID.
const (
	otherWorkflow = "workflow"
	otherInput    = "input"
)

// A holder is a run that has an external ID.
type holder struct {
	external string
	id       uuid.UUID
	hash     []byte
	typ      string
	status   string
}

// differs returns how the start of r differs from the run, empty if it does not.
func (h *holder) differs(r *NewRun) string {
	switch {
	case h.typ != r.Type:
		return otherWorkflow
	case !bytes.Equal(h.hash, r.InputHash):
		return otherInput
	}
	return ""
}

func (h *holder) taken(r *NewRun) error {
	return &IDTaken{r.ExternalID, h.id, h.typ, h.status, h.differs(r)}
}

const activeByExternalID = `
SELECT r.external_id, r.run_id, r.input_hash, r.workflow_type, r.status
FROM unnest($2::text[]) AS u (external_id)
CROSS JOIN LATERAL (
	SELECT q.external_id, q.run_id, q.input_hash, q.workflow_type, q.status
	FROM kagzi.workflow_runs q
	WHERE q.external_id = u.external_id AND q.namespace_id = $1 AND q.status IN ('PENDING', 'SLEEPING', 'RUNNING')
	OFFSET 0
) r`

// The newest ended run of each external ID: the one with the highest run ID, as in findEnded.
const endedByExternalID = `
SELECT r.external_id, r.run_id, r.input_hash, r.workflow_type, r.status
FROM unnest($2::text[]) AS u (external_id)
CROSS JOIN LATERAL (
	SELECT q.external_id, q.run_id, q.input_hash, q.workflow_type, q.status
	FROM kagzi.workflow_runs q
	WHERE q.external_id = u.external_id AND q.namespace_id = $1 AND q.status IN ('COMPLETED', 'FAILED', 'CANCELLED')
	ORDER BY q.run_id DESC
	LIMIT 1
) r`

// holders returns the runs that sql finds for the external IDs, by external ID.
func (s *conn) holders(ctx context.Context, db pg.DB, sql string, externals []string) (map[string]*holder, error) {
	found := make(map[string]*holder, len(externals))
	err := pg.Ask(ctx, db, sql, []any{s.namespace, externals}, func(rows pgx.Rows) error {
		for rows.Next() {
			h := &holder{}
			if err := rows.Scan(&h.external, &h.id, &h.hash, &h.typ, &h.status); err != nil {
				return err
			}
			found[h.external] = h
		}
		return nil
	})
	return found, err
}
