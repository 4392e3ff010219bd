package check

import (
	"fmt"
	"time"

	"github.com/kagzi/kagzi/chaos/internal/evidence"
)

// verbs: what a client was told to have done to a run is so. Cancels have a check of their own.
func (c *checker) verbs() {
	c.claimedPaused()
	if c.x.Lossy {
		return
	}
	for _, call := range c.e.Calls {
		if call.Outcome != evidence.OK || call.Run == "" {
			continue
		}
		if what := c.untrue(call); what != "" {
			c.violation("verbs", call.Run, call.Ended, "client %d was told that it is %s", call.Client, what)
		}
	}
}

// claimedPaused: no worker claims a run that is paused.
func (c *checker) claimedPaused() {
	for _, run := range sorted(c.h.ofRun) {
		for _, change := range c.h.ofRun[run] {
			if change.old != nil && change.new != nil && !change.old.Paused.IsZero() &&
				change.new.Lease != change.old.Lease && change.new.Status == "RUNNING" {
				c.violation("verbs", change.Run, c.at(change), "process %q claimed it (change %d) while it was paused",
					change.By, change.ChangeID)
			}
		}
	}
}

// untrue returns what a client was told of a run, and that it was not so: "paused, and it was not". It returns an empty
// text if it was so.
func (c *checker) untrue(call evidence.Call) string {
	switch _, there := c.h.final[call.Run]; call.Verb {
	case "delete":
		if gone := c.h.deleted(call.Run); there || gone != nil && !c.before(gone, call.Ended) {
			return "deleted, and it was there"
		}
	case "resume":
		if !c.changed(call, func(old, new *row) bool { return over(old.Status) && !over(new.Status) }) {
			return "resumed, and it was not"
		}
	case "pause":
		if !c.changed(call, func(_, new *row) bool { return !new.Paused.IsZero() }) {
			return "paused, and it was not"
		}
	case "unpause":
		if then := c.rowAt(call.Run, call.Ended); then != nil && !then.Paused.IsZero() {
			return "unpaused, and it was paused"
		}
	case "update":
		if priority := c.otherPriority(call); priority != 0 {
			return fmt.Sprintf("of priority %d, and it had priority %d", call.Priority, priority)
		}
	}
	return ""
}

// otherPriority returns a priority that a run had although a client had given it another; zero if it had none. It must
// have the client's from the end of the call until the next update begins.
func (c *checker) otherPriority(call evidence.Call) int {
	until := c.e.Over
	for _, next := range c.e.Calls {
		if next.Run == call.Run && next.Verb == "update" && next.Began > call.Ended {
			until = min(until, next.Began)
		}
	}
	for _, at := range []time.Duration{call.Ended, until} {
		if then := c.rowAt(call.Run, at); then != nil && then.Priority != call.Priority {
			return then.Priority
		}
	}
	return 0
}

// before reports whether a change was before a moment, as far as the clocks tell.
func (c *checker) before(change *change, at time.Duration) bool {
	return !c.h.clock.steady || c.at(change) <= at+drift
}

// changed reports whether a change of the run that a call was about made what the call says: between its begin and its
// end, or since an earlier call of this verb whose outcome is unknown.
func (c *checker) changed(call evidence.Call, made func(old, new *row) bool) bool {
	since := call.Began
	for _, other := range c.e.Calls {
		if other.Run == call.Run && other.Verb == call.Verb && other.Outcome == evidence.Unknown {
			since = min(since, other.Began)
		}
	}
	for _, change := range c.h.ofRun[call.Run] {
		if change.old != nil && change.new != nil && made(change.old, change.new) && c.before(change, call.Ended) &&
			(!c.h.clock.steady || c.at(change) >= since-drift) {
			return true
		}
	}
	return false
}

// rowAt returns the run's row as it was at a moment; nil if there was none, or if the clocks do not tell.
func (c *checker) rowAt(run string, at time.Duration) (then *row) {
	for _, change := range c.h.ofRun[run] {
		if c.h.clock.steady && c.at(change) <= at {
			then = change.new
		}
	}
	return then
}
