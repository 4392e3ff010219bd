package worker

import (
	"sync"
	"time"

	"github.com/kagzi/kagzi/internal/replay"
	"github.com/kagzi/kagzi/store"
)

// A held is a run that the session holds. It hosts the run: see replay.Host.
type held struct {
	*store.ClaimedRun // Recoveries may change before the run begins
	replay.Run

	by holder
	turns

	mu      sync.Mutex // guards the fields below. It is locked before the run's mutex and the session's.
	hasSlot bool       // the run holds a slot of the session. Set by takeSlot, reset by freeSlot.
	// its history is to be read, and none of its goroutines has begun. Set by hold, reset by begins.
	loading  bool
	fetching bool  // its inbox is about to be read alone. Set by wantFetch, reset by fetched.
	large    int64 // how many bytes it holds of the loader's memory for large histories
}

// A holder is the session: it hears what its runs tell their host. mayLinger is called with the run's mutex held, the
// others without it.
type holder interface {
	release(h *held)
	ended(h *held, over bool)
	abandon(h *held)
	mayLinger(h *held, d time.Duration) bool
	hasNews(h *held)
}

// hold returns what the session, by, holds of a claimed run. fl makes the run's writes. loads says that its history is
// to be read.
func hold(by holder, fl *flusher, env *replay.Env, r *store.ClaimedRun, loads bool) *held {
	h := &held{ClaimedRun: r, by: by, turns: turns{flusher: fl}, loading: loads}
	env.Prepare(&h.Run, h, r, loads)
	return h
}

func (h *held) Released()                      { h.by.release(h) }
func (h *held) Ended(over bool)                { h.by.ended(h, over) }
func (h *held) Abandoned()                     { h.by.abandon(h) }
func (h *held) MayLinger(d time.Duration) bool { return h.by.mayLinger(h, d) }
func (h *held) HasNews()                       { h.by.hasNews(h) }

// lease names the run under its lease.
func (h *held) lease() store.HeldRun { return store.HeldRun{RunID: h.RunID, Lease: h.Lease} }

// stopped reports whether the run's execution has stopped.
func (h *held) stopped() bool {
	select {
	case <-h.Stopped():
		return true
	default:
		return false
	}
}

// load gives the run its history, its inbox, and its input if the claim left that out. It reports whether the run may
// begin.
func (h *held) load(loaded store.Loaded) (begins bool) {
	id := h.RunID
	begins = h.Load(loaded.Steps[id], loaded.Inbox[id], loaded.Inputs[id])
	h.mu.Lock()
	defer h.mu.Unlock()
	h.loading = h.loading && !begins
	return begins
}
