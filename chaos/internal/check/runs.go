package check

import (
	"slices"
	"strings"

	"github.com/kagzi/kagzi/chaos/internal/evidence"
)

// resumes: a run that is over becomes active only by a Resume, once for each (S3).
func (c *checker) resumes() {
	for _, run := range sorted(c.h.ofRun) {
		if c.h.deleted(run) != nil { // its log is deleted, too
			continue
		}
		left := 0
		for _, v := range c.h.verbs[run] {
			if v.Event == "RESUMED" {
				left++
			}
		}
		for _, change := range c.h.ofRun[run] {
			if change.old == nil || change.new == nil || !over(change.old.Status) || over(change.new.Status) {
				continue
			}
			if left--; left < 0 {
				c.violation("S3", run, c.at(change), "it was %s and became %s, and nobody resumed it (change %d)",
					change.old.Status, change.new.Status, change.ChangeID)
			}
		}
	}
}

// endings: each run ends as the oracle says, unless a client interfered (S3), and with the output that the oracle
// computes (S7).
func (c *checker) endings() {
	for _, r := range c.e.Runs {
		want, ok := c.ending(r)
		if !ok || !over(r.Status) {
			continue
		}
		at := c.h.clock.machine(r.Finished)
		switch {
		case r.Status == "COMPLETED" && want.Failed:
			c.violation("S3", r.ID, at, "it completed, and its program fails")
		case r.Status == "COMPLETED" && !same(r.Output, want.Output):
			c.violation("S7", r.ID, at, "its output is %.200s, and its program returns %.200s", r.Output, want.Output)
		case r.Status == "COMPLETED" || c.h.interfered(r.ID):
		case r.Status == "CANCELLED" && !want.Replaced && !c.parentEnded(r):
			c.violation("S3", r.ID, at, "it is CANCELLED (%.200s), and nobody cancelled it", r.Error)
		case r.Status == "FAILED" && !want.Failed:
			c.violation("S3", r.ID, at, "it failed, and its program completes: %s, %.200s", r.ErrorKind, r.Error)
		case r.Status == "FAILED" && want.Kinds != nil && !slices.Contains(want.Kinds, r.ErrorKind):
			c.violation("S3", r.ID, at, "it failed with kind %s, and its program fails with %s: %.200s", r.ErrorKind,
				strings.Join(want.Kinds, " or "), r.Error)
		}
	}
	c.outputs()
}

// parentEnded reports whether a run was cancelled because its parent ended, or lost interest in it: a branch that was
// decided against cancels its children.
func (c *checker) parentEnded(r evidence.Run) bool { return r.Parent != "" }

// outputs: a client that waits for a result gets the output of the run (S15). A failover may have lost that the run has
// completed, and then it is cancelled.
func (c *checker) outputs() {
	for _, call := range c.e.Calls {
		r, there := c.h.final[call.Run]
		if call.Verb != "result" || call.Outcome != evidence.OK || call.Output == "" || !there {
			continue
		}
		if r.Status != "COMPLETED" && !c.x.Lossy || r.Status == "COMPLETED" && !same(r.Output, call.Output) {
			c.violation("S15", call.Run, call.Ended, "client %d got the result %.200s, and it is %s with %.200s",
				call.Client, call.Output, r.Status, r.Output)
		}
	}
}

// cancels: a run whose cancel was acknowledged ends as cancelled, unless it was resumed (S10). Compensations that fail,
// and a quarantine, are more important. And no step begins under a lease that was claimed after the cancel.
func (c *checker) cancels() {
	for _, call := range c.e.Calls {
		if call.Verb != "cancel" && call.Verb != "terminate" || call.Outcome != evidence.OK || c.x.Lossy {
			continue
		}
		r, there := c.h.final[call.Run]
		if !there || !over(r.Status) || r.Status == "CANCELLED" || c.h.had(call.Run, "RESUMED") {
			continue
		}
		if r.ErrorKind == "compensation" || r.Quarantined {
			continue
		}
		c.violation("S10", call.Run, call.Ended, "client %d was told that it was cancelled (%s), and it is %s",
			call.Client, call.Verb, r.Status)
	}
	for _, line := range c.e.Ledger {
		if line.Event != evidence.Begin {
			continue
		}
		if l := c.h.leases[leaseKey{line.Run, line.Lease}]; l != nil && l.cancelled {
			c.violation("S10", line.Run, line.At, "step %s began in worker %s under lease %s, which was claimed "+
				"after the cancel", line.Step, line.Worker, line.Lease)
		}
	}
}
