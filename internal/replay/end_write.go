package replay

import (
	"math/rand/v2"

	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/text"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/store"
)

// makeEnd enqueues the write that ends the execution. It is called again if that may not be written, because the server
// has refused an earlier write. See doc_ends.go.
func (e *Run) makeEnd() {
	reason, suspension, cause := e.endToMake()
	switch reason {
	case stopSuspended:
		e.Failpoint("suspend", e.RunID)
		e.suspend(suspension)
	case stopShutdown:
		e.suspend(suspension)
	case stopCancelling:
		e.finish(e.newFinish(store.Cancelled, kind.Cancelled, "run was cancelled"))
	case stopFailed:
		e.finishAttempt(reason, nil, cause)
	case stopReturned:
		e.finishAttempt(reason, e.result(), e.outcome())
	case stopUnfounded:
		e.written(store.Unfounded)
	default: // the table says what became of the run
		e.written(store.Lost)
	}
}

// suspend enqueues a write that ends the execution, but not the run.
func (e *Run) suspend(w *write) {
	e.host.Released()
	w.settled = e.written
	if !e.enqueue(w) {
		e.makeEnd()
	}
}

// finishAttempt completes the run, or fails this attempt of it. The execution has stopped for the reason.
func (e *Run) finishAttempt(reason stopReason, output []byte, err error) {
	e.Failpoint("finish", e.RunID)
	if err == nil {
		f := e.newFinish(store.Completed, "", "")
		f.Output, f.Consumed = output, e.consumption.end()
		e.finish(f)
		return
	}
	class, message := e.errors().Classify(err), failure.Text(err)
	var forget []string
	if reason == stopReturned { // an end from outside says nothing about the failures of the function
		forget = e.forgets(err)
	}
	policy := e.retryPolicy()
	permanent := reason == stopFailed || class.Permanent
	if permanent || !policy.Allows(e.runAttempt()) {
		f := e.newFinish(store.Failed, class.Kind, message)
		f.Quarantined = failure.IsQuarantine(err)
		f.Forget = forget
		e.finish(f)
		return
	}
	e.log().Warn("kagzi: run failed and is tried again", "kind", class.Kind, "error", text.OneLine(message))
	pause := policy.Backoff(e.runAttempt(), rand.Float64())
	pause = max(pause, class.After)
	sus := e.newSuspension(store.Pending, "retry")
	sus.Wake, sus.Failed, sus.ErrorKind, sus.Error, sus.Forget = pause, true, string(class.Kind), message, forget
	e.suspend(&write{suspension: sus})
}

// newFinish prepares the run's end.
func (e *Run) newFinish(status string, k kind.Kind, message string) *store.Finish {
	return &store.Finish{
		RunID: e.RunID, Lease: e.Lease, Parent: e.ParentRunID, Tells: e.Tells,
		Status: status, ErrorKind: string(k), Error: message,
	}
}

// finish enqueues the end of the run, once its children are cancelled. Children of a quarantined run go on.
func (e *Run) finish(f *store.Finish) {
	if !e.forgetChildren() || f.Quarantined {
		e.host.Released()
		if !e.enqueue(&write{finish: f, settled: e.written}) {
			e.makeEnd()
		}
		return
	}
	e.enqueue(&write{settled: func(o store.Outcome) { // all children are in the table
		go func() {
			if o == store.Done {
				o = e.cancelChildren()
			}
			if o == store.Done {
				e.finish(f)
			} else {
				e.written(o)
			}
		}()
	}})
}

// written is called when the execution's last write is written, or is given up.
func (e *Run) written(o store.Outcome) {
	switch o {
	case store.Cancelling: // the run was cancelled while it was about to end
		e.finish(e.newFinish(store.Cancelled, kind.Cancelled, "run was cancelled"))
	case store.Unfounded:
		e.giveBackUnfounded()
	default:
		e.host.Released()
		e.host.Ended()
	}
}

// retryPolicy returns the run's retry policy, or the default one if that cannot be read.
func (e *Run) retryPolicy() RetryPolicy {
	p, err := e.policy(e.RetryPolicy)
	if err != nil {
		e.log().Error("kagzi: the run's stored retry policy is unreadable, using the default", "error", err)
	}
	return p
}

// giveBackUnfounded gives back the run of an execution that builds on rows which the server has lost: what the
// execution has in memory is not what the table has. Any worker executes the run from what is left.
func (e *Run) giveBackUnfounded() {
	e.log().Warn("kagzi: the database has lost records of the run, as in a failover: it is executed again from those " +
		"that are left")
	e.Lock()
	p := e.newSuspension(store.Pending, "worker")
	e.Unlock()
	e.suspend(&write{suspension: p, givesBack: true})
}
