package engine

import "github.com/kagzi/kagzi/store"

// setPaused notes whether the run is paused, as its row says. If so, the branches park: each stops where it would begin
// the next operation. When none is busy any more, the execution is suspended. See store/doc_pauses.go.
func (c *crew) setPaused(paused bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.paused && !paused {
		c.fireLocked(&c.unpaused)
	}
	c.paused = paused
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
func (c *crew) parkedLocked() bool {
	for _, w := range c.waits {
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
