package replay

import (
	"slices"
	"time"
)

// cancelClosedLocked cancels closed branches that still wait: in the history they ended without the awaited result.
// Branches that wait for these can then end. It wakes waits that are made anyway, too. It reports whether there were
// any.
func (c *crew) cancelClosedLocked() (any bool) {
	var closed []*node
	for _, w := range slices.Clone(c.waits) {
		switch {
		case w.anyway:
			c.wakeLocked(w)
			any = true
		case w.by != nil && w.by.Closed():
			closed = append(closed, w.by)
		}
	}
	for _, n := range closed {
		above := func(other *node) bool { return other != n && other.under(n) }
		if !slices.ContainsFunc(closed, above) {
			n.callOff()
		}
	}
	return any || closed != nil
}

// endsSoonLocked reports whether one of the waits is about to end: by its time, or because its branch was cancelled and
// has not noticed yet.
func (c *crew) endsSoonLocked(now time.Time) bool {
	soon := now.Add(memoryWait)
	return slices.ContainsFunc(c.waits, func(w *wait) bool {
		return w.inMemory || w.ctx.Err() != nil || !w.until.IsZero() && !w.until.After(soon)
	})
}

// isAloneLocked reports whether the caller is the only branch that is busy, and none goes on soon.
func (c *crew) isAloneLocked(now time.Time) bool {
	return c.busy <= 1 && !c.parkedLocked() && !c.endsSoonLocked(now)
}

// addWaitLocked adds a wait with which the execution is about to be suspended.
func (c *crew) addWaitLocked(w *wait, until time.Time) {
	w.until = until
	c.waits = append(c.waits, w)
}

// awaitsChildLocked reports whether a branch waits for ends of children.
func (c *crew) awaitsChildLocked() bool {
	return slices.ContainsFunc(c.waits, func(w *wait) bool { return w.child })
}
