package check

import (
	"slices"
	"strings"

	"github.com/kagzi/kagzi/chaos/internal/evidence"
)

const compensationSuffix = "#compensation"

// An undoing is what the ledgers say of the compensations of a run.
type undoing struct {
	order []string            // the undone steps, each once, in the order of the first times
	by    map[string][]string // the runs that undid each
}

// compensations: a run that ended badly undid everything that it had registered, from the last to the first, each by
// one run, and so did a run that was rolled back. Another run that completed undid nothing. The oracle knows what the
// run registers; if a client interfered, the table says how far it came. What is said of the table alone, the
// statements of package dbtest check.
func (c *checker) compensations() {
	undone := map[string]*undoing{}
	for _, line := range c.e.Ledger {
		if line.Event != evidence.Undo {
			continue
		}
		u := undone[line.Run]
		if u == nil {
			u = &undoing{by: map[string][]string{}}
			undone[line.Run] = u
		}
		by, known := c.child(line.Run, line.Lease)
		lost := !known && (c.x.Lossy || (fleet{c}).crashed(line.At)) // the server has forgotten the claim
		if !lost && !slices.Contains(u.by[line.Detail], by) {
			u.by[line.Detail] = append(u.by[line.Detail], by)
		}
		if !slices.Contains(u.order, line.Detail) {
			u.order = append(u.order, line.Detail)
		}
	}
	for _, run := range sorted(undone) {
		for _, what := range undone[run].order {
			if by := undone[run].by[what]; len(by) > 1 && !c.resumed(run) {
				c.violation("compensations", run, 0, "%s was undone by the runs %s", what, strings.Join(by, " and "))
			}
		}
	}
	for _, r := range c.e.Runs {
		if u := undone[r.ID]; u != nil {
			c.undone(r, u.order)
		} else {
			c.undone(r, nil)
		}
	}
}

// child returns the child of a run that had a lease.
func (c *checker) child(run, lease string) (id string, known bool) {
	for _, child := range c.h.below[run] {
		if c.h.leases[leaseKey{child, lease}] != nil {
			return child, true
		}
	}
	return "with lease " + lease, false
}

// resumed reports whether a run or one below it was resumed: then its compensations may be run again.
func (c *checker) resumed(run string) bool {
	return c.h.had(run, "RESUMED") || slices.ContainsFunc(c.h.below[run], c.resumed)
}

// wasRolledBack checks whether a run that completed was rolled back, as its program says.
func wasRolledBack(c *checker, r evidence.Run, rollsBack bool) {
	if r.Compensated != rollsBack {
		c.violation("compensations", r.ID, c.h.clock.machine(r.Finished), "that it was rolled back is %v, and its "+
			"program says %v", r.Compensated, rollsBack)
	}
}

// isUnknown reports whether it is not known what a run that did not complete had to undo.
func isUnknown(c *checker, r evidence.Run) bool {
	return r.ErrorKind == "compensation" || c.terminated(r.ID) || c.resumed(r.ID) || r.Origin != ""
}

func (c *checker) undone(r evidence.Run, order []string) {
	at := c.h.clock.machine(r.Finished)
	ending, known := c.ending(r)
	known = known && !c.h.interfered(r.ID) && r.Origin == ""
	completed := r.Status == "COMPLETED" && !r.Compensated
	if r.Status == "COMPLETED" && known {
		wasRolledBack(c, r, ending.RollsBack && len(ending.Registered) > 0)
	}
	switch {
	case !over(r.Status):
		return
	case completed && len(order) > 0:
		c.violation("compensations", r.ID, at, "it completed, and %s was undone", strings.Join(order, ", "))
		return
	case completed || isUnknown(c, r):
		return
	case r.Quarantined:
		if len(order) > 0 {
			c.violation("compensations", r.ID, at, "it is quarantined, and %s was undone", strings.Join(order, ", "))
		}
		return
	}
	want, what := c.registered(r.ID), "had registered"
	if known && r.Status != "CANCELLED" {
		want, what = ending.Registered, "registers"
	}
	want = slices.Clone(want)
	slices.Reverse(want)
	if !slices.Equal(want, order) {
		c.violation("compensations", r.ID, at, "it is %s and %s [%s], from the last to the first, and [%s] was undone",
			r.Status, what, strings.Join(want, ", "), strings.Join(order, ", "))
	}
}

// terminated reports whether a run, or one above it, was terminated, by a verb or by a start that replaced it: then
// nothing is undone.
func (c *checker) terminated(run string) bool {
	for ; run != ""; run = c.h.parent[run] {
		if c.h.had(run, "TERMINATED") || strings.HasPrefix(c.h.final[run].Error, "run was terminated") {
			return true
		}
	}
	return false
}

// registered returns the compensations in the table that have something to call, in their order.
func (c *checker) registered(run string) (names []string) {
	for _, s := range c.h.table[run] {
		if s.Kind != "COMPENSATION" || !s.Called {
			continue
		}
		name := strings.TrimSuffix(s.Step, compensationSuffix)
		if i := slices.Index(names, name); i >= 0 { // registered again: the last registration counts
			names = slices.Delete(names, i, i+1)
		}
		names = append(names, name)
	}
	return names
}
