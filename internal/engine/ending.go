package engine

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/goroutine"
	"github.com/kagzi/kagzi/internal/outage"
	"github.com/kagzi/kagzi/internal/text"
	"github.com/kagzi/kagzi/store"
)

// An execution stops, once and for a reason: see stopLocked. It is settled when its goroutines are gone, or were waited for
// long enough. What is written then suspends the execution or finishes the run. When that is written, the session removes it.

// settle has the outcome written, once. It does not wait for the write.
func (e *execution) settle() { e.settleOnce.Do(func() { e.host.settled(e) }) }

// settled has the outcome of an execution written that has stopped.
func (s *Session) settled(e *execution) {
	e.mu.Lock()
	for _, t := range []*time.Timer{e.grace, e.deadline} {
		if t != nil {
			t.Stop()
		}
	}
	reason, suspension, cause := e.reason, e.suspension, e.failure
	e.mu.Unlock()
	switch reason {
	case stopSuspended:
		s.failpoint("suspend", e.run.RunID)
		s.suspend(e, suspension)
	case stopShutdown:
		s.suspend(e, &write{park: e.newPark(store.Pending, "worker")})
	case stopCancelling:
		s.finish(e, e.newFinish(store.Cancelled, failure.KindCancelled, "run was cancelled"))
	case stopFailed:
		s.finishAttempt(e, nil, cause)
	case stopReturned:
		s.finishAttempt(e, e.output, e.outcome())
	default: // the table says what became of the run
		s.remove(e, store.Lost)
	}
}

// suspend has the end of the execution written, and not of the run.
func (s *Session) suspend(e *execution, w *write) {
	s.release(e)
	w.settled = func(o store.Outcome) { s.remove(e, o) }
	e.enqueue(w)
}

// newPark prepares the end of this execution: without a time, and waiting for nothing, the run is due at once.
func (e *execution) newPark(status, waitingOn string) *store.Suspension {
	p := &store.Suspension{RunID: e.run.RunID, Lease: e.run.Lease, Status: status, WaitingOn: waitingOn}
	if e.loading {
		p.History = store.HistoryUntried
	}
	return p
}

// refuse ends an execution that was never begun.
func (e *execution) refuse(reason stopReason, err error) {
	e.mu.Lock()
	e.live, e.busy, e.failure = 0, 0, err
	e.stopLocked(reason, err)
	e.mu.Unlock()
	e.settle()
}

// setBack gives back a run for a while: because another that may kill the worker is under way, or for its history. A
// cancel, or its deadline, does not make it due before: nobody could act on that. If its function has begun, the run is
// given back when that has ended.
func (e *execution) setBack(waitingOn string, pause time.Duration, history store.HistoryRead) {
	e.mu.Lock()
	begun := e.begins
	if e.reason == underWay {
		p := e.newPark(store.Pending, waitingOn)
		p.Wake, p.History, p.NotBefore = pause, history, true
		e.suspension = &write{park: p}
	}
	if !begun {
		e.live, e.busy = 0, 0
	}
	e.stopLocked(stopSuspended, nil)
	e.mu.Unlock()
	if !begun {
		e.settle()
	}
}

// outcome is the error of the function, else of a branch that failed and that nobody asked for, else of a wrong call.
func (e *execution) outcome() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err != nil {
		return e.err
	}
	for _, r := range e.branches {
		if r.done.fired > 0 && r.err != nil && !r.asked && !r.of.covered() {
			return e.env.errors.Branch(BranchFailure{Name: r.name, Err: r.err})
		}
	}
	return e.misused
}

// covered reports whether a branch above has failed, was cancelled or has lost: that says all there is to say about those
// below it. The execution's mutex is held.
func (b *Branch) covered() bool {
	if b == nil {
		return false
	}
	for p := b.parent; p != nil && p.parent != nil; p = p.parent {
		if p.closed || p.mute.Load() || p.result.err != nil || failure.IsOf(context.Cause(p.ctx), failure.KindCancelled) {
			return true
		}
	}
	return false
}

// discardLocked discards a branch that reached, in verification, what the history does not have: waiters keep waiting.
func (e *execution) discardLocked(last bool) {
	e.busy--
	if last {
		e.stopLocked(stopVerified, nil)
	} else if e.busy == 0 {
		e.suspendLocked()
	}
}

// finishAttempt completes the run, or fails this attempt of it.
func (s *Session) finishAttempt(e *execution, output []byte, err error) {
	s.failpoint("finish", e.run.RunID)
	if err == nil {
		f := e.newFinish(store.Completed, "", "")
		f.Output = output
		s.finish(e, f)
		return
	}
	class, message := s.errors.Classify(err), failure.Text(err)
	var forget []string
	if e.reason == stopReturned { // what ends a run from outside says nothing of its failures
		forget = e.forgets(err)
	}
	policy := s.retryPolicy(e)
	permanent := e.reason == stopFailed || class.Permanent
	if permanent || !policy.Allows(e.attempt) {
		f := e.newFinish(store.Failed, class.Kind, message)
		f.Quarantined = failure.IsQuarantine(err)
		f.Forget = forget
		s.finish(e, f)
		return
	}
	e.log().Warn("kagzi: run failed and is tried again", "kind", class.Kind, "error", text.OneLine(message))
	pause := policy.Backoff(e.attempt, rand.Float64())
	pause = max(pause, class.After)
	park := e.newPark(store.Pending, "retry")
	park.Wake, park.Failed, park.ErrorKind, park.Error, park.Forget = pause, true, class.Kind, message, forget
	s.suspend(e, &write{park: park})
}

// newFinish prepares the run's end.
func (e *execution) newFinish(status, kind, message string) *store.Finish {
	return &store.Finish{RunID: e.run.RunID, Lease: e.run.Lease, Parent: e.run.ParentRunID, Status: status, ErrorKind: kind, Error: message}
}

// finish has the end of the run written, once its children are cancelled; those of a quarantined one are left as they are.
func (s *Session) finish(e *execution, f *store.Finish) {
	e.mu.Lock()
	offspring := len(e.offspring) > 0 && !f.Quarantined
	clear(e.offspring)
	e.mu.Unlock()
	if !offspring {
		s.release(e)
		e.enqueue(&write{finish: f, settled: func(o store.Outcome) { s.remove(e, o) }})
		return
	}
	e.enqueue(&write{settled: func(o store.Outcome) { // all children are in the table
		go func() {
			if o == store.Done && e.cancelChildren() {
				s.finish(e, f)
			} else {
				s.remove(e, store.Lost)
			}
		}()
	}})
}

// isToEnd returns why the run ends without its function: it was cancelled, or its time is over. It is underWay if neither
// is so.
func (e *execution) isToEnd() stopReason {
	switch {
	case e.run.CancelRequested:
		return stopCancelling
	case !e.run.DeadlineAt.IsZero() && !e.run.DeadlineAt.After(e.env.now()):
		return stopFailed
	}
	return underWay
}

// cancelRequested stops what is under way, by the deadline at the latest that the cancel has set.
func (e *execution) cancelRequested(deadline time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.reason == stopCancelling && e.grace != nil && deadline.Before(e.cancelBy) { // by another cancel
		e.cancelBy = deadline
		e.grace.Reset(e.graceLocked())
	}
	if e.reason != underWay {
		return
	}
	e.run.CancelRequested, e.cancelBy = true, deadline
	if !e.loading { // else it does not begin
		e.stopLocked(stopCancelling, errCancelled)
	}
}

// remove is called when the end is written, or cannot be any more. The session forgets the execution, and tells who waits
// for it.
func (s *Session) remove(e *execution, o store.Outcome) {
	if o == store.Cancelling { // asked for while the run was about to end
		s.finish(e, e.newFinish(store.Cancelled, failure.KindCancelled, "run was cancelled"))
		return
	}
	s.release(e)
	s.loads.forget(e)
	s.mu.Lock()
	if s.executing[e.run.RunID] == e {
		delete(s.executing, e.run.RunID)
	}
	if e.alone {
		s.suspect = false
		goroutine.Signal(s.wake) // another suspect may be due: the claims so far left it out
	}
	s.mu.Unlock()
	goroutine.Signal(s.freed)
}

// release frees the execution's slot, once.
func (s *Session) release(e *execution) {
	e.mu.Lock()
	first := !e.released
	e.released = true
	e.mu.Unlock()
	if first {
		s.freeSlot()
	}
}

// retryPolicy is the run's own.
func (s *Session) retryPolicy(e *execution) RetryPolicy {
	p, err := s.policy(e.run.RetryPolicy)
	if err != nil {
		e.log().Error("kagzi: the run's stored retry policy is unreadable, using the default", "error", err)
	}
	return p
}

const maxRecoveries = 20

// insist calls f, which asks the database, until that answers. It returns false if the run is not the execution's any more.
func (e *execution) insist(f func() error) bool {
	for failures := 0; ; failures++ {
		err := f()
		if err == nil {
			return true
		}
		if errors.Is(err, store.ErrLeaseLost) || e.env.closing.Load() || e.lost() {
			return false
		}
		e.env.databaseTrouble(err)
		e.env.pause(outage.PauseAfter(err, failures))
	}
}
