package housekeeping

import (
	"context"
	"time"

	"github.com/kagzi/kagzi/store"
)

// eventsRest is the longest pause between two rotations. A partition is open for a sixth of the time for which events are kept.
const eventsRest = time.Minute

// RotateEvents removes the oldest events of topics once they are too old, and opens another partition for new ones.
func (k *Coordinator) RotateEvents(ctx context.Context) (time.Duration, error) {
	err := k.cfg.Store.RotateEvents(ctx, k.cfg.KeepEvents)
	if store.Locked(err) { // somebody publishes in a transaction of his own: it has time
		err = nil
	}
	return min(eventsRest, k.cfg.KeepEvents/60), err
}
