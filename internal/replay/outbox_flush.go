package replay

import (
	"slices"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/standing"
	"github.com/kagzi/kagzi/store"
)

// AddTo adds the taken writes to f. It drops all writes, and returns false, if they may not be made any more: the
// worker gives up what it cannot write, or the lease is lost.
func (o *outbox) AddTo(f *store.Flush) bool {
	o.mu.Lock()
	if o.env.GivesUp() || o.ending.lostLocked() {
		o.mu.Unlock()
		o.dropWrites()
		return false
	}
	defer o.mu.Unlock()
	o.addLocked(f)
	return true
}

// tellNews tells the host that the run was cancelled or paused.
func (o *outbox) tellNews() { o.listener.HasNews() }

// Told is told what a flush has written of a run, before those who wait for it.
type Told interface {
	Finished(f *store.Finish)
	Suspended(p *store.Suspension)
	Started(r *store.NewRun) // a child
	Stepped(steps int)       // ends of steps
	Replied(r *store.Record) // to a request
	// Left names requests that are open although the run has ended. Most runs have none.
	Left(open []store.Answer)
	Valued(run uuid.UUID) // it has set values
}

// A settlement says what a flush has made of an execution's taken writes.
type settlement struct {
	finish    *store.Finish     // that is written; nil: none is
	suspended *store.Suspension // that is written; nil: none is
	started   []*store.NewRun   // children whose starts are written
	steps     int               // how many ends of steps are written
	replies   []*store.Record   // that are written
	values    bool              // some are written
	worst     store.Outcome     // Lost or Unfounded if the execution has stopped for it, and else Done

	busy, unheard bool // see Settle
}

// Settle removes the taken writes that are settled from the outbox, after the flush in which by has sent them. busy
// says that a write met a lock, or must be heard of first: unheard says that the execution is to be told that its run
// was cancelled or paused.
func (e *Run) Settle(by store.Witness, to Told) (busy, unheard bool) {
	var room [8]*write // on the stack, as a rule
	settled, now := e.settleTaken(room[:0], by)
	for _, r := range now.replies { // before the end of the run: those who ask know it first
		to.Replied(r)
	}
	if now.values {
		to.Valued(e.RunID)
	}
	if now.finish != nil {
		e.logEnd(now.finish)
		to.Finished(now.finish)
		if open := e.unanswered(); len(open) > 0 && !now.finish.Compensating {
			to.Left(open)
		}
	}
	if now.suspended != nil {
		to.Suspended(now.suspended)
	}
	if now.steps > 0 {
		to.Stepped(now.steps)
	}
	for _, r := range now.started {
		to.Started(r)
	}
	now.tell(settled)
	return now.busy, now.unheard
}

// settleTaken appends the taken writes that are settled to settled, in their order.
func (o *outbox) settleTaken(settled []*write, by store.Witness) (_ []*write, now settlement) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now.worst = store.Done
	settled, now.busy, now.unheard = o.settleLocked(settled)
	o.told = o.told || now.unheard
	o.acknowledgeLocked(settled, by)
	for _, w := range settled {
		now.add(w)
	}
	o.ending.stopAfterLocked(now.worst) // at once: no branch may take the write for written because it left the outbox
	return settled, now
}

// logEnd logs an end of the run that is no success.
func (e *Run) logEnd(f *store.Finish) {
	switch f.Status {
	case store.Completed:
		if f.Compensating {
			e.log().Info("kagzi: run is rolled back")
		}
	case store.Cancelled:
		e.log().Info("kagzi: run was cancelled", "compensates", f.Compensating)
	default:
		e.log().Warn("kagzi: run failed", "kind", f.ErrorKind, "error", f.Error, "compensates", f.Compensating)
	}
}

// add counts a settled write.
func (n *settlement) add(w *write) {
	switch o := w.outcome(); {
	case o == store.Lost || o == store.Unfounded:
		n.worst = o
	case o == store.Done && w.finish != nil:
		n.finish = w.finish
	case o == store.Done && w.suspension != nil:
		n.suspended = w.suspension
	}
	for _, r := range w.records {
		if r.Outcome == store.Done && r.Kind == store.KindFunction && r.Status != store.Running {
			n.steps++
		}
		if r.Outcome == store.Done && r.Kind == store.KindReply {
			n.replies = append(n.replies, r)
		}
		n.values = n.values || r.Outcome == store.Done && r.Kind == store.KindValue
		if r.Start != nil && r.Outcome == store.Done {
			n.started = append(n.started, r.Start)
		}
	}
}

// tell passes the outcomes of the writes to those who wait for them.
func (n *settlement) tell(writes []*write) {
	for _, w := range writes {
		o := w.outcome()
		if n.worst == store.Unfounded && w.empty() {
			o = n.worst // what it waited for is not written
		}
		w.settle(o)
	}
}

// Refused is called when the server refuses the first write by itself, with err. It reports whether the execution can
// do without that write. If it cannot, the write is tried again.
func (e *Run) Refused(err error) (done bool) {
	done, ends := e.doWithout(err, e.log)
	if ends {
		e.makeEnd()
	}
	return done
}

// dropWrites stops the execution, empties the outbox, and settles its writes as lost.
func (o *outbox) dropWrites() {
	o.mu.Lock()
	// at once: no branch may take the writes for written because they left the outbox
	o.ending.stopLocked(stopLost, standing.ErrShutdown)
	writes := o.writes
	o.writes, o.taken = nil, 0
	o.mu.Unlock()
	for _, w := range writes {
		w.settle(store.Lost)
	}
}

// More is called when a flush is done with the execution. It reports whether any writes are left, and, if that is
// asked, whether one of them may have to wait for a transaction of a stranger.
func (o *outbox) More(asks bool) (more, mayWait bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.taken = 0
	o.active = len(o.writes) > 0
	return o.active, asks && slices.ContainsFunc(o.writes, (*write).mayWait)
}
