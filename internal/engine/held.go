package engine

import (
	"sync"
	"time"

	"github.com/kagzi/kagzi/store"
)

// A held is a run that the session holds. It hosts the run: see Host.
type held struct {
	*store.ClaimedRun // Recoveries may change before the run begins

	s   *Session
	run execution

	mu      sync.Mutex // guards the fields below. It is locked before the run's mutex and the session's.
	hasSlot bool       // the run holds a slot of the session. Set by takeSlot, reset by freeSlot.
	// its history is to be read, and none of its goroutines has begun. Set by hold, reset by begins.
	loading  bool
	fetching bool  // its inbox is about to be read alone. Set by wantFetch, reset by fetched.
	large    int64 // how many bytes it holds of the loader's memory for large histories
	flushes  flushes
}

// hold returns what the session holds of a claimed run. loads says that its history is to be read.
func (s *Session) hold(r *store.ClaimedRun, loads bool) *held {
	h := &held{ClaimedRun: r, s: s, loading: loads}
	s.env.Prepare(&h.run, h, r, loads)
	return h
}

// lease names the run under its lease.
func (h *held) lease() store.HeldRun { return store.HeldRun{RunID: h.RunID, Lease: h.Lease} }

// stopped reports whether the run's execution has stopped.
func (h *held) stopped() bool {
	select {
	case <-h.run.Stopped():
		return true
	default:
		return false
	}
}

// load gives the run its history, its inbox, and its input if the claim left that out. It reports whether the run may
// begin.
func (h *held) load(loaded store.Loaded) (begins bool) {
	id := h.RunID
	begins = h.run.Load(loaded.Steps[id], loaded.Inbox[id], loaded.Inputs[id])
	h.mu.Lock()
	defer h.mu.Unlock()
	h.loading = h.loading && !begins
	return begins
}

// MayLinger reports whether a slot is free. If so, the run lingers for d: it stays in memory although it could be
// suspended. See docs/architecture.md, Wake-ups without loss.
func (h *held) MayLinger(d time.Duration) bool { return h.s.mayLinger(h, d) }

// Stepped counts the ends of steps.
func (h *held) Stepped(steps int) { h.s.tally.steps.Add(int64(steps)) }
