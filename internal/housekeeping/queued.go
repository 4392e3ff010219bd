package housekeeping

import (
	"context"
	"slices"
	"sync"

	"github.com/google/uuid"
)

// queuedRuns knows which runs keep a queued run of their schedule waiting, so that the coordinator looks for queued runs
// when one of those changes, and not whenever any run does.
type queuedRuns struct {
	mu       sync.Mutex         // of all below
	blocking map[uuid.UUID]bool // runs whose end lets a queued one begin, as releaseQueued last read them
	reading  bool               // releaseQueued is reading them
	changed  bool               // Refresh was called while reading was set: blocking may lack one of its runs
}

// Refresh wakes the coordinator if one of the runs, or with nil any, keeps a queued one waiting. It does not block.
func (k *Coordinator) Refresh(ids []uuid.UUID) {
	q := &k.queued
	q.mu.Lock()
	defer q.mu.Unlock()
	q.changed = q.changed || q.reading
	if ids == nil && len(q.blocking) > 0 || slices.ContainsFunc(ids, func(id uuid.UUID) bool { return q.blocking[id] }) {
		k.WakeSchedules()
	}
}

// releaseQueued makes the runs due that waited for the one before, and remembers which runs the others wait for. A run that
// changes meanwhile may be one of those, so it counts as one.
func (k *Coordinator) releaseQueued(ctx context.Context) error {
	q := &k.queued
	q.mu.Lock()
	q.reading = true
	q.mu.Unlock()
	released, blocking, err := k.cfg.Store.ReleaseQueued(ctx)
	q.mu.Lock()
	q.reading = false
	if err == nil {
		q.blocking = make(map[uuid.UUID]bool, len(blocking))
		for _, id := range blocking {
			q.blocking[id] = true
		}
		if q.changed && len(blocking) > 0 {
			k.WakeSchedules()
		}
	}
	q.changed = false
	q.mu.Unlock()
	if err != nil {
		return err
	}
	k.cfg.Hints.Fired(ctx, released)
	return nil
}
