package engine

import (
	"slices"

	"github.com/kagzi/kagzi/store"
)

// A deferredRecord is one that nobody waits for. It enters the outbox with the next write of the branch that deferred it,
// or of one below that, or with the execution's end. Should the process die before, a replay comes to it again.
type deferredRecord struct {
	record *store.Record
	by     *Branch
	took   *store.Signal // goes back if the branch loses a race; nil if the record took none
}

// deferRecord keeps a record for the next write of the branch, or of one below it.
func (b *Branch) deferRecord(r *store.Record) {
	b.e.mu.Lock()
	defer b.e.mu.Unlock()
	b.deferLocked(r, nil)
}

func (b *Branch) deferLocked(r *store.Record, took *store.Signal) {
	if b.e.mode.writes() && !b.closed {
		b.e.deferred = append(b.e.deferred, deferredRecord{r, b, took})
	}
}

// takeDeferredLocked removes, and returns, what is to be written with w. What a branch deferred that may yet lose a race
// is not written with the end of an execution, unless the branch itself ends it: the next execution comes to it again.
func (e *execution) takeDeferredLocked(w *write) (taken []*store.Record) {
	if len(e.deferred) == 0 {
		return nil
	}
	e.deferred = slices.DeleteFunc(e.deferred, func(d deferredRecord) bool {
		take := w.by.under(d.owner()) || w.ends() && !d.by.mayLose()
		if take {
			taken = append(taken, d.record)
		}
		return take
	})
	return taken
}

// hasDeferredLocked reports whether anything would be written with b's next write.
func (e *execution) hasDeferredLocked(b *Branch) bool {
	return slices.ContainsFunc(e.deferred, func(d deferredRecord) bool { return b.under(d.owner()) })
}

// owner is the branch with whose writes the record enters. One that has ended writes no more, and the branch above goes
// by its result; but what a branch in a race took is not the others' before it has won.
func (d *deferredRecord) owner() *Branch {
	b := d.by
	for b.parent != nil && !b.racing && b.result.done.fired > 0 {
		b = b.parent
	}
	return b
}

// dropDeferredLocked drops what a branch that lost a race, and those below it, deferred. It returns the messages that they
// took, which go back to the inbox.
func (e *execution) dropDeferredLocked(loser *Branch) (taken []*store.Signal) {
	e.deferred = slices.DeleteFunc(e.deferred, func(d deferredRecord) bool {
		lost := d.by.under(loser)
		if lost && d.took != nil {
			taken = append(taken, d.took)
		}
		return lost
	})
	return taken
}

// under reports whether b is other, or a branch below it.
func (b *Branch) under(other *Branch) bool {
	for ; b != nil; b = b.parent {
		if b == other {
			return true
		}
	}
	return false
}

// mayLose reports whether b, or a branch above it, is in a Race that is not decided.
func (b *Branch) mayLose() bool {
	for ; b != nil; b = b.parent {
		if b.racing {
			return true
		}
	}
	return false
}
