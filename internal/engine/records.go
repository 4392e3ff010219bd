package engine

import (
	"runtime"

	"github.com/kagzi/kagzi/store"
)

// newRecord prepares a record of attempt number attempt, in a series that began with first.
func (e *execution) newRecord(id, kind, status string, attempt, first int) *store.Record {
	return &store.Record{
		StepRow: store.StepRow{RunID: e.run.RunID, StepID: id, Attempt: attempt, FirstAttempt: first, RunAttempt: e.attempt, Status: status, Kind: kind, Position: e.nextPosition()},
		Lease:   e.run.Lease, Worker: e.env.ID(), Wake: -1,
	}
}

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
		return store.Undecided // the result is of no use to a loser
	}
	outcome := <-settled
	if outcome != store.Done && outcome != other {
		b.e.stop(stopLost, ErrLeaseLost) // unless there is another reason already
		runtime.Goexit()
	}
	return outcome
}

// enqueue writes records of the branch without waiting for it.
func (b *Branch) enqueue(records ...*store.Record) { b.e.enqueue(&write{by: b, records: records}) }

// deferRecord keeps a record for the next write of the branch, or of one below it.
func (b *Branch) deferRecord(r *store.Record) {
	b.e.mu.Lock()
	defer b.e.mu.Unlock()
	b.deferLocked(r, nil)
}

func (b *Branch) deferLocked(r *store.Record, message *store.Signal) {
	if b.e.mode.writes() && !b.closed {
		b.e.deferred = append(b.e.deferred, deferredRecord{r, b, message})
	}
}

// writeAll has everything written that the execution has enqueued, and that the branch and those above it deferred: a
// transaction of the application's cannot carry it, and must not commit before it. It exits the goroutine if the execution
// has ended.
func (b *Branch) writeAll() {
	b.allWritten()
	b.e.exitIfStopped()
}

// allWritten is writeAll without the exit. It returns false if the caller must not go on.
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
		return false // the result is of no use to a loser
	}
	if <-settled != store.Done {
		e.stop(stopLost, ErrLeaseLost)
	}
	return !e.stopped()
}

// show writes that an attempt of a step is under way.
func (e *execution) show(r *store.Record) { e.enqueue(&write{records: []*store.Record{r}}) }

// enqueue adds w to the outbox, together with the deferred records that must not come after it. It returns false, and
// adds nothing, if the branch that writes has lost a race: then its deferred records have been dropped.
func (e *execution) enqueue(w *write) bool {
	e.mu.Lock()
	if !w.ends() && w.by.hasLost() {
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
