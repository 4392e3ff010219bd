package worker

// takeSlot gives the run, which waited for it, a slot of the session.
func (h *held) takeSlot() (stopped, loading bool) {
	h.mu.Lock()
	h.hasSlot = true
	loading = h.loading
	h.mu.Unlock()
	return h.stopped(), loading // if it stops later, it frees the slot
}

// holdsSlot reports whether the run holds a slot of the session.
func (h *held) holdsSlot() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.hasSlot
}

// freeSlot reports whether the run held a slot of the session. It holds none any more.
func (h *held) freeSlot() (held bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	held, h.hasSlot = h.hasSlot, false
	return held
}

// wantFetch reports whether the inbox is to be read alone: it is not about to be read.
func (h *held) wantFetch() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.fetching || h.loading { // the load of a history reads the inbox, too
		return false
	}
	h.fetching = true
	return true
}

// fetched notes that the inbox is being read alone.
func (h *held) fetched() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fetching = false
}

// holdMemory notes that the run holds so many bytes of the loader's memory.
func (h *held) holdMemory(size int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.large = size
}

// freeMemory returns how many bytes the run held. It holds none any more.
func (h *held) freeMemory() (size int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	size, h.large = h.large, 0
	return size
}
