package replay

import (
	"slices"

	"github.com/kagzi/kagzi/internal/standing"
	"github.com/kagzi/kagzi/store"
)

// AddTo adds the taken writes to f. It drops all writes, and returns false, if they may not be made any more: the
// worker gives up what it cannot write, or the lease is lost.
func (e *Run) AddTo(f *store.Flush) bool {
	e.Lock()
	if e.GivesUp() || e.lostLocked() {
		e.Unlock()
		e.dropWrites()
		return false
	}
	defer e.Unlock()
	e.addLocked(f)
	return true
}

// Told is told what a flush has written of a run, before those who wait for it.
type Told interface {
	Finished(f *store.Finish)
	Suspended(p *store.Suspension)
	Started(r *store.NewRun) // a child
	Stepped(steps int)       // ends of steps
}

// A settlement says what a flush has made of an execution's taken writes.
type settlement struct {
	writes    []*write          // settled, in their order
	finish    *store.Finish     // that is written; nil: none is
	suspended *store.Suspension // that is written; nil: none is
	started   []*store.NewRun   // children whose starts are written
	steps     int               // how many ends of steps are written
	worst     store.Outcome     // Lost or Unfounded if the execution has stopped for it, and else Done
}

// Settle removes the taken writes that are settled from the outbox, after the flush in which by has sent them. busy
// says that a write met a lock, or must be heard of first: unheard says that the execution is to be told that its run
// was cancelled or paused.
func (e *Run) Settle(by store.Witness, to Told) (busy, unheard bool) {
	var room [8]*write // on the stack, as a rule
	now := settlement{writes: room[:0], worst: store.Done}
	busy, unheard = e.settleTaken(&now, by)
	if now.finish != nil {
		e.logEnd(now.finish)
		to.Finished(now.finish)
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
	now.tell()
	return busy, unheard
}

func (e *Run) settleTaken(now *settlement, by store.Witness) (busy, unheard bool) {
	e.Lock()
	defer e.Unlock()
	now.writes, busy, unheard = e.settleLocked(now.writes)
	e.told = e.told || unheard
	e.acknowledgeLocked(now.writes, by)
	for _, w := range now.writes {
		now.add(w)
	}
	e.stopAfterLocked(now.worst) // at once: no branch may take the write for written because it left the outbox
	return busy, unheard
}

// logEnd logs an end of the run that is no success.
func (e *Run) logEnd(f *store.Finish) {
	switch f.Status {
	case store.Completed:
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
		if r.Start != nil && r.Outcome == store.Done {
			n.started = append(n.started, r.Start)
		}
	}
}

// tell passes the outcomes to those who wait for the writes.
func (n *settlement) tell() {
	for _, w := range n.writes {
		o := w.outcome()
		if n.worst == store.Unfounded && w.empty() {
			o = n.worst // what it waited for is not written
		}
		w.settle(o)
	}
}

// dropWrites stops the execution, empties the outbox, and settles its writes as lost.
func (e *Run) dropWrites() {
	e.Lock()
	// at once: no branch may take the writes for written because they left the outbox
	e.stopLocked(stopLost, standing.ErrShutdown)
	writes := e.writes
	e.writes, e.taken = nil, 0
	e.Unlock()
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
