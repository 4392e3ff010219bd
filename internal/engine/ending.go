package engine

import (
	"math/rand/v2"

	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/goroutine"
	"github.com/kagzi/kagzi/internal/text"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/store"
)

// settled is called once the execution has stopped, and its goroutines have ended or were waited for long enough.
func (s *Session) settled(e *execution) {
	if e.leave() {
		s.abandon(e)
	}
	s.end(e)
}

// end enqueues the write that ends an execution. It is called again if that may not be written, because the server has
// refused an earlier write. See docs/architecture.md, The end of an execution.
func (s *Session) end(e *execution) {
	reason, suspension, cause := e.endToMake()
	switch reason {
	case stopSuspended:
		s.failpoint("suspend", e.RunID)
		s.suspend(e, suspension)
	case stopShutdown:
		s.suspend(e, suspension)
	case stopCancelling:
		s.finish(e, e.newFinish(store.Cancelled, kind.Cancelled, "run was cancelled"))
	case stopFailed:
		s.finishAttempt(e, reason, nil, cause)
	case stopReturned:
		s.finishAttempt(e, reason, e.result(), e.outcome())
	case stopUnfounded:
		s.remove(e, store.Unfounded)
	default: // the table says what became of the run
		s.remove(e, store.Lost)
	}
}

// suspend enqueues a write that ends the execution, but not the run.
func (s *Session) suspend(e *execution, w *write) {
	s.release(e)
	w.settled = func(o store.Outcome) { s.remove(e, o) }
	if !e.enqueue(w) {
		s.end(e)
	}
}

// finishAttempt completes the run, or fails this attempt of it. The execution has stopped for the reason.
func (s *Session) finishAttempt(e *execution, reason stopReason, output []byte, err error) {
	s.failpoint("finish", e.RunID)
	if err == nil {
		f := e.newFinish(store.Completed, "", "")
		f.Output, f.Consumed = output, e.consumption.end()
		s.finish(e, f)
		return
	}
	class, message := s.errors.Classify(err), failure.Text(err)
	var forget []string
	if reason == stopReturned { // an end from outside says nothing about the failures of the function
		forget = e.forgets(err)
	}
	policy := s.retryPolicy(e)
	permanent := reason == stopFailed || class.Permanent
	if permanent || !policy.Allows(e.runAttempt()) {
		f := e.newFinish(store.Failed, class.Kind, message)
		f.Quarantined = failure.IsQuarantine(err)
		f.Forget = forget
		s.finish(e, f)
		return
	}
	e.log().Warn("kagzi: run failed and is tried again", "kind", class.Kind, "error", text.OneLine(message))
	pause := policy.Backoff(e.runAttempt(), rand.Float64())
	pause = max(pause, class.After)
	sus := e.newSuspension(store.Pending, "retry")
	sus.Wake, sus.Failed, sus.ErrorKind, sus.Error, sus.Forget = pause, true, string(class.Kind), message, forget
	s.suspend(e, &write{suspension: sus})
}

// newFinish prepares the run's end.
func (e *execution) newFinish(status string, k kind.Kind, message string) *store.Finish {
	return &store.Finish{
		RunID: e.RunID, Lease: e.Lease, Parent: e.ParentRunID, Tells: e.Tells,
		Status: status, ErrorKind: string(k), Error: message,
	}
}

// finish enqueues the end of the run, once its children are cancelled. Children of a quarantined run go on.
func (s *Session) finish(e *execution, f *store.Finish) {
	if !e.forgetChildren() || f.Quarantined {
		s.release(e)
		if !e.enqueue(&write{finish: f, settled: func(o store.Outcome) { s.remove(e, o) }}) {
			s.end(e)
		}
		return
	}
	e.enqueue(&write{settled: func(o store.Outcome) { // all children are in the table
		go func() {
			if o == store.Done {
				o = e.cancelChildren()
			}
			if o == store.Done {
				s.finish(e, f)
			} else {
				s.remove(e, o)
			}
		}()
	}})
}

// remove is called when the execution's last write is written, or is given up. The session forgets the execution, and
// wakes the loops that wait for a slot or for the last execution.
func (s *Session) remove(e *execution, o store.Outcome) {
	if o == store.Cancelling { // somebody cancelled the run while it was about to end
		s.finish(e, e.newFinish(store.Cancelled, kind.Cancelled, "run was cancelled"))
		return
	}
	if o == store.Unfounded {
		s.giveBackUnfounded(e)
		return
	}
	s.release(e)
	s.loads.releaseMemory(e)
	s.mu.Lock()
	if s.executing[e.RunID] == e {
		delete(s.executing, e.RunID)
	}
	s.endSuspectLocked(e)
	s.handOnLocked(e.ClaimedRun)
	s.mu.Unlock()
	goroutine.Signal(s.freed)
}

// retryPolicy returns the run's retry policy, or the default one if that cannot be read.
func (s *Session) retryPolicy(e *execution) RetryPolicy {
	p, err := s.policy(e.RetryPolicy)
	if err != nil {
		e.log().Error("kagzi: the run's stored retry policy is unreadable, using the default", "error", err)
	}
	return p
}

// giveBackUnfounded gives back the run of an execution that builds on rows which the server has lost: what the
// execution has in memory is not what the table has. Any worker executes the run from what is left.
func (s *Session) giveBackUnfounded(e *execution) {
	e.log().Warn("kagzi: the database has lost records of the run, as in a failover: it is executed again from those " +
		"that are left")
	e.Lock()
	p := e.newSuspension(store.Pending, "worker")
	e.Unlock()
	s.suspend(e, &write{suspension: p, givesBack: true})
}
