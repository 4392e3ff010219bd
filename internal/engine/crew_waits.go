package engine

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"time"

	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/store"
)

// wait blocks the calling branch until the time by the database's clock, unless it is zero, or until event on, unless
// it is nil, has fired more than past times. It returns the branch's cause if the branch is cancelled meanwhile, and
// exits the goroutine if the execution stops. See doc_waits.go.
func (b *Branch) wait(until time.Time, why string, on *event, past int) error {
	return b.waitFor(&wait{until: until, why: why}, on, past)
}

// waitFor is wait with the time and reason of w.
func (b *Branch) waitFor(w *wait, on *event, past int) error {
	e, until := b.e, w.until
	if !until.IsZero() || w.need > 0 { // the end of such a wait is not in the history
		if b.closed {
			return errBranchCancelled
		}
		if err := b.cancelled(); err != nil {
			return err
		}
		b.passHistory()
		if !e.beginsNew() {
			b.exitUnrecorded()
		}
	}
	runtime.Gosched() // see suspendLocked
	e.Lock()
	if !e.underWayLocked() {
		e.Unlock()
		runtime.Goexit()
	}
	if on != nil && on.fired > past {
		e.Unlock()
		return nil
	}
	w.b, w.ctx, w.woken = b, b.ctx, make(chan struct{})
	if w.anyway {
		w.ctx = e.context()
	}
	if w.ctx.Err() != nil {
		e.Unlock()
		return context.Cause(w.ctx)
	}
	e.waits = append(e.waits, w)
	if on != nil {
		on.waiters = append(on.waiters, w)
	}
	if e.busy--; e.busy == 0 {
		e.trySuspendLocked()
	}
	e.Unlock()

	for {
		var due <-chan time.Time
		var jump <-chan struct{}
		if !until.IsZero() {
			jump = e.clock.jump()
			due = time.After(until.Sub(e.now()))
		}
		select {
		case <-e.whenDone():
			runtime.Goexit()
		case <-w.woken:
			return nil
		case <-jump:
		case <-due:
			if until.After(e.now()) { // the estimate of the database's clock was set back meanwhile
				continue
			}
			b.resume(w)
			return nil
		case <-w.ctx.Done():
			b.resume(w)
			return context.Cause(w.ctx)
		}
	}
}

// waitAnyway waits for another branch although this one is cancelled, because this one is behind its history. It also
// returns when no branch is busy.
func (b *Branch) waitAnyway(why string, on *event, past int) {
	_ = b.waitFor(&wait{why: why, anyway: true}, on, past)
}

// resume counts the branch as busy again, unless w was woken already. It exits the goroutine if the execution has
// stopped.
func (b *Branch) resume(w *wait) {
	e := b.e
	e.Lock()
	if !e.underWayLocked() {
		e.Unlock()
		runtime.Goexit()
	}
	e.wakeLocked(w)
	e.Unlock()
}

// trySuspend suspends the execution if it may: a time has passed for which it was to stay in memory.
func (e *execution) trySuspend() {
	e.Lock()
	defer e.Unlock()
	if e.underWayLocked() && e.busy == 0 {
		e.trySuspendLocked()
	}
}

// trySuspendLocked is called when no branch is busy. It suspends the execution, or stops it for another reason, unless
// a wait ends soon or the execution lingers.
func (e *execution) trySuspendLocked() {
	if e.cancelClosedLocked() {
		return
	}
	if e.parkedLocked() {
		e.suspendParkedLocked()
		return
	}
	if e.endsSoonLocked() || e.lingersLocked() {
		return
	}
	if !e.beginsNew() { // the branches wait for one another, and those with unrecorded operations have exited
		e.stopLocked(stopVerified, nil)
		return
	}
	first, timed := e.earliestLocked()
	need := e.needLocked()
	if !timed && need == 0 {
		e.failLocked(failure.Quarantine(kind.Nondeterminism, errors.New("every branch of the run waits for another: "+
			"the run cannot go on")))
		return
	}
	p := e.newSuspension(store.Sleeping, e.waitingOnLocked())
	p.Wake, p.Need, p.Seen = -1, need, e.seenLocked()
	if timed {
		p.WakeAt = first.until
	}
	e.suspendLocked(&write{suspension: p})
}

// cancelClosedLocked cancels closed branches that still wait: in the history they ended without the awaited result.
// Branches that wait for these can then end. It wakes waits that are made anyway, too. It reports whether there were
// any.
func (e *execution) cancelClosedLocked() (any bool) {
	var closed []*Branch
	for _, w := range slices.Clone(e.waits) {
		switch {
		case w.anyway:
			e.wakeLocked(w)
			any = true
		case w.b != nil && w.b.closed:
			closed = append(closed, w.b)
		}
	}
	for _, b := range closed {
		above := func(other *Branch) bool { return other != b && other.under(b) }
		if !slices.ContainsFunc(closed, above) {
			b.cancel(errBranchCancelled)
		}
	}
	return any || closed != nil
}

// suspendLocked stops the execution, to be suspended with w. If a durable operation was called from a goroutine that
// does not own its Context, the run fails instead: the next execution might not repeat the call, and would complete as
// if it had succeeded. Callers call runtime.Gosched before, because a goroutine that the function has just started may
// be about to make such a call.
func (e *execution) suspendLocked(w *write) {
	if errors.Is(e.misused, ErrForeignGoroutine) {
		e.failLocked(e.misused)
		return
	}
	e.suspendWithLocked(w)
	e.stopLocked(stopSuspended, nil)
}

// suspendWith suspends the execution with wait w and its record r in one transaction, and exits the goroutine. It does
// nothing if another branch is busy or parked, another wait ends soon, the branch is cancelled, or event on, unless it
// is nil, has fired more than past times: then the caller records r by itself.
func (b *Branch) suspendWith(r *store.Record, w *wait, on *event, past int) {
	e := b.e
	runtime.Gosched() // see suspendLocked
	e.Lock()
	if !e.underWayLocked() {
		e.Unlock()
		runtime.Goexit()
	}
	if e.busy > 1 || b.ctx.Err() != nil || e.parkedLocked() || e.endsSoonLocked() || on != nil && on.fired > past {
		e.Unlock()
		return
	}
	e.waits = append(e.waits, w)
	first, timed := e.earliestLocked()
	w.until = e.now().Add(r.Wake) // for the order of the text: the row has the time by the database's clock
	p := e.newSuspension(store.Sleeping, e.waitingOnLocked())
	p.Wake, p.Need, p.Seen = r.Wake, e.needLocked(), e.seenLocked()
	if timed {
		p.WakeAt = first.until
	}
	e.suspendLocked(&write{by: b, records: []*store.Record{r}, suspension: p})
	e.Unlock()
	runtime.Goexit()
}

// lingersLocked reports whether the execution stays in memory for a while although it could be suspended: children end
// in swarms, and each suspension costs the run a claim. It does not keep a slot that others may need, such as a child
// that it waits for.
func (e *execution) lingersLocked() bool {
	left := memoryWait - e.sinceLastEndLocked()
	return left > 0 && slices.ContainsFunc(e.waits, func(w *wait) bool { return w.child }) && e.host.mayLinger(e, left)
}

// endsSoonLocked reports whether one of the waits is about to end: by its time, or because its branch was cancelled and
// has not noticed yet.
func (e *execution) endsSoonLocked() bool {
	soon := e.now().Add(memoryWait)
	return slices.ContainsFunc(e.waits, func(w *wait) bool {
		return w.inMemory || w.ctx.Err() != nil || !w.until.IsZero() && !w.until.After(soon)
	})
}
