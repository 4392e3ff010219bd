package worker

import "github.com/google/uuid"

// fence makes the session claim nothing until lift. Other workers are to look at the freed keys.
func (c *claimer) fence() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fenced = true
	c.freedKeys.leaveLocked()
}

// lift lets the session claim again.
func (c *claimer) lift() {
	c.mu.Lock()
	was := c.fenced
	c.fenced = false
	c.mu.Unlock()
	if was {
		c.signalFreed()
	}
}

// rename gives the worker another ID, and fences the session. It returns the old ID, and whether the session drains.
func (c *claimer) rename(id uuid.UUID) (old uuid.UUID, draining bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	old = c.ID()
	c.SetID(id)
	c.fenced = true
	return old, c.draining
}

// beginDrain makes the session claim nothing any more. Other workers are to look at the freed keys.
func (c *claimer) beginDrain() {
	c.shut()
	c.freedKeys.leave()
	close(c.drains)
}
