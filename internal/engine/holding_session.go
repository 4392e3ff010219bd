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
func (e *execution) holdsSlot() bool {
	e.Lock()
	defer e.Unlock()
	return e.hasSlot
}

// freeSlot reports whether the execution held a slot of the session. It holds none any more.
func (e *execution) freeSlot() (held bool) {
	e.Lock()
	defer e.Unlock()
	held, e.hasSlot = e.hasSlot, false
	return held
}

// wantFetch reports whether the inbox is to be read alone: it is not about to be read.
func (e *execution) wantFetch() bool {
	e.Lock()
	defer e.Unlock()
	if e.fetching || e.loading { // the load of a history reads the inbox, too
		return false
	}
	e.fetching = true
	return true
}

// fetched notes that the inbox is being read alone.
func (e *execution) fetched() {
	e.Lock()
	defer e.Unlock()
	e.fetching = false
}

// holdMemory notes that the execution holds so many bytes of the loader's memory.
func (e *execution) holdMemory(size int64) {
	e.Lock()
	defer e.Unlock()
	e.large = size
}

// freeMemory returns how many bytes the execution held. It holds none any more.
func (e *execution) freeMemory() (size int64) {
	e.Lock()
	defer e.Unlock()
	size, e.large = e.large, 0
	return size
}

// setTerm stores the lease's term, unless the answer to a later question came first.
func (e *execution) setTerm(t store.Term) {
	e.Lock()
	defer e.Unlock()
	if t.Asked.After(e.term.Asked) {
		e.term = t
	}
}
