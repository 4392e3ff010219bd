package housekeeping

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/store"
)

// deletionsRest is the pause between two searches for unfinished deletions.
const deletionsRest = time.Minute

// FinishDeletions deletes the rest of runs that are being deleted in several transactions (see Deletions.Delete),
// whatever the retention is: the process that began may have died. If it goes on, both delete, and this one leaves to
// it what it has locked.
func (k *Coordinator) FinishDeletions(ctx context.Context) (time.Duration, error) {
	var failure error
	for after := uuid.Nil; ctx.Err() == nil; {
		ids, err := k.cfg.Store.Deletions.Marked(ctx, after, deleteRuns)
		if err == nil {
			err = store.Isolate(ids, func(ids []uuid.UUID) error { return k.cfg.Store.Deletions.Finish(ctx, ids) },
				func(_ uuid.UUID, err error) {
					if !pg.Locked(err) {
						failure = err
					}
				})
		}
		switch {
		case err != nil:
			return 0, err
		case len(ids) > 0:
			after = ids[len(ids)-1]
			continue
		case failure != nil:
			k.undeleted.Note(k.cfg.Log, finishDeletions, failure)
		default:
			k.undeleted.Over(k.cfg.Log, finishDeletions)
		}
		return deletionsRest, nil
	}
	return 0, ctx.Err()
}
