package store

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
)

// Policies for a start whose external ID an active run has. With none, the start returns that run if it has
// the same input.
const (
	ReturnAnyInput = "return_any_input"
	RejectActive   = "reject_active"
	ReplaceActive  = "replace_active"
)

// Policies for a start whose external ID only ended runs have. With none, it starts another one.
const (
	RejectEnded   = "reject_ended"
	StartIfFailed = "start_if_failed"
)

// byPolicy reports whether a policy of one of the runs may refuse it after it was inserted.
func byPolicy(runs []NewRun) bool {
	for i := range runs {
		if runs[i].IfActive == ReplaceActive || runs[i].IfEnded != "" {
			return true
		}
	}
	return false
}

// refuseEnded returns an IDTaken if a run was just inserted and its policy refuses it because of the ended runs of its
// external ID. The check comes after the insert: from then on no other run can become active under the ID, so none can
// end. A check before the insert would miss a run that ends in between. A run that the start has replaced does not
// count as ended.
func (s Starts) refuseEnded(ctx context.Context, db pg.DB, out []StartedRun, runs []NewRun,
	inserted map[uuid.UUID]bool,
) error {
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

// replace terminates the runs, with all below them, and returns those that it ended: others may have ended by
// themselves.
func (s Starts) replace(ctx context.Context, tx pgx.Tx, held []*holder) (*CancelledRuns, error) {
	ids := make([]uuid.UUID, len(held))
	for i, h := range held {
		ids[i] = h.id
	}
	return Ends(s).cancelAll(ctx, tx, ids, cancellation{how: regardless, text: wasTerminated +
		": a start with its ID has replaced it"})
}
