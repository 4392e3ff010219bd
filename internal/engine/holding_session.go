package engine

import "github.com/kagzi/kagzi/store"

// takeSlot gives the run, which waited for it, a slot of the session.
func (e *execution) takeSlot() (stopped, loading bool) {
	e.Lock()
	defer e.Unlock()
	e.waiting, e.hasSlot = false, true
	return !e.underWayLocked(), e.loading
}

// holdsSlot reports whether the execution holds a slot of the session.
func (h *holding) holdsSlot() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.hasSlot
}

// freeSlot reports whether the execution held a slot of the session. It holds none any more.
func (h *holding) freeSlot() (held bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	held, h.hasSlot = h.hasSlot, false
	return held
}

// wantFetch reports whether the inbox is to be read alone: it is not about to be read.
func (h *holding) wantFetch() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.fetching || h.loading { // the load of a history reads the inbox, too
		return false
	}
	h.fetching = true
	return true
}

// fetched notes that the inbox is being read alone.
func (h *holding) fetched() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fetching = false
}

// holdMemory notes that the execution holds so many bytes of the loader's memory.
func (h *holding) holdMemory(size int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.large = size
}

// freeMemory returns how many bytes the execution held. It holds none any more.
func (h *holding) freeMemory() (size int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	size, h.large = h.large, 0
	return size
}

// setTerm stores the lease's term, unless the answer to a later question came first.
func (h *holding) setTerm(t store.Term) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if t.Asked.After(h.term.Asked) {
		h.term = t
	}
}
