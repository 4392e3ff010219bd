package engine

import (
	"slices"
	"time"

	"github.com/kagzi/kagzi/store"
)

const (
	// mostWrites and mostBytes bound what shares a transaction. A larger write has one of its own.
	mostWrites = 1000
	mostBytes  = 8 << 20

	// busyPause is how long an execution's writes wait once they met somebody else's lock.
	busyPause = 100 * time.Millisecond
)

// A write is what an execution writes in one transaction: records, and at its end a suspension or a finish. An empty one is
// settled when everything before it is.
type write struct {
	by         *Branch         // that writes, or whose wait ends the execution; nil: the execution
	records    []*store.Record // deferred ones, and last the write's own, if it is neither a suspension nor a finish
	suspension *store.Suspension
	finish     *store.Finish
	settled    func(store.Outcome) // called once; nil if nobody waits
}

// An outbox has what its execution has enqueued and the database has not answered yet, in order. Whoever adds the first
// write puts the execution into the session's batcher. A flush takes writes from the front. What it finds busy stays
// there, and all that follows waits behind it: nothing overtakes what it may follow from. While anything is left the
// execution comes again. The execution's mutex guards the outbox.
type outbox struct {
	writes   []*write    // not settled, oldest first
	active   bool        // the execution is in a batcher, in a flush, or pauses: true while there are writes. Set by enqueue, reset by requeue.
	taken    int         // the first so many writes are in a flush. Only that flush sets it.
	apart    bool        // the last flush met a lock, or failed with this execution alone: the next one is not shared with others
	failures int         // how often in a row a flush failed with this execution alone
	pause    *time.Timer // ends the pause that the execution makes; nil if it makes none
}

// A deferredRecord is one that nobody waits for. It enters the outbox with the next write of the branch that deferred it,
// or of one below that, or with the execution's end. Should the process die before, a replay comes to it again.
type deferredRecord struct {
	record  *store.Record
	by      *Branch
	message *store.Signal // that the record takes; it returns to the inbox if the branch loses a race. Nil if it takes none
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
		if lost && d.message != nil {
			taken = append(taken, d.message)
		}
		return lost
	})
	return taken
}

// take marks the first writes as taken, as many as fit into a transaction that has so many writes and bytes already. It
// returns what that has then; the numbers given if not even the first one fits.
func (e *execution) take(writes, bytes int) (int, int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	o := &e.outbox
	for o.taken = 0; o.taken < len(o.writes) && writes < mostWrites; o.taken++ {
		size := o.writes[o.taken].size()
		if writes > 0 && bytes+size > mostBytes {
			break
		}
		writes, bytes = writes+1, bytes+size
	}
	return writes, bytes
}

// takeFewer leaves the second half of what was taken for another flush. It returns false if there is but one write.
func (e *execution) takeFewer() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.outbox.taken < 2 {
		return false
	}
	e.outbox.taken /= 2
	return true
}

// addTo adds what was taken to f. A beginning whose end is there, too, is left out: a statement cannot write a row twice.
func (e *execution) addTo(f *store.Flush) {
	e.mu.Lock()
	defer e.mu.Unlock()
	first, begun := len(f.Records), false
	for _, w := range e.outbox.writes[:e.outbox.taken] {
		f.Records = append(f.Records, w.records...)
		if w.suspension != nil {
			f.Suspensions = append(f.Suspensions, w.suspension)
		}
		if w.finish != nil {
			f.Finishes = append(f.Finishes, w.finish)
		}
	}
	records := f.Records[first:]
	for _, r := range records {
		begun = begun || r.Status == store.Running
	}
	if !begun || len(records) == 1 {
		return
	}
	type row struct {
		step    string
		attempt int
	}
	ended := map[row]bool{}
	for _, r := range records {
		if r.Status != store.Running {
			ended[row{r.StepID, r.Attempt}] = true
		}
	}
	records = slices.DeleteFunc(records, func(r *store.Record) bool {
		out := r.Status == store.Running && ended[row{r.StepID, r.Attempt}]
		if out {
			r.Outcome = store.Done
		}
		return out
	})
	f.Records = f.Records[:first+len(records)]
}

// settleLocked removes what was taken and is not busy, and appends it to settled.
func (o *outbox) settleLocked(settled []*write) []*write {
	var busy []*write
	o.apart = false
	for _, w := range o.writes[:o.taken] {
		if w.outcome() == store.Busy || o.apart && w.empty() {
			busy = append(busy, w)
			o.apart = true
		} else {
			settled = append(settled, w)
		}
	}
	o.writes = slices.Replace(o.writes, 0, o.taken, busy...)
	o.taken, o.failures = 0, 0
	return settled
}

func (w *write) empty() bool { return len(w.records) == 0 && w.suspension == nil && w.finish == nil }

// ends reports whether w ends the execution.
func (w *write) ends() bool { return w.suspension != nil || w.finish != nil }

// record is the record that w is about.
func (w *write) record() *store.Record { return w.records[len(w.records)-1] }

// mayWait reports whether to write w may wait for a stranger's transaction.
func (w *write) mayWait() bool { return slices.ContainsFunc(w.records, (*store.Record).MayWait) }

func (w *write) size() int {
	n := 200
	for _, r := range w.records {
		n += 200 + len(r.Output) + len(r.Error)
		if r.Start != nil {
			n += 200 + len(r.Start.Input)
		}
		if r.Compensation != nil {
			n += 200 + len(r.Compensation.Input)
		}
	}
	if w.finish != nil {
		n += len(w.finish.Output) + len(w.finish.Error)
	}
	return n
}

func (w *write) outcome() store.Outcome {
	switch {
	case w.suspension != nil:
		return w.suspension.Outcome
	case w.finish != nil:
		return w.finish.Outcome
	case w.empty():
		return store.Done
	default:
		return w.record().Outcome
	}
}

// settle tells who waits.
func (w *write) settle(o store.Outcome) {
	if w.settled != nil {
		w.settled(o)
	}
}
