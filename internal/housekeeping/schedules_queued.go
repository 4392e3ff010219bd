package housekeeping

import (
	"context"
	"slices"
	"sync"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/store"
)

// queuedRuns knows the runs that queued runs of their schedule wait for. The coordinator looks for queued runs that may
// begin when one of those changes, and not whenever any run does.
type queuedRuns struct {
	mu       sync.Mutex         // guards all below
	blocking map[uuid.UUID]bool // runs whose end lets a queued one begin, as the last release read them
	reading  bool               // a release is reading them
	missed   bool               // a run changed while reading was set: blocking may lack it
}

// changed reports whether a queued run waits for one of the given runs, or, with nil, whether one waits at all.
func (q *queuedRuns) changed(ids []uuid.UUID) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.missed = q.missed || q.reading
	return ids == nil && len(q.blocking) > 0 ||
		slices.ContainsFunc(ids, func(id uuid.UUID) bool { return q.blocking[id] })
}

// release makes the queued runs due that wait for no other any more, returns them, and remembers the runs that the
// others wait for. again says that a run changed meanwhile, which may be one of those: release must be called again. It
// passes runs that the server does not release to alone.
func (q *queuedRuns) release(ctx context.Context, st *store.Store,
	alone func(store.QueuedRun, error),
) (released []store.DueRun, again bool, err error) {
	q.mu.Lock()
	q.reading = true
	q.mu.Unlock()
	released, blocking, err := st.Schedules.ReleaseQueued(ctx, alone)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.reading = false
	if err == nil {
		q.blocking = make(map[uuid.UUID]bool, len(blocking))
		for _, id := range blocking {
			q.blocking[id] = true
		}
		again = q.missed && len(blocking) > 0
	}
	q.missed = false
	return released, again, err
}
