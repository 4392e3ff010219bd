package engine

import (
	"slices"

	"github.com/kagzi/kagzi/store"
)

// A branch need not wait for its writes, so later writes may follow from one that the server refuses. So after a
// refused write the run fails, even if its function has returned meanwhile. Nothing else of the execution is written,
// apart from the compensations that undo what its steps have done. See docs/architecture.md, Group commit.

// refuseLocked stops the execution, whose first write is refused, and takes out of the outbox what may not be written
// any more. It returns these writes. ends reports that the end of the execution was among them, and is to be made
// again. If the execution has stopped before, and its run would complete or go on, the run fails with cause all the
// same.
func (e *execution) refuseLocked(cause error) (dropped []*write, ends bool) {
	e.outbox.refused = true
	switch e.reason {
	case underWay:
		e.failure = cause
		e.stopLocked(stopFailed, cause)
	case stopReturned, stopSuspended, stopShutdown:
		e.reason, e.failure = stopFailed, cause
	}
	var kept []*write
	for i, w := range e.outbox.writes {
		left := w.afterRefusal()
		if left == w && i == 0 {
			left = nil
		}
		if left != nil {
			kept = append(kept, left)
		}
		switch {
		case left == w:
		case w.ends():
			ends = true
		default:
			dropped = append(dropped, w)
		}
	}
	e.outbox.writes, e.outbox.taken = kept, 0
	return dropped, ends
}

// admitLocked returns what of w may enter the outbox: nil if nothing does. dropped is w unless all of it does.
func (e *execution) admitLocked(w *write) (left, dropped *write) {
	if !e.outbox.refused {
		return w, nil
	}
	if w.ends() {
		if e.ending == e.reason {
			return w, nil
		}
		return nil, w // it was made before the refusal
	}
	var records []*store.Record
	// a step's compensation is deferred before the step's record is enqueued
	for _, d := range e.takeDeferredLocked(w) {
		records = append(records, d.record)
	}
	w.records = append(records, w.records...)
	if left = w.afterRefusal(); left != w {
		dropped = w
	}
	return left, dropped
}

// afterRefusal returns what of w may be written after a refused write: w itself, a write of its own, or nil.
func (w *write) afterRefusal() *write {
	if w.empty() {
		return w
	}
	left := slices.DeleteFunc(slices.Clone(w.records), func(r *store.Record) bool { return r.Compensation == nil })
	switch {
	case len(left) == 0:
		return nil
	case len(left) == len(w.records) && !w.ends():
		return w
	}
	return &write{by: w.by, records: left}
}

// failsRun reports whether w is the end of a run that fails or is cancelled, and nothing else.
func (w *write) failsRun() bool {
	return w.finish != nil && w.finish.Status != store.Completed && len(w.records) == 0 && w.progress == nil
}
