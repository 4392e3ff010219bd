package engine

import (
	"sync"
	"time"

	"github.com/kagzi/kagzi/internal/standing"
	"github.com/kagzi/kagzi/store"
)

// A holding has the session's notes about a run that it holds: the lease, the slot, and the reads of the run that are
// under way. It belongs to the session, and is part of the execution because the execution's mutex guards it. Its files
// lock it, and a method ending in Locked is called with it.
type holding struct {
	mu   *sync.Mutex // the execution's
	term store.Term  // of the lease, as far as is known
	// it waits in memory for a slot, and none of its goroutines has begun. Set by hold, reset by takeSlot.
	waiting bool
	hasSlot bool // it holds a slot of the session. Set by takeSlot, reset by freeSlot.
	// its history is being read, and none of its goroutines has begun. Set by hold, reset by loadedLocked.
	loading  bool
	fetching bool  // its inbox is about to be read alone. Set by wantFetch, reset by fetched.
	large    int64 // how many bytes it holds of the loader's memory for large histories
}

// hold lets a run, which the session has begun to hold, wait for a slot, and for its history if that is to be read.
func (h *holding) hold(loads bool) { h.waiting, h.loading = true, loads }

// isWaitingLocked reports whether the run waits for a slot or its history, so that nothing of it has begun.
func (h *holding) isWaitingLocked() bool { return h.waiting || h.loading }

// isLoadingLocked reports whether the run's history is being read.
func (h *holding) isLoadingLocked() bool { return h.loading }

// loadedLocked notes that the run's history is read.
func (h *holding) loadedLocked() { h.loading = false }

// isOverLocked reports whether the lease is over.
func (h *holding) isOverLocked(now time.Time) bool { return standing.Past(now, h.term.Ends) }
