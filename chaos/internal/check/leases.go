package check

import (
	"slices"
	"strings"
	"time"

	"github.com/kagzi/kagzi/chaos/internal/evidence"
)

// fleet checks what worker processes do: under which leases, and whether some of them go on with what others left.
type fleet struct{ *checker }

// holders: what only the holder of a lease may do, the process did that claimed the lease (S4). The row keeps the lease
// when its holder suspends or ends the run, and loses it when another process ends it. So a worker that lost its lease
// and writes nevertheless is another process than the one that claimed the lease in the row.
func (c fleet) holders() {
	for _, change := range c.h.changes {
		l, what := c.mine(change)
		if l == nil || l.by == "" || change.By == l.by {
			continue
		}
		c.violation("S4", change.Run, c.at(change), "process %q %s (change %d) under lease %s, which process %q "+
			"claimed (change %d)",
			change.By, what, change.ChangeID, l.id, l.by, l.claim.ChangeID)
	}
}

// mine returns the lease whose holder alone may make a change, with what the change is; nil if others may make it, too.
func (c fleet) mine(change *change) (_ *lease, what string) {
	if change.old == nil && change.ofRun() || change.new == nil {
		return nil, ""
	}
	if !change.ofRun() {
		if change.new.Kind == "COMPENSATION" { // the run's end changes it, too
			return nil, ""
		}
		return c.h.holder[change.ChangeID], "wrote step " + change.Step
	}
	if change.old.Status != "RUNNING" || change.new.Lease != change.old.Lease {
		return nil, ""
	}
	l := c.h.leases[leaseKey{change.Run, change.old.Lease}]
	switch {
	case change.new.Status != "RUNNING":
		return l, "made it " + change.new.Status
	case change.new.Available.After(change.old.Available.Time) && change.new.Available.After(change.At):
		// else the coordinator makes it due
		return l, "extended the lease"
	}
	return nil, ""
}

// leases: steps are executed only under leases that were claimed (S4), and by the process that claimed them. Claims do
// not wait for the disk, so a crash of the server may undo the newest: what is executed under them is not recorded.
func (c fleet) leases() {
	for _, line := range c.e.Ledger {
		if line.Event != evidence.Begin {
			continue
		}
		l := c.h.leases[leaseKey{line.Run, line.Lease}]
		switch {
		case l == nil && !c.x.Lossy && !c.crashed(line.At):
			c.violation("S4", line.Run, line.At, "step %s began in worker %s under lease %s, which nobody claimed",
				line.Step, line.Worker, line.Lease)
		case l != nil && l.by != "" && l.by != line.Worker:
			c.violation("S4", line.Run, line.At, "step %s began in worker %s under lease %s, which process %q claimed",
				line.Step, line.Worker, line.Lease, l.by)
		}
	}
}

// anyAbove reports whether a run, or one above it, is in the set.
func (c *checker) anyAbove(run string, set map[string]bool) bool {
	for ; run != ""; run = c.h.parent[run] {
		if set[run] {
			return true
		}
	}
	return false
}

// crashes are the kinds of faults that crash the server.
var crashes = []string{"F4", "F6", "F7", "F8", "F12", "F13"}

// outlives is how long a worker may go on under a claim that a crash of the server has undone: until its next record is
// refused.
const outlives = 30 * time.Second

// crashed reports whether the server may have crashed shortly before a moment, or right after it.
func (c fleet) crashed(at time.Duration) bool {
	return slices.ContainsFunc(c.e.Injected, func(f evidence.Injected) bool {
		kind, _, _ := strings.Cut(f.Fault, " ")
		return slices.Contains(crashes, kind) && f.Began < at+time.Second && at < f.Ended+outlives
	})
}

// drains: a worker that was drained has left nothing: it is OFFLINE, holds no run, and has no goroutine left (S12). If
// the database was away, the drain has given up, and others take its runs over later.
func (c fleet) drains() {
	status := map[string]string{}
	for _, w := range c.e.Workers {
		status[w.ID] = w.Status
	}
	held := map[string][]*lease{} // by the worker's ID
	for _, run := range sorted(c.h.claims) {
		for _, l := range c.h.claims[run] {
			held[l.claim.new.Holder] = append(held[l.claim.new.Holder], l)
		}
	}
	ids := map[string][]string{} // of the workers of a process
	for _, line := range c.e.Ledger {
		switch line.Event {
		case evidence.Online:
			ids[line.Worker] = append(ids[line.Worker], line.Detail)
		case evidence.Stopped:
			left, err := line.Stop()
			if err != "" {
				continue
			}
			if left > 0 {
				c.violation("S12", "", line.At, "process %s has %d goroutines more than before its worker began",
					line.Worker, left)
			}
			for _, id := range ids[line.Worker] {
				c.drained(id, line, status[id], held[id])
			}
		}
	}
}

func (c fleet) drained(id string, line evidence.Line, status string, held []*lease) {
	if status != "OFFLINE" {
		c.violation("S12", "", line.At, "worker %s of process %s was drained, and is %s", id, line.Worker, status)
	}
	for _, l := range held {
		switch {
		case l.ended == nil:
			c.violation("S12", l.run, line.At, "it is RUNNING, and its worker %s of process %s was drained", id,
				line.Worker)
		case c.h.clock.steady && c.at(l.ended) > line.At+drift && c.canDrain(line.At):
			c.violation("S12", l.run, line.At, "it was RUNNING until %v after its worker %s of process %s was drained",
				c.at(l.ended)-line.At, id, line.Worker)
		}
	}
}

// harmless are the kinds of faults that keep no worker from draining.
var harmless = []string{"F1", "F21", "F26", "F27"}

// canDrain reports whether a worker that ended then could reach the database before, and had the time for it. A fault
// counts as long as its effects may last.
func (c fleet) canDrain(ended time.Duration) bool {
	from := ended - time.Second
	return c.calm(from, ended, busy) && !slices.ContainsFunc(c.e.Injected, func(f evidence.Injected) bool {
		kind, _, _ := strings.Cut(f.Fault, " ")
		return !slices.Contains(harmless, kind) && f.Began < ended && from < f.Ended+c.x.Unheld
	})
}

// quiet reports whether samples show that there was no trouble from one time to another.
func (c fleet) quiet(from, to time.Duration) bool { return c.calm(from, to, troubled) }

// calm reports whether there are samples from one time to another, and none that is loud.
func (c fleet) calm(from, to time.Duration, loud func([]evidence.Sample, int) bool) bool {
	before, after := false, false
	for i, s := range c.e.Samples {
		before, after = before || s.At <= from, after || s.At >= to
		if s.At >= from && s.At <= to && loud(c.e.Samples, i) {
			return false
		}
	}
	return before && after
}

// deletions: retention deletes only runs that ended long ago (S13). The audit's own checks find deleted runs that were
// not over, or that a run waits for.
func (c *checker) deletions() {
	asked := map[string]bool{} // to be deleted, by a client: the event of that may be deleted by now
	for _, call := range c.e.Calls {
		asked[call.Run] = asked[call.Run] || call.Verb == "delete" && call.Outcome != evidence.Failed
	}
	for _, run := range sorted(c.h.ofRun) {
		change := c.h.deleted(run)
		if change == nil || change.old == nil || c.h.had(run, "DELETED") || c.anyAbove(run, asked) || c.inBulk(change) {
			continue
		}
		switch age := change.At.Sub(change.old.Finished.Time); {
		case c.x.Retention == 0:
			c.violation("S13", run, c.at(change), "it was deleted, and nobody asked for that")
		case c.h.clock.steady && age < c.x.Retention:
			c.violation("S13", run, c.at(change), "it was deleted %v after its end, and is to be kept for %v", age,
				c.x.Retention)
		}
	}
}

// inBulk reports whether a client, and no worker, has deleted a run as some client deleted many.
func (c *checker) inBulk(deleted *change) bool {
	return deleted.By == "" && slices.ContainsFunc(c.e.Calls, func(call evidence.Call) bool {
		return call.Verb == "delete all" && call.Began-drift <= c.at(deleted) && c.before(deleted, call.Ended)
	})
}
