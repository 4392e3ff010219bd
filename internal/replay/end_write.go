package replay

import (
	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/text"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/store"
	"github.com/kagzi/kagzi/waits"
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
		e.finishAttempt(reason, e.result(), outcomeOf(e))
	case stopUnfounded:
		e.written(store.Unfounded)
	default: // the table has the state of the run
		e.written(store.Lost)
	}
}

// suspend enqueues a write that ends the execution, but not the run.
func (e *Run) suspend(w *write) {
	e.host.Released()
	if !e.enqueue(w) {
		e.makeEnd()
	}
}

// finishAttempt completes the run, or fails this attempt of it. The execution has stopped for the reason.
func (e *Run) finishAttempt(reason stopReason, output []byte, err error) {
	e.Failpoint("finish", e.RunID)
	if err == nil {
		if next := e.continuation(); next != nil {
			e.suspend(next)
			return
		}
		f := e.newFinish(store.Completed, "", "")
		f.Output, f.Consumed = output, e.consumed().end()
		e.Lock()
		f.RollsBack = e.rollsBackLocked()
		e.Unlock()
		e.finish(f)
		return
	}
	class := e.errors().Classify(err)
	message := class.Text(err)
	pause, again := nextAttempt(class, e.retryPolicy(), e.runAttempt())
	again = again && reason != stopFailed
	var forget []string
	if reason == stopReturned { // an end from outside says nothing about the failures of the function
		forget = e.forgets(err, again)
	}
	if !again {
		f := e.newFinish(store.Failed, class.Kind, message)
		f.Output, f.Quarantined = class.Details, failure.IsQuarantine(err)
		f.Forget = forget
		e.finish(f)
		return
	}
	e.log().Warn("kagzi: run failed and is tried again", "kind", class.Kind, "error", text.OneLine(message))
	sus := e.newSuspension(store.Pending, waits.List{{Kind: waits.Retry}})
	sus.Wake, sus.Failed = pause, &store.FailedAttempt{ErrorKind: string(class.Kind), Error: message, Forget: forget}
	e.suspend(e.suspending(sus))
}

// continuation returns the write with which the run begins again; nil: it completes.
func (e *Run) continuation() *write {
	e.Lock()
	defer e.Unlock()
	next := e.nextLocked()
	if next == nil {
		return nil
	}
	next.Reopens, next.Records = e.takenLocked(), int(e.lastPosition()-store.FirstPosition(e.Epoch))
	p := e.newSuspension(store.Pending, waits.List{{Kind: waits.Worker}})
	p.Next = next
	return e.suspending(p)
}

// finish enqueues the end of the run, once its children are cancelled. Children of a quarantined run go on.
func (e *Run) finish(f *store.Finish) {
	if !e.forgetChildren() || f.Quarantined {
		e.host.Released()
		if !e.enqueue(&write{finish: f, settled: func(o store.Outcome) {
			if o == store.Done {
				e.host.Ended(true)
			} else {
				e.written(o)
			}
		}}) {
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
		e.host.Ended(false)
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
// execution has in memory is not what the table has. Any worker executes the run from the rest.
func (e *Run) giveBackUnfounded() {
	e.log().Warn("kagzi: the database has lost records of the run, as in a failover: it is executed again from those " +
		"that are left")
	e.Lock()
	p := e.newSuspension(store.Pending, waits.List{{Kind: waits.Worker}})
	e.Unlock()
	e.suspend(&write{suspension: p, givesBack: true, settled: e.written})
}
