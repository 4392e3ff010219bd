package worker

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/goroutine"
	"github.com/kagzi/kagzi/store"
)

// A roster has the runs that a session holds, and those that it is about to hold. Functions whose names end with Locked
// are called with the session's mutex held.
type roster struct {
	refreshes chan struct{} // the refresh loop shall read the stale runs now

	mu        *sync.Mutex         // the session's. It guards the fields below.
	executing map[uuid.UUID]*held // by run ID
	stops     int                 // how often all runs were stopped. Tests read it.
	// runs that have a reservation, and whether their rows have changed since. Added by reserveLocked, removed by
	// addLocked and freeLocked.
	reserved map[uuid.UUID]bool
	// a claim is under way: its runs are not in executing yet. Set by claimLocked, reset by claimedAll.
	claiming bool
	claimed  time.Time // when that claim began. Set by claimLocked.
	// runs in executing whose rows have changed. Added by markStale, cleared by takeStale.
	stale map[uuid.UUID]bool
	// runs whose rows have changed while claiming; uuid.Nil stands for any. Added by markStale, cleared by claimedAll.
	staleEarly map[uuid.UUID]bool
}

func newRoster(mu *sync.Mutex) *roster {
	return &roster{
		mu: mu, refreshes: make(chan struct{}, 1), executing: map[uuid.UUID]*held{}, reserved: map[uuid.UUID]bool{},
		stale: map[uuid.UUID]bool{}, staleEarly: map[uuid.UUID]bool{},
	}
}

// held returns the runs of all executions, with their leases.
func (r *roster) held() []store.HeldRun {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]store.HeldRun, 0, len(r.executing))
	for _, h := range r.executing {
		out = append(out, h.lease())
	}
	return out
}

// all returns all executions.
func (r *roster) all() []*held {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Values(r.executing))
}

// stopping is all for executions that are about to be stopped.
func (r *roster) stopping() []*held {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stops++
	return slices.Collect(maps.Values(r.executing))
}

// stopAll makes the session give back all of its runs, with that cause.
func (r *roster) stopAll(cause error) {
	for _, h := range r.stopping() {
		h.Stop(cause)
	}
}

// count returns how many runs the session executes or inserts.
func (r *roster) count() (executing, inserting int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.executing), len(r.reserved)
}

// Held returns how many runs the session executes or inserts.
func (r *roster) Held() int {
	executing, inserting := r.count()
	return executing + inserting
}

// of returns the execution of the run, nil if there is none.
func (r *roster) of(id uuid.UUID) *held {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.executing[id]
}

// under returns the execution of the run under its lease, nil if there is none.
func (r *roster) under(held store.HeldRun) *held {
	if h := r.of(held.RunID); h != nil && h.Lease == held.Lease {
		return h
	}
	return nil
}

// hasLocked reports whether h is the execution of its run.
func (r *roster) hasLocked(h *held) bool { return r.executing[h.RunID] == h }

// addLocked adds an execution. It returns the one that the run had before, and whether the run had a reservation.
func (r *roster) addLocked(h *held) (old *held, reserved bool) {
	old, r.executing[h.RunID] = r.executing[h.RunID], h
	changed, reserved := r.reserved[h.RunID]
	delete(r.reserved, h.RunID)
	if changed {
		r.stale[h.RunID] = true
		goroutine.Signal(r.refreshes)
	}
	return old, reserved
}

// removeLocked removes an execution, unless its run has a newer one.
func (r *roster) removeLocked(h *held) {
	if r.hasLocked(h) {
		delete(r.executing, h.RunID)
	}
}

// reserveLocked notes that the run is being inserted, until addLocked or freeLocked.
func (r *roster) reserveLocked(id uuid.UUID) { r.reserved[id] = false }

// freeLocked notes that the run is not inserted.
func (r *roster) freeLocked(id uuid.UUID) { delete(r.reserved, id) }

// holdsLocked reports whether the session executes runs of the queue.
func (r *roster) holdsLocked(queue string) bool {
	for _, h := range r.executing {
		if h.Queue == queue {
			return true
		}
	}
	return false
}

// notExecutedLocked returns those of the runs that the session neither executes under their leases nor is inserting.
func (r *roster) notExecutedLocked(runs []store.LeasedRun) (out []store.LeasedRun) {
	for _, run := range runs {
		h := r.executing[run.RunID]
		if _, inserting := r.reserved[run.RunID]; !inserting && (h == nil || h.Lease != run.Lease) {
			out = append(out, run)
		}
	}
	return out
}

// claimLocked notes that a claim begins at that time.
func (r *roster) claimLocked(at time.Time) { r.claiming, r.claimed = true, at }

// claimedBeforeLocked reports whether a claim is under way that began before that time.
func (r *roster) claimedBeforeLocked(at time.Time) bool { return r.claiming && r.claimed.Before(at) }
