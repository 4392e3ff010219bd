package store

import (
	"slices"

	"github.com/google/uuid"
)

// An Outcome is the result of one write of a flush.
type Outcome int

const (
	Undecided  Outcome = iota
	Done               // it is in the table, or the step has an older result there
	Busy               // another open transaction holds the run's row: try again with the next flush
	Lost               // the lease is lost, or the run is over
	Taken              // an active run has the external ID of the child to start
	Cancelling         // a cancel is pending: the run can only end as cancelled
	// the run was cancelled or paused, and Record.Unheard is set: write it again once its worker knows
	Unheard
	Unfounded // the server has lost a row on which it builds: see Premise
)

// A write is one thing that a flush writes: a Record, a Suspension, a Finish, a Progress or a SetAside.
type write interface{ head() head }

// A head holds the fields that the kinds of writes have in common.
type head struct {
	run, lease uuid.UUID
	parent     uuid.UUID // whom the end of the run wakes; only of a Finish
	outcome    *Outcome
	forget     []string // the steps whose failures the next attempt forgets; only of a Suspension or a Finish
}

func byRun[W write](a, b W) int { return compareIDs(a.head().run, b.head().run) }

// ofRun returns the write of the run. sorted has at most one for each run.
func ofRun[W write](sorted []W, run uuid.UUID) (w W, ok bool) {
	i, ok := slices.BinarySearchFunc(sorted, run, func(w W, run uuid.UUID) int { return compareIDs(w.head().run, run) })
	if ok {
		w = sorted[i]
	}
	return w, ok
}

// only returns the writes that keep accepts.
func only[W write](writes []W, keep func(head) bool) (kept []W) {
	for _, w := range writes {
		if keep(w.head()) {
			kept = append(kept, w)
		}
	}
	return kept
}

// part returns the writes for which is holds, and the others.
func part[W write](writes []W, is func(W) bool) (those, others []W) {
	if !slices.ContainsFunc(writes, is) {
		return nil, writes
	}
	for _, w := range writes {
		if is(w) {
			those = append(those, w)
		} else {
			others = append(others, w)
		}
	}
	return those, others
}
