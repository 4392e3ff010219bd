package replay

import (
	"slices"
	"time"

	"github.com/kagzi/kagzi/store"
)

// setProgress is Branch.SetProgress for a branch that may say something.
func (o *outbox) setProgress(text string, fraction *float64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.ending.underWayLocked() {
		return
	}
	o.progress.said = &store.Progress{RunID: o.of.RunID, Lease: o.of.Lease, Text: text, Fraction: fraction}
	o.timeWriteLocked(writePause)
}

// timeWriteLocked lets writeLate be called after d, unless a call is to come before.
func (o *outbox) timeWriteLocked(d time.Duration) {
	p, at := &o.progress, time.Now().Add(d)
	switch {
	case !p.timed.IsZero() && !at.Before(p.timed):
		return
	case p.timer == nil:
		p.timer = time.AfterFunc(d, o.writeLate)
	default:
		p.timer.Reset(d)
	}
	p.timed = at
}

// restLocked ends the wait for a call of writeLate, which would find nothing to write, unless a progress is left.
func (p *progress) restLocked() {
	if p.said == nil && !p.timed.IsZero() {
		p.timer.Stop()
		p.timed = time.Time{}
	}
}

// writeLate enqueues a write of its own for what no other write has taken: the progress, replies, values, checkpoints,
// and what became of messages.
func (o *outbox) writeLate() {
	o.mu.Lock()
	p, w := &o.progress, &write{}
	p.timed = time.Time{}
	if !o.ending.underWayLocked() { // the suspension or the end of the run takes it
		first := o.ending.endsInOrderLocked() && hasOrdinary(o.deferred) && o.enqueueLocked(w)
		o.mu.Unlock()
		if first {
			o.listener.Enqueued()
		}
		return
	}
	if p.said != nil {
		if wait := writePause - time.Since(p.taken); wait > 0 {
			o.timeWriteLocked(wait)
		} else if p.holds > 0 {
			o.timeWriteLocked(writePause)
		} else {
			w.progress = p.takeLocked()
		}
	}
	if slices.ContainsFunc(o.deferred, func(d deferredRecord) bool { return d.isValue() && !d.goesWith(nil) }) {
		o.timeWriteLocked(writePause)
	}
	first := false
	if w.progress != nil || o.isAwaitedLocked() {
		first = o.enqueueLocked(w)
	}
	o.mu.Unlock()
	if first {
		o.listener.Enqueued()
	}
}

// hasOrdinary reports whether any of the records is the result of an ordinary step. The end of an execution that has
// stopped may wait for code that does not return, such as an interceptor, and until then a crash would repeat the step.
func hasOrdinary(records []deferredRecord) bool {
	return slices.ContainsFunc(records, func(d deferredRecord) bool { return d.ordinary && d.goesWith(nil) })
}

// isAwaitedLocked reports whether a write of the execution itself would say that messages were read, answered or set
// aside, that values were changed, or that checkpoints were kept.
func (o *outbox) isAwaitedLocked() bool {
	return o.aside != nil ||
		slices.ContainsFunc(o.deferred, func(d deferredRecord) bool {
			return (d.message != nil || d.isUrgent() || store.Replaces(d.record.Kind)) &&
				d.goesWith(nil)
		})
}

// holdProgress keeps the progress from being written until release is called: the transaction of a step is stricter
// than READ COMMITTED, and could not record the step if the run's row had changed.
func (o *outbox) holdProgress() (release func()) {
	add := func(n int) {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.progress.holds += n
	}
	add(1)
	return func() { add(-1) }
}

// stopWritingLateLocked ends the calls of writeLate.
func (o *outbox) stopWritingLateLocked() {
	if o.progress.timer != nil {
		o.progress.timer.Stop()
	}
}
