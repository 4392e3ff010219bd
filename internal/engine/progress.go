package engine

import (
	"time"

	"github.com/kagzi/kagzi/store"
)

// SetProgress replaces the run's progress. It is written with the next write of the run, or by itself within progressPause. A branch that
// passes recorded operations says nothing: its run has said so before. Any goroutine may call it, also after the end of the execution.
func (b *Branch) SetProgress(text string, fraction *float64) {
	e := b.e
	if !b.live.Load() || b.hasLost() || !e.mode.writes() {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.reason != underWay {
		return
	}
	e.progress.said = &store.Progress{RunID: e.run.RunID, Lease: e.run.Lease, Text: text, Fraction: fraction}
	e.timeProgressLocked(progressPause)
}

// timeProgressLocked lets writeProgress be called after d, unless a call is to come already.
func (e *execution) timeProgressLocked(d time.Duration) {
	p := &e.progress
	switch {
	case p.timed:
		return
	case p.timer == nil:
		p.timer = time.AfterFunc(d, e.writeProgress)
	default:
		p.timer.Reset(d)
	}
	p.timed = true
}

// writeProgress enqueues a write of the progress alone, if no other write has taken it.
func (e *execution) writeProgress() {
	e.mu.Lock()
	p := &e.progress
	p.timed = false
	first := false
	switch wait := progressPause - time.Since(p.taken); {
	case p.said == nil || e.reason != underWay: // the suspension or the end of the run takes it
	case wait > 0:
		e.timeProgressLocked(wait)
	case p.holds > 0:
		e.timeProgressLocked(progressPause)
	default:
		first = e.enqueueLocked(&write{progress: p.takeLocked()})
	}
	e.mu.Unlock()
	if first {
		e.host.enqueued(e)
	}
}

// holdProgress keeps the progress from being written until release is called: the transaction of a step is stricter than READ COMMITTED,
// and could not record the step if the run's row had changed.
func (e *execution) holdProgress() (release func()) {
	add := func(n int) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.progress.holds += n
	}
	add(1)
	return func() { add(-1) }
}
