package replay

import (
	"runtime"

	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/store"
)

// newRecord returns a record of the numbered attempt, in a series that began with attempt first.
func (e *Run) newRecord(id, kind, status string, attempt, first int) *store.Record {
	return &store.Record{
		StepRow: store.StepRow{
			RunID: e.RunID, StepID: id, Attempt: attempt, FirstAttempt: first,
			RunAttempt: e.runAttempt(), Status: status, Kind: kind, Position: e.nextPosition(),
		},
		Lease: e.Lease, Worker: e.Worker.ID(), Wake: -1,
	}
}

// record writes one attempt of a step and returns the row in the table: the given one, or an older result. It exits the
// goroutine if the lease is lost.
func (b *Branch) record(r *store.Record) *store.StepRow {
	b.write(store.Done, r)
	return &r.StepRow
}

// write enqueues records of the branch and waits until they, and all writes before them, are in the table. It exits the
// goroutine if the outcome is neither Done nor other. The outcome is Undecided if the branch has lost a race.
func (b *Branch) write(other store.Outcome, records ...*store.Record) store.Outcome {
	outcome, enqueued := b.e.enqueueAndWait(&write{by: b, records: records})
	if !enqueued {
		return store.Undecided // a loser's result is not used
	}
	if outcome != store.Done && outcome != other {
		b.e.stopAfter(outcome)
		runtime.Goexit()
	}
	return outcome
}

// enqueue enqueues records of the branch and does not wait for the write.
func (b *Branch) enqueue(records ...*store.Record) { b.e.enqueue(&write{by: b, records: records}) }

// deferRecord keeps a record for a later write: see deferredRecord.
func (b *Branch) deferRecord(r *store.Record) {
	b.e.Lock()
	defer b.e.Unlock()
	b.deferLocked(r, nil)
}

func (b *Branch) deferLocked(r *store.Record, message *store.Signal) {
	if b.e.writesRecords() && !b.closed {
		b.e.deferred = append(b.e.deferred, deferredRecord{record: r, by: b, message: message})
		if message != nil {
			b.e.timeWriteLocked(writePause)
		}
	}
}

// setAsideLocked keeps a message that does not decode from all waits. It is written with the run's next write: if the
// process dies before, the next execution finds the message unread, and decides again.
func (e *Run) setAsideLocked(g *store.Signal, why error) {
	if !e.writesRecords() {
		return
	}
	e.aside = append(e.aside, &store.SetAside{
		RunID: e.RunID, Lease: e.Lease, Name: g.Name, Sequence: g.Sequence,
		Reason: failure.Text(why),
	})
	e.timeWriteLocked(writePause)
}

// writeAll waits until all enqueued writes of the execution, and the deferred records that a write of the branch takes,
// are in the table. It precedes a transaction of the application, which cannot contain them and must not commit before
// them. It exits the goroutine if the execution has stopped, and returns an error if the branch has lost a race.
func (b *Branch) writeAll() error {
	written := b.allWritten()
	b.e.exitIfStopped()
	if !written {
		return errBranchCancelled
	}
	return nil
}

// allWritten is writeAll without the exit. It returns false if the execution has stopped or the branch has lost a race.
func (b *Branch) allWritten() bool {
	e := b.e
	e.Lock()
	nothing := len(e.writes) == 0 && !e.hasDeferredLocked(b)
	e.Unlock()
	if nothing {
		return !e.stopped()
	}
	outcome, enqueued := e.enqueueAndWait(&write{by: b})
	if !enqueued {
		return false // a loser's result is not used
	}
	e.stopAfter(outcome)
	return !e.stopped()
}

// enqueueAndWait enqueues w and waits for its outcome. enqueued is what enqueue returns.
func (e *Run) enqueueAndWait(w *write) (outcome store.Outcome, enqueued bool) {
	r := e.receipts.Get().(*receipt)
	defer e.receipts.Put(r)
	w.settled = r.settled
	if !e.enqueue(w) {
		return store.Undecided, false
	}
	return <-r.outcome, true
}

// enqueue adds w to the outbox, together with the deferred records that must not come after it. If the writing branch
// has lost a race, it adds nothing and returns false: the branch's deferred records have been dropped. It also returns
// false for an end that may not be written any more, because the server has refused a write: then the execution has
// another end.
func (e *Run) enqueue(w *write) bool {
	e.Lock()
	if !w.ends() && w.by.hasLost() {
		e.Unlock()
		return false
	}
	left, dropped := e.admitLocked(w)
	first := left != nil && e.enqueueLocked(left)
	e.Unlock()
	if first {
		e.host.Enqueued()
	}
	switch {
	case dropped == nil:
	case dropped.ends():
		return false
	default: // the execution has stopped: no branch takes it for written
		dropped.settle(store.Lost)
	}
	return true
}

// enqueueLocked is enqueue for a write of a branch that has not lost. It reports whether the caller must tell the host,
// without the lock.
func (o *outbox) enqueueLocked(w *write) (first bool) {
	if w.givesBack {
		o.deferred, o.progress.said, o.aside = nil, nil, nil
	}
	if o.aside != nil { // before what follows from a later message
		o.writes = append(o.writes, &write{by: w.by, aside: o.aside})
		o.aside = nil
	}
	deferred := o.takeDeferredLocked(w)
	for len(deferred) > 0 && deferred[0].mayPrecede() { // so that a flush of many large messages can be divided
		o.writes = append(o.writes, &write{by: w.by, records: []*store.Record{deferred[0].record}})
		deferred = deferred[1:]
	}
	if len(deferred) > 0 {
		records := make([]*store.Record, 0, len(deferred)+len(w.records))
		for _, d := range deferred {
			records = append(records, d.record)
		}
		w.records = append(records, w.records...)
	}
	if !o.refused && o.progress.goesWithLocked(w) {
		w.progress = o.progress.takeLocked()
	}
	o.writes = append(o.writes, w)
	first = !o.active
	o.active = true
	return first
}
