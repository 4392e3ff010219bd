package engine

import "github.com/kagzi/kagzi/store"

// setPaused notes whether the run is paused, as its row says. If so, the branches park: each stops where it would begin
// the next operation. When none is busy any more, the execution is suspended. See docs/architecture.md, Pauses.
func (e *execution) setPaused(paused bool) {
	e.Lock()
	defer e.Unlock()
	if e.paused && !paused {
		e.fireLocked(&e.unpaused)
	}
	e.paused = paused
}

// park waits while the run is paused. It exits the goroutine if the execution is suspended meanwhile, and returns the
// cause if the branch is cancelled.
func (b *Branch) park() error {
	e := b.e
	for {
		e.Lock()
		paused, past := e.paused, e.unpaused.fired
		e.Unlock()
		if !paused {
			return nil
		}
		if err := b.waitFor(&wait{why: pausedRun, parked: true}, &e.unpaused, past); err != nil {
			return err
		}
	}
}

// pausedRun is what a run waits on that was suspended because it is paused.
const pausedRun = "pause"

// parkedLocked reports whether a branch is parked.
func (e *execution) parkedLocked() bool {
	for _, w := range e.waits {
		if w.parked {
			return true
		}
	}
	return false
}

// suspendParkedLocked suspends the execution, because the run is paused. The run is due at once when that ends: it then
// goes on with the operation that a branch was about to begin.
func (e *execution) suspendParkedLocked() {
	e.suspendLocked(&write{suspension: e.newSuspension(store.Pending, pausedRun)})
}
