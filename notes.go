package kagzi

import (
	"runtime"
	"slices"
	"strings"

	"github.com/kagzi/kagzi/store"
)

// A note is a record that nobody waits for. Should the process die before it is written, a replay comes to it again.
type note struct {
	record *store.Record
	by     *branch       // it is written with what this branch, or one below it, writes next; nil: with the execution's end
	took   *store.Signal // goes back if the branch loses a race
}

// note keeps a record for the next write of what follows from it: the branch's, or that of one below it.
func (b *branch) note(r *store.Record) {
	b.e.mu.Lock()
	defer b.e.mu.Unlock()
	b.noteLocked(r, nil)
}

func (b *branch) noteLocked(r *store.Record, took *store.Signal) {
	if b.e.audit == nil {
		b.e.notes = append(b.e.notes, note{record: r, by: b, took: took})
	}
}

// takeNotesLocked returns what is to be written with it.
func (e *execution) takeNotesLocked(it *item) []*store.Record {
	if len(e.notes) == 0 {
		return nil
	}
	end := it.park != nil || it.finish != nil
	var taken []*store.Record
	undecided := map[*branch]bool{}
	e.notes = slices.DeleteFunc(e.notes, func(n note) bool {
		// In a race that nobody has won, what a branch read and recorded nothing after: a replay comes to the message
		// again, and may lose.
		if end && (n.took != nil || undecided[n.by]) && n.by.mayLose() && !it.follows(n.by) {
			undecided[n.by] = true
			return true
		}
		mine := end || n.by != nil && it.b.under(n.by)
		if mine {
			taken = append(taken, n.record)
		}
		return mine
	})
	return taken
}

// mayLose reports whether b, or a branch above it, is in a Race.
func (b *branch) mayLose() bool {
	for ; b != nil; b = b.parent {
		if b.racing {
			return true
		}
	}
	return false
}

// follows reports whether a record of it is of by, or of a branch below.
func (it *item) follows(by *branch) bool {
	return slices.ContainsFunc(it.records, func(r *store.Record) bool { return strings.HasPrefix(r.StepID, by.prefix) })
}

// decides reports whether a replay must find r to come as far: a message or the end of a child that was taken in, the
// start of one, a sleep that is over, a group that has begun, or a step that has ended its goroutine. A replay in which
// nothing begins ends there without it.
func decides(r *store.Record) bool {
	switch r.Kind {
	case store.KindSignal, store.KindChild, store.KindSleep:
		return true
	case store.KindFunction: // of others than that, somebody waits for the record
		return r.ErrorKind == string(KindPanic)
	case store.KindMarker:
		return r.Status == store.Running
	}
	return false
}

// writeDecisions writes what the branch took from outside, and noted, and waits for it: before a transaction of the
// application's, which cannot carry it.
func (b *branch) writeDecisions() {
	e := b.e
	e.mu.Lock()
	decided := slices.ContainsFunc(e.notes, func(n note) bool {
		return b.under(n.by) && decides(n.record)
	})
	e.mu.Unlock()
	if decided {
		it := &item{e: e, b: b, acked: make(chan struct{})}
		if !e.s.submit(it) {
			return // the transaction is not to be committed
		}
		<-it.acked
		if it.settled != store.Done {
			e.end(endLost, ErrLeaseLost)
			runtime.Goexit()
		}
	}
	e.mu.Lock()
	carried := slices.Clone(e.carried)
	e.mu.Unlock()
	for _, written := range carried { // another branch's record took them along
		select {
		case <-written:
		case <-e.done:
		}
	}
	e.exitIfEnded()
}

// carry notes that it has a decision with it.
func (e *execution) carryLocked(it *item) {
	if !slices.ContainsFunc(it.records, decides) {
		return
	}
	it.written = make(chan struct{})
	e.carried = slices.DeleteFunc(e.carried, func(c chan struct{}) bool {
		select {
		case <-c:
			return true
		default:
			return false
		}
	})
	e.carried = append(e.carried, it.written)
}

// under reports whether b is other, or a branch below it.
func (b *branch) under(other *branch) bool {
	for ; b != nil; b = b.parent {
		if b == other {
			return true
		}
	}
	return false
}

// inheritLocked leaves what a branch noted to another, which has taken its result.
func (e *execution) inheritLocked(from, to *branch) {
	for i := range e.notes {
		if e.notes[i].by == from {
			e.notes[i].by = to
		}
	}
}

// forfeitLocked drops what a branch that lost a race, and those below it, noted, and puts back what they took.
func (e *execution) forfeitLocked(loser *branch) {
	e.notes = slices.DeleteFunc(e.notes, func(n note) bool {
		lost := n.by.under(loser)
		if lost && n.took != nil {
			e.putBackLocked(n.took)
		}
		return lost
	})
}
