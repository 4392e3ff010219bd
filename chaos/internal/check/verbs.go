package check

import "github.com/kagzi/kagzi/chaos/internal/evidence"

// verbs: what a client was told to have done to a run is so. Cancels have a check of their own.
func (c *checker) verbs() {
	for _, run := range sorted(c.h.ofRun) {
		for _, change := range c.h.ofRun[run] {
			if change.old != nil && change.new != nil && !change.old.Paused.IsZero() && change.new.Lease != change.old.Lease && change.new.Status == "RUNNING" {
				c.violation("verbs", change.Run, c.at(change), "process %q claimed it (change %d) while it was paused", change.By, change.ChangeID)
			}
		}
	}
	if c.x.Lossy {
		return
	}
	for _, call := range c.e.Calls {
		if call.Outcome != evidence.OK || call.Run == "" {
			continue
		}
		told := func(format string, args ...any) {
			c.violation("verbs", call.Run, call.Ended, "client %d was told that it is "+format, append([]any{call.Client}, args...)...)
		}
		final, there := c.h.final[call.Run]
		switch call.Verb {
		case "delete":
			if there {
				told("deleted, and it is there, %s", final.Status)
			}
		case "resume":
			if !c.changed(call, func(old, new *row) bool { return over(old.Status) && !over(new.Status) }) {
				told("resumed, and it was not")
			}
		case "pause":
			if !c.changed(call, func(_, new *row) bool { return !new.Paused.IsZero() }) {
				told("paused, and it never was")
			}
		case "unpause":
			if there && final.Paused {
				told("unpaused, and it is paused")
			}
		case "update":
			if last := c.last(call.Run); last != nil && last.Priority != call.Priority {
				told("of priority %d, and it has priority %d", call.Priority, last.Priority)
			}
		}
	}
}

// changed reports whether a change of the run that a call was about made what the call says, before its end. An earlier call without an
// answer may have done it.
func (c *checker) changed(call evidence.Call, made func(old, new *row) bool) bool {
	for _, change := range c.h.ofRun[call.Run] {
		if change.old != nil && change.new != nil && made(change.old, change.new) && (!c.h.clock.steady || c.at(change) <= call.Ended+drift) {
			return true
		}
	}
	return false
}

// last returns the run's row as it was at the end, or when it was deleted; nil if there is none.
func (c *checker) last(run string) *row {
	for i := len(c.h.ofRun[run]) - 1; i >= 0; i-- {
		if change := c.h.ofRun[run][i]; change.new != nil {
			return change.new
		}
	}
	return nil
}
