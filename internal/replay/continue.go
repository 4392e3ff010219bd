package replay

import "github.com/kagzi/kagzi/store"

// A continuing is what a run begins again with. The execution's mutex guards it.
type continuing struct {
	next  *store.Continuation // nil: it completes
	asked bool                // the function has called Continue
}

// askLocked notes that the function has called Continue.
func (c *continuing) askLocked() { c.asked = true }

// droppedLocked reports whether the function has called Continue, and has not returned its error.
func (c *continuing) droppedLocked() bool { return c.asked && c.next == nil }

// continueLocked lets the run begin again with next, instead of completing.
func (c *continuing) continueLocked(next *store.Continuation) { c.next = next }

// nextLocked returns what the run begins again with; nil: it completes.
func (c *continuing) nextLocked() *store.Continuation { return c.next }
