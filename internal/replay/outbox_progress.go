package replay

import (
	"slices"
	"time"

	"github.com/kagzi/kagzi/store"
)

// SetProgress replaces the run's progress. It is written with the next write of the run, or by itself within
// writePause. A branch that passes recorded operations says nothing: its run has said so before. Any goroutine may call
// it, also after the end of the execution.
func (b *Branch) SetProgress(text string, fraction *float64) {
	e := b.e
	if !b.live.Load() || b.hasLost() || !e.writesRecords() {
		return
	}
	e.Lock()
	defer e.Unlock()
	if !e.underWayLocked() {
		return
	}
	e.progress.said = &store.Progress{RunID: e.RunID, Lease: e.Lease, Text: text, Fraction: fraction}
	e.timeWriteLocked(writePause)
}

// timeWriteLocked lets writeLate be called after d, unless a call is to come already.
func (e *Run) timeWriteLocked(d time.Duration) {
	p := &e.progress
	switch {
	case p.timed:
		return
	case p.timer == nil:
		p.timer = time.AfterFunc(d, e.writeLate)
	default:
		p.timer.Reset(d)
	}
	p.timed = true
}

// writeLate enqueues a write of its own for what no other write has taken: the progress, and what became of messages.
func (e *Run) writeLate() {
	e.Lock()
	p, w := &e.progress, &write{}
	p.timed = false
	if !e.underWayLocked() { // the suspension or the end of the run takes it
		e.Unlock()
		return
	}
	if p.said != nil {
		if wait := writePause - time.Since(p.taken); wait > 0 {
			e.timeWriteLocked(wait)
		} else if p.holds > 0 {
			e.timeWriteLocked(writePause)
		} else {
			w.progress = p.takeLocked()
		}
	}
	first := false
	if w.progress != nil || e.hasMessagesLocked() {
		first = e.enqueueLocked(w)
	}
	e.Unlock()
	if first {
		e.host.Enqueued()
	}
}

// hasMessagesLocked reports whether a write of the execution itself would say that messages were read or set aside.
func (o *outbox) hasMessagesLocked() bool {
	return o.aside != nil ||
		slices.ContainsFunc(o.deferred, func(d deferredRecord) bool { return d.message != nil && d.goesWith(nil) })
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
