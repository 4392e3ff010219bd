package starts

import (
	"sync"
	"time"
)

// heldIDs are external IDs that another transaction may hold for long. Runs with such an ID are started alone for a
// while, so that a held ID does not make others wait again and again.
type heldIDs struct {
	mu    sync.Mutex
	until map[string]time.Time
}

const (
	heldFor  = 10 * time.Second // after a wait
	mostHeld = 10_000           // IDs to remember
)

// add remembers an ID whose statement waited for a lock: it or another of that statement is held.
func (h *heldIDs) add(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.until == nil || len(h.until) >= mostHeld {
		h.until = map[string]time.Time{}
	}
	h.until[id] = time.Now().Add(heldFor)
}

// has reports whether the ID may be held. The empty ID never is.
func (h *heldIDs) has(id string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	until, ok := h.until[id]
	if ok && time.Now().After(until) {
		delete(h.until, id)
		ok = false
	}
	return ok
}
