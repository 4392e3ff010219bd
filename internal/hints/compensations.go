package hints

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/store"
)

// Compensate has the runs take the next steps of their compensations. A coordinator repeats what fails.
func (h *Hints) Compensate(ctx context.Context, ids []uuid.UUID) {
	if err := h.CompensateAll(ctx, ids); err != nil && !store.Closed(err) {
		h.log.Warn("kagzi: a run does not go on with its compensations: a coordinator tries that again", "error", err)
	}
}

// CompensateAll has the runs take the next steps of their compensations, then those that waited for what this has ended, and
// returns what failed.
func (h *Hints) CompensateAll(ctx context.Context, ids []uuid.UUID) (err error) {
	for len(ids) > 0 {
		id := ids[0]
		ids = ids[1:]
		out, e := h.store.Compensate(ctx, id)
		if store.Locked(e) { // by somebody's open transaction: a coordinator comes again
			continue
		}
		if e != nil {
			err = errors.Join(err, fmt.Errorf("run %s: %w", id, e))
			continue
		}
		ids = append(ids, out.Step...)
		out.Step = nil
		_ = h.Cancelled(ctx, nil, out) // fails only in a transaction
	}
	return err
}
