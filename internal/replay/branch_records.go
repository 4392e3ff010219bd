package replay

import (
	"context"
	"runtime"
	"slices"

	"github.com/kagzi/kagzi/store"
)

// A recorder makes and writes the records of a branch.
type recorder struct {
	node
	*journal
	outbox *outbox
	ending *ending
}

// cancelled returns the cause if the branch was cancelled. It exits the goroutine if the execution has stopped.
func (r *recorder) cancelled() error {
	if r.ctx.Err() == nil {
		return nil
	}
	r.ending.exitIfStopped()
	return context.Cause(r.ctx)
}

// record enqueues a record of the branch and waits until it, and all writes before it, are in the table. It returns the
// row in the table: the given one, or an older result. It exits the goroutine if the outcome is neither Done nor among
// others. The outcome stays Undecided if the branch has lost a race.
func (r *recorder) record(rec *store.Record, others ...store.Outcome) *store.StepRow {
	outcome, enqueued := r.outbox.enqueueAndWait(&write{by: &r.node, records: []*store.Record{rec}})
	if enqueued && outcome != store.Done && !slices.Contains(others, outcome) {
		r.ending.stopAfter(outcome)
		runtime.Goexit()
	}
	return &rec.StepRow // a loser's result is not used
}

// enqueue enqueues records of the branch and does not wait for the write.
func (r *recorder) enqueue(records ...*store.Record) {
	r.outbox.enqueue(&write{by: &r.node, records: records})
}

// enqueueForRun is enqueue for the run's own branch, which is in no race.
func (r *recorder) enqueueForRun(records ...*store.Record) {
	r.outbox.enqueue(&write{by: r.root(), records: records})
}

// deferRecord keeps a record for a later write: see deferredRecord.
func (r *recorder) deferRecord(rec *store.Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.deferLocked(rec, nil)
}

// deferLocked is deferRecord for a record that takes the message, unless that is nil. A closed branch records nothing.
func (r *recorder) deferLocked(rec *store.Record, message *store.Signal) {
	if !r.closed {
		r.outbox.deferLocked(deferredRecord{record: rec, by: &r.node, message: message})
	}
}

// deferForRunLocked is deferLocked for the run's own branch.
func (r *recorder) deferForRunLocked(rec *store.Record) {
	r.outbox.deferLocked(deferredRecord{record: rec, by: r.root()})
}

// writeAll waits until all enqueued writes of the execution, and the deferred records that a write of the branch takes,
// are in the table. It precedes a transaction of the application, which cannot contain them and must not commit before
// them. It exits the goroutine if the execution has stopped, and returns an error if the branch has lost a race.
func (r *recorder) writeAll() error {
	written := r.outbox.allWritten(&r.node)
	r.ending.exitIfStopped()
	if !written {
		return errBranchCancelled
	}
	return nil
}

// awaitResults waits until every result that the run uses is written. It precedes an effect outside of the run that no
// write of the run has. It returns an error if the branch has lost a race, and exits the goroutine if the execution has
// stopped.
func (r *recorder) awaitResults() error {
	if r.outbox.speculates() {
		return r.writeAll()
	}
	r.ending.exitIfStopped()
	return nil
}

// enqueueAnyway enqueues a record that is written although the branch may be over.
func (r *recorder) enqueueAnyway(rec *store.Record) {
	r.outbox.enqueue(&write{records: []*store.Record{rec}})
}

// show enqueues a record that says that the attempt is under way.
func (r *recorder) show(a attemptUnderWay) {
	r.enqueueAnyway(a.record(r.newRecord))
}
