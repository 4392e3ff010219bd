package replay

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

// pause reports whether the run is paused, and returns the end of that.
func (c *crew) pause() (end next, paused bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.unpaused.nextLocked(), c.paused
}

// parkedLocked reports whether a branch is parked.
func (c *crew) parkedLocked() bool {
	for _, w := range c.waits {
		if w.parked {
			return true
		}
	}
	return false
}
