package hints

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/pg"
)

// Compensate starts the next compensations of the runs. A coordinator repeats it for those that fail.
func (h *Hints) Compensate(ctx context.Context, ids []uuid.UUID) {
	if err := h.CompensateAll(ctx, ids); err != nil && !pg.Closed(err) {
		h.log.Warn("kagzi: the next compensation of a run could not be started, or the run not ended: a coordinator "+
			"tries again", "error", err)
	}
}

// CompensateAll starts the next compensations of the runs, then those of runs that waited for a run that this ended. It
// returns the errors, joined.
func (h *Hints) CompensateAll(ctx context.Context, ids []uuid.UUID) (err error) {
	for len(ids) > 0 {
		id := ids[0]
		ids = ids[1:]
		out, e := h.store.Ends.Compensate(ctx, id)
		if pg.Locked(e) { // an open transaction has locked the run: a coordinator tries again
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
