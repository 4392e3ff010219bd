package replay

import (
	"slices"

	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/store"
)

// deferLocked keeps a record for a later write: see deferredRecord.
func (o *outbox) deferLocked(d deferredRecord) {
	if !o.env.writesRecords() {
		return
	}
	if store.Replaces(d.record.Kind) { // only the last one is written
		o.deferred = without(o.deferred, d.record.StepID)
	}
	o.deferred = append(o.deferred, d)
	switch {
	case d.isUrgent():
		o.timeWriteLocked(soonPause)
	case d.message != nil, store.Replaces(d.record.Kind):
		o.timeWriteLocked(writePause)
	}
}

// withdraw removes the deferred record with the ID, and returns it; nil if there is none.
func (o *outbox) withdraw(id string) (withdrawn *store.Record) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, d := range o.deferred {
		if d.record.StepID == id {
			withdrawn = d.record
		}
	}
	o.deferred = without(o.deferred, id)
	return withdrawn
}

// without removes the record with the ID.
func without(records []deferredRecord, id string) []deferredRecord {
	return slices.DeleteFunc(records, func(d deferredRecord) bool { return d.record.StepID == id })
}

// setAsideLocked keeps a message that does not decode, or has expired, from all waits. It is written with the run's
// next write: if the process dies before, the next execution finds the message unread, and decides again.
func (o *outbox) setAsideLocked(g *store.Signal, why error) {
	if !o.env.writesRecords() {
		return
	}
	o.aside = append(o.aside, &store.SetAside{
		RunID: o.of.RunID, Lease: o.of.Lease, Name: g.Name, Sequence: g.Sequence,
		Reason: failure.Text(why), Expired: why == store.ErrExpired,
	})
	o.timeWriteLocked(writePause)
}

// hasNothingFor reports whether a write of the branch would find the outbox empty, and take no deferred record along.
func (o *outbox) hasNothingFor(b *node) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.writes) == 0 && !o.hasDeferredLocked(b)
}

// allWritten waits until all enqueued writes, and the deferred records that a write of the branch takes, are in the
// table. It returns false if the execution has stopped or the branch has lost a race.
func (o *outbox) allWritten(by *node) bool {
	if o.hasNothingFor(by) {
		return !o.ending.stopped()
	}
	outcome, enqueued := o.enqueueAndWait(&write{by: by})
	if !enqueued {
		return false // a loser's result is not used
	}
	o.ending.stopAfter(outcome)
	return !o.ending.stopped()
}

// enqueueAndWait enqueues w and waits for its outcome. enqueued is what enqueue returns.
func (o *outbox) enqueueAndWait(w *write) (outcome store.Outcome, enqueued bool) {
	r := receipts.Get().(*receipt)
	defer receipts.Put(r)
	w.settled = r.settled
	if !o.enqueue(w) {
		return store.Undecided, false
	}
	return <-r.outcome, true
}

// enqueue adds w to the outbox, together with the deferred records that must not come after it. If the writing branch
// has lost a race, it adds nothing and returns false: the branch's deferred records have been dropped. It also returns
// false for an end that may not be written any more, because the server has refused a write: then the execution has
// another end.
func (o *outbox) enqueue(w *write) bool {
	o.mu.Lock()
	if !w.ends() && w.by.hasLost() {
		o.mu.Unlock()
		return false
	}
	left, dropped := o.admitLocked(w)
	first := left != nil && o.enqueueLocked(left)
	o.mu.Unlock()
	if first {
		o.listener.Enqueued()
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
	if o.aside != nil { // before the consequences of a later message
		o.writes = append(o.writes, &write{by: w.by, aside: o.aside})
		o.aside = nil
	}
	deferred := o.takeDeferredLocked(w)
	for len(deferred) > 0 && deferred[0].mayPrecede() { // so that a flush of many large messages can be divided
		o.writes = append(o.writes, &write{by: w.by, records: []*store.Record{deferred[0].record}})
		deferred = deferred[1:]
	}
	if len(deferred) > 0 {
		o.writes = append(o.writes, w.take(deferred)...)
	}
	if !o.refused && o.progress.goesWithLocked(w) {
		w.progress = o.progress.takeLocked()
	}
	o.writes = append(o.writes, w)
	if len(o.deferred) == 0 {
		o.progress.restLocked()
	}
	first = !o.active
	o.active = true
	return first
}

// take lets the deferred records be written with w, or by the write that it returns, which comes just before w.
func (w *write) take(deferred []deferredRecord) (before []*write) {
	records, free := make([]*store.Record, 0, len(deferred)+len(w.records)), 0
	for i, d := range deferred {
		records = append(records, d.record)
		if i == free && d.isFree() {
			free++
		}
	}
	// it stays empty: the end of the run follows it, even if these records are refused
	if w.by == nil && w.empty() && w.settled != nil {
		before = []*write{{records: records, speculative: w.speculative, free: free}}
		w.speculative = false
		return before
	}
	w.records, w.free = append(records, w.records...), free
	return nil
}
