package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Policies for a start whose external ID an active run has. With none, the start returns that run.
const (
	RejectActive  = "reject_active"
	ReplaceActive = "replace_active"
)

// Policies for a start whose external ID only ended runs have. With none, it starts another one.
const (
	RejectEnded   = "reject_ended"
	StartIfFailed = "start_if_failed"
)

// ErrIDTaken reports that the start's policy does not allow it while another run has the external ID.
var ErrIDTaken = errors.New("external ID taken by another run")

// An IDTaken is an ErrIDTaken that names the run. It is an ErrIDConflict as well if that run is of another workflow, or
// was started with another input.
type IDTaken struct {
	ExternalID string
	RunID      uuid.UUID
	Type       string
	Status     string
	Differs    string // what is not the start's: see holder.differs
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

// A holder is a run that has an external ID.
type holder struct {
	external string
	id       uuid.UUID
	hash     []byte
	typ      string
	status   string
}

// The ways in which a start may differ from the run that has its external ID.
const (
	otherWorkflow = "workflow"
	otherInput    = "input"
)

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

// holders returns what sql finds for the external IDs, by external ID.
func (s *Store) holders(ctx context.Context, db DB, sql string, externals []string) (map[string]*holder, error) {
	found := make(map[string]*holder, len(externals))
	err := ask(ctx, db, sql, []any{s.namespace, externals}, func(rows pgx.Rows) error {
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

// byPolicy reports whether a policy of one of the runs may refuse it after it was inserted.
func byPolicy(runs []NewRun) bool {
	for i := range runs {
		if runs[i].IfActive == ReplaceActive || runs[i].IfEnded != "" {
			return true
		}
	}
	return false
}

// The newest ended run of each external ID, by run ID as in findEnded.
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

// refuseEnded returns an IDTaken if the policy of a run just inserted does not allow it to follow the ended runs of its
// external ID. It comes after the insert: from then on no other run can become active under the ID, so none can end. A check
// before the insert would miss a run that ends in between. A run that the start has replaced does not count as ended.
func (s *Store) refuseEnded(ctx context.Context, db DB, out []StartedRun, runs []NewRun, inserted map[uuid.UUID]bool) error {
	var externals []string
	for i := range runs {
		if r := &runs[i]; r.IfEnded != "" && inserted[r.RunID] && out[i].Replaced == uuid.Nil {
			externals = append(externals, r.ExternalID)
		}
	}
	if externals == nil {
		return nil
	}
	found, err := s.holders(ctx, db, endedByExternalID, externals)
	if err != nil {
		return err
	}
	for i := range runs {
		r := &runs[i]
		h := found[r.ExternalID]
		if h == nil || !inserted[r.RunID] || out[i].Replaced != uuid.Nil {
			continue
		}
		if r.IfEnded == RejectEnded || r.IfEnded == StartIfFailed && h.status == Completed {
			return h.taken(r)
		}
	}
	return nil
}

// replace terminates the runs, with all below them, and returns the runs that this ended: some may have ended by themselves.
func (s *Store) replace(ctx context.Context, tx pgx.Tx, held []*holder) (*CancelledRuns, error) {
	ids := make([]uuid.UUID, len(held))
	for i, h := range held {
		ids[i] = h.id
	}
	return s.cancelAll(ctx, tx, ids, cancellation{how: regardless, text: wasTerminated + ": a start with its ID has replaced it"})
}
