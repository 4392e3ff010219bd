package worker

import (
	"maps"
	"slices"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/goroutine"
	"github.com/kagzi/kagzi/store"
)

// markStale marks the runs in ids for a refresh, because their rows have changed; nil marks all.
func (r *roster) markStale(ids []uuid.UUID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if ids == nil {
		for id := range r.executing {
			r.stale[id] = true
		}
		if r.claiming {
			r.staleEarly[uuid.Nil] = true
		}
		for id := range r.reserved {
			r.reserved[id] = true
		}
	}
	for _, id := range ids {
		if r.executing[id] != nil {
			r.stale[id] = true
		}
		if r.claiming {
			r.staleEarly[id] = true
		}
		if _, ok := r.reserved[id]; ok {
			r.reserved[id] = true
		}
	}
	if len(r.stale) > 0 {
		goroutine.Signal(r.refreshes)
	}
}

// claimedAll ends a claim: its runs are in executing. It refreshes runs whose rows changed meanwhile, because the claim
// may have read them before the change.
func (r *roster) claimedAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.claiming = false
	early := slices.Collect(maps.Keys(r.staleEarly))
	if r.staleEarly[uuid.Nil] {
		early = slices.Collect(maps.Keys(r.executing))
	}
	clear(r.staleEarly)
	for _, id := range early {
		if r.executing[id] != nil {
			r.stale[id] = true
		}
	}
	if len(r.stale) > 0 {
		goroutine.Signal(r.refreshes)
	}
}

// nextStale waits for runs that are marked for a refresh, and returns them. It returns nil once stop is closed.
func (r *roster) nextStale(stop chan struct{}) (stale []store.HeldRun) {
	for len(stale) == 0 {
		select {
		case <-stop:
			return nil
		case <-r.refreshes:
		}
		stale = r.takeStale()
	}
	return stale
}

// takeStale returns the executions that are marked for a refresh, and unmarks them.
func (r *roster) takeStale() (stale []store.HeldRun) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id := range r.stale {
		if h := r.executing[id]; h != nil {
			stale = append(stale, h.lease())
		}
	}
	clear(r.stale)
	return stale
}
