package replay

import "github.com/kagzi/kagzi/store"

// A continuing says what follows the function of a run that returns no failure. The execution's mutex guards it.
type continuing struct {
	next      *store.Continuation // what the run begins again with; nil: it completes
	rollsBack bool                // before it completes, its compensations run
	asked     string              // the call, Continue or Rollback, whose error the function has to return; empty: none
}

// askLocked notes that the function has called Continue or Rollback.
func (c *continuing) askLocked(call string) { c.asked = call }

// droppedLocked returns the call whose error the function has not returned; empty: there is none.
func (c *continuing) droppedLocked() string {
	if c.next != nil || c.rollsBack {
		return ""
	}
	return c.asked
}

// rollBackLocked lets the compensations run before the run completes.
func (c *continuing) rollBackLocked() { c.rollsBack = true }

// rollsBackLocked reports whether the compensations run before the run completes.
func (c *continuing) rollsBackLocked() bool { return c.rollsBack }

// continueLocked lets the run begin again with next, instead of completing.
func (c *continuing) continueLocked(next *store.Continuation) { c.next = next }

// nextLocked returns what the run begins again with; nil: it completes.
func (c *continuing) nextLocked() *store.Continuation { return c.next }
