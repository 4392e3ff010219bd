package engine

import (
	"runtime"
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

// A write is what an execution writes in one transaction: records, and at its end a park or a finish. An empty one is
// settled when everything before it is.
type write struct {
	by      *Branch         // that writes, or whose wait ends the execution; nil: the execution
	records []*store.Record // deferred ones, and last the write's own, if it is neither a park nor a finish
	park    *store.Suspension
	finish  *store.Finish
	settled func(store.Outcome) // called once; nil if nobody waits
}

// An outbox has what its execution has enqueued and the database has not answered yet, in order. Whoever adds the first
// write puts the execution into the session's batcher. A flush takes writes from the front. What it finds busy stays
// there, and all that follows waits behind it: nothing overtakes what it may follow from. While anything is left the
// execution comes again. The execution's mutex guards the outbox.
type outbox struct {
	writes   []*write    // not settled, oldest first
	active   bool        // the execution is in a batcher, in a flush, or pauses: true while there are writes
	taken    int         // the first so many writes are in a flush. Only that flush sets it.
	apart    bool        // the last flush met a lock, or failed with this execution alone: the next one is not shared with others
	failures int         // how often it failed with this execution alone, since it last succeeded
	pause    *time.Timer // ends the pause that the execution makes; nil if it makes none
}

// enqueue adds w to the outbox, together with the deferred records that must not come after it. It returns false, and
// does not, if the branch that writes has lost a race: who decides that has dropped what the branch deferred.
func (e *execution) enqueue(w *write) bool {
	e.mu.Lock()
	if !w.ends() && w.by.muted() {
		e.mu.Unlock()
		return false
	}
	if deferred := e.takeDeferredLocked(w); deferred != nil {
		w.records = append(deferred, w.records...)
	}
	o := &e.outbox
	o.writes = append(o.writes, w)
	first := !o.active
	o.active = true
	e.mu.Unlock()
	if first {
		e.host.enqueued(e)
	}
	return true
}

// enqueue writes records of the branch without waiting for it.
func (b *Branch) enqueue(records ...*store.Record) { b.e.enqueue(&write{by: b, records: records}) }

// record writes one attempt of a step and returns the row that stands in the table: the one given, or an older
// result. It exits the goroutine if the lease is lost.
func (b *Branch) record(r *store.Record) *store.StepRow {
	b.write(store.Done, r)
	return &r.StepRow
}

// write writes records of the branch and waits until everything that the execution has enqueued is in the table. It
// exits the goroutine if the outcome is neither Done nor other. The outcome is Undecided if the branch has lost a race.
func (b *Branch) write(other store.Outcome, records ...*store.Record) store.Outcome {
	settled := make(chan store.Outcome, 1)
	if !b.e.enqueue(&write{by: b, records: records, settled: func(o store.Outcome) { settled <- o }}) {
		return store.Undecided // nobody asks for it any more
	}
	outcome := <-settled
	if outcome != store.Done && outcome != other {
		b.e.stop(stopLost, ErrLeaseLost) // unless there is another reason already
		runtime.Goexit()
	}
	return outcome
}

// writeAll has everything written that the execution has enqueued, and that the branch and those above it deferred: a
// transaction of the application's cannot carry it, and must not commit before it. It exits the goroutine if the execution
// has ended.
func (b *Branch) writeAll() {
	b.allWritten()
	b.e.exitIfStopped()
}

// allWritten is writeAll that returns. It returns false if nothing is to follow.
func (b *Branch) allWritten() bool {
	e := b.e
	e.mu.Lock()
	nothing := len(e.outbox.writes) == 0 && !e.hasDeferredLocked(b)
	e.mu.Unlock()
	if nothing {
		return !e.stopped()
	}
	settled := make(chan store.Outcome, 1)
	if !e.enqueue(&write{by: b, settled: func(o store.Outcome) { settled <- o }}) {
		return false // nobody asks for it any more
	}
	if <-settled != store.Done {
		e.stop(stopLost, ErrLeaseLost)
	}
	return !e.stopped()
}

// show writes that an attempt of a step is under way.
func (e *execution) show(r *store.Record) { e.enqueue(&write{records: []*store.Record{r}}) }

// newRecord prepares a record of attempt number attempt, in a series that began with first.
func (e *execution) newRecord(id, kind, status string, attempt, first int) *store.Record {
	return &store.Record{
		StepRow: store.StepRow{RunID: e.run.RunID, StepID: id, Attempt: attempt, FirstAttempt: first, RunAttempt: e.attempt, Status: status, Kind: kind, Position: e.nextPosition()},
		Lease:   e.run.Lease, Worker: e.env.ID(), Wake: -1,
	}
}

// ---- what a flush does ----

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
		if w.park != nil {
			f.Suspensions = append(f.Suspensions, w.park)
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

// ---- writes ----

func (w *write) empty() bool { return len(w.records) == 0 && w.park == nil && w.finish == nil }

// ends reports whether w ends the execution.
func (w *write) ends() bool { return w.park != nil || w.finish != nil }

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
	case w.park != nil:
		return w.park.Outcome
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
