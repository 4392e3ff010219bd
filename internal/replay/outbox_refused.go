package replay

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/text"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/store"
)

// A branch need not wait for its writes, so later writes may follow from one that the server refuses. So after a
// refused write the run fails, even if its function has returned meanwhile. Nothing else of the execution is written,
// apart from the compensations that undo what its steps have done. See doc_flush.go.

// doWithout is called when the server refuses the first write by itself, with err. done reports whether the execution
// can do without that write. If it cannot, the write is the end of the run and has nothing of the application in it: it
// is tried again. ends reports that the end of the execution is to be made again.
func (o *outbox) doWithout(err error, log func() *slog.Logger) (done, ends bool) {
	o.mu.Lock()
	w := o.writes[0]
	switch {
	case w.progress != nil: // the rest may be written without it
		w.progress = nil
		o.mu.Unlock()
		log().Warn("kagzi: a progress may be why a write is refused, and is left out", "error", err)
		return true, false
	case w.aside != nil: // perhaps because of their reasons; without its mark, a message is only found unread again
		o.writes = slices.Delete(o.writes, 0, 1)
		o.mu.Unlock()
		log().Error("kagzi: the database refuses to note that messages do not decode", "error", err)
		return true, false
	case w.isDivisible():
		o.writes = slices.Insert(o.writes, 0, w.divide())
		o.mu.Unlock()
		return true, false
	case w.failsRun() && (w.bare || w.finish.Status == store.Cancelled):
		o.mu.Unlock()
		return false, false
	case w.failsRun():
		own := w.finish.Error
		w.bare = true
		w.finish.ErrorKind, w.finish.Error, w.finish.Forget = string(kind.Database), bareFailure(err), nil
		o.mu.Unlock()
		log().Error("kagzi: the database refuses the text of a run's failure", "failure", text.OneLine(own),
			"error", err)
		return true, false
	}
	cause := fmt.Errorf("the run's end cannot be recorded: %w", err)
	if !w.ends() {
		cause = fmt.Errorf("step %q cannot be recorded: %w", w.record().StepID, err)
	}
	dropped, ends := o.refuseLocked(failure.Of(kind.Database, cause))
	o.mu.Unlock()
	log().Error("kagzi: the database refuses a write of a run, which fails: nothing that follows is written",
		"error", cause)
	for _, w := range dropped { // the execution has stopped: no branch takes them for written
		w.settle(store.Lost)
	}
	return true, ends
}

// isDivisible reports whether divide may be called.
func (w *write) isDivisible() bool { return w.firstRecords() > 0 }

// firstRecords returns how many of the first records may be written before the rest: zero if w cannot be divided.
func (w *write) firstRecords() int {
	n := w.free
	switch {
	case n == 0 && w.ends():
		n = len(w.records)
	case n == len(w.records) && !w.ends():
		n /= 2
	}
	for n > 0 && n < len(w.records) && w.records[n-1].Kind == store.KindCheckpoint { // it goes with its step's end
		n--
	}
	return n
}

// divide moves the first records of w, which is refused, to a write of their own: to find out which of the records is
// refused, and to write those before it.
func (w *write) divide() (first *write) {
	n := w.firstRecords()
	first = &write{by: w.by, records: w.records[:n:n], free: min(n, w.free), speculative: w.speculative}
	w.records, w.free = w.records[n:], w.free-first.free
	w.speculative = w.speculative && len(w.records) > 0
	return first
}

// refuseLocked stops the execution, whose first write is refused, and takes out of the outbox the writes that may not
// be made any more. It returns these writes. ends reports that the end of the execution was among them, and is to be
// made again. If the execution has stopped before, and its run would complete or go on, the run fails with cause all
// the same.
func (o *outbox) refuseLocked(cause error) (dropped []*write, ends bool) {
	o.refused = true
	o.ending.failLocked(cause)
	o.ending.refusedLocked(cause)
	var kept []*write
	for i, w := range o.writes {
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
	o.writes, o.taken = kept, 0
	return dropped, ends
}

// admitLocked returns what of w may enter the outbox: nil if nothing does. dropped is w unless all of it does.
func (o *outbox) admitLocked(w *write) (left, dropped *write) {
	if !o.refused {
		return w, nil
	}
	if w.ends() {
		if o.ending.isMadeLocked() {
			return w, nil
		}
		return nil, w // it was made before the refusal
	}
	var records []*store.Record
	// a step's compensation is deferred before the step's record is enqueued
	for _, d := range o.takeDeferredLocked(w) {
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

// failsRun reports whether w is the end of a run that fails or is cancelled.
func (w *write) failsRun() bool {
	return w.finish != nil && w.finish.Status != store.Completed
}

// bareFailure returns a text that any database can store, for a failure whose own text was refused with err.
func bareFailure(err error) string {
	code := "unknown"
	if pe, ok := errors.AsType[*pgconn.PgError](err); ok {
		code = pe.Code
	}
	return fmt.Sprintf("the run has failed, and the database refuses the text of its failure (SQLSTATE %s): the log "+
		"of the worker has both", code)
}
