package replay

import (
	"context"
	"runtime"
	"time"
)

// wait lets the branch wait for w: see Branch.wait.
func (e *Run) wait(by *node, w *wait, on next) error {
	runtime.Gosched() // see suspendLocked
	e.Lock()
	if !e.underWayLocked() {
		e.Unlock()
		runtime.Goexit()
	}
	if on.hasComeLocked() {
		e.Unlock()
		return nil
	}
	w.by, w.ctx, w.woken = by, by.context(), make(chan struct{})
	if w.anyway {
		w.ctx = e.context()
	}
	if w.ctx.Err() != nil {
		e.Unlock()
		return context.Cause(w.ctx)
	}
	e.waits = append(e.waits, w)
	if on.on != nil {
		on.on.waiters = append(on.on.waiters, w)
	}
	if e.busy--; e.busy == 0 {
		e.trySuspendLocked()
	}
	e.Unlock()
	return e.block(w)
}

// block returns when w, which has begun, ends.
func (e *Run) block(w *wait) error {
	for {
		var due <-chan time.Time
		var jump <-chan struct{}
		if !w.until.IsZero() {
			jump = e.Clock.Jump()
			due = time.After(w.until.Sub(e.Now()))
		}
		select {
		case <-e.Stopped():
			runtime.Goexit()
		case <-w.woken:
			return nil
		case <-jump:
		case <-due:
			if w.until.After(e.Now()) { // the estimate of the database's clock was set back meanwhile
				continue
			}
			e.resume(w)
			return nil
		case <-w.ctx.Done():
			e.resume(w)
			return context.Cause(w.ctx)
		}
	}
}

// resume counts the branch as busy again, unless w was woken already. It exits the goroutine if the execution has
// stopped.
func (e *Run) resume(w *wait) {
	e.Lock()
	defer e.Unlock()
	if !e.underWayLocked() {
		runtime.Goexit()
	}
	e.wakeLocked(w)
}
