package housekeeping

import (
	"context"
	"time"

	"github.com/kagzi/kagzi/internal/pg"
)

// eventsRest is the longest pause between two rotations. A partition is open for a sixth of the time for which events
// are kept.
const eventsRest = time.Minute

// RotateEvents removes the oldest events of topics once they are too old, and opens another partition for new ones.
func (k *Coordinator) RotateEvents(ctx context.Context) (time.Duration, error) {
	err := k.cfg.Store.Topics.RotateEvents(ctx, k.cfg.Keep.Events, k.cfg.Keep.PendingEvents)
	if pg.Locked(err) { // an application publishes in a transaction of its own: the rotation has time
		err = nil
	}
	return min(eventsRest, k.cfg.Keep.Events/60), err
}

// consumersRest is the pause between two searches for consumers that were told of no event.
const consumersRest = time.Minute

// RecheckConsumers makes claims look at consumers whose turn no claim has noticed: see store.Consumers.Recheck.
func (k *Coordinator) RecheckConsumers(ctx context.Context) (time.Duration, error) {
	due, err := k.cfg.Store.Consumers.Recheck(ctx)
	_ = k.cfg.Hints.Due(ctx, nil, due...) // fails only in a transaction
	return consumersRest, err
}
