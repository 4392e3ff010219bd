package engine

import (
	"slices"
	"time"

	"github.com/kagzi/kagzi/internal/standing"
	"github.com/kagzi/kagzi/store"
)

// A settlement says what a flush has made of an execution's taken writes.
type settlement struct {
	writes    []*write          // settled, in their order
	finish    *store.Finish     // that is written; nil: none is
	suspended *store.Suspension // that is written; nil: none is
	started   []*store.NewRun   // children whose starts are written
	steps     int               // how many ends of steps are written
	recovered bool              // flushes had failed with this execution alone
	busy      bool              // a write met a lock, or must be heard of first: see settleLocked
	unheard   bool              // the execution is to be told that its run was cancelled or paused
	worst     store.Outcome     // Lost or Unfounded if the execution has stopped for it, and else Done
}

// settleTaken removes the taken writes that are settled from the outbox. by has sent them. The caller calls tell once
// it has acted on them. It gives writes, which is empty, for the writes.
func (e *execution) settleTaken(writes []*write, by store.Witness) settlement {
	e.Lock()
	defer e.Unlock()
	now := settlement{recovered: e.outbox.failures > 0, worst: store.Done}
	now.writes, now.unheard = e.settleLocked(writes)
	e.told = e.told || now.unheard
	now.busy = e.apart
	e.acknowledgeLocked(now.writes, by)
	for _, w := range now.writes {
		now.add(w)
	}
	e.stopAfterLocked(now.worst) // at once: no branch may take the write for written because it left the outbox
	return now
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

// failedAlone notes that a flush has failed with this execution alone. It returns how many have before, one after the
// other.
func (o *outbox) failedAlone() (before int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	before = o.failures
	o.failures++
	o.apart = true
	return before
}

// dropWrites stops the execution, empties the outbox, and settles its writes as lost.
func (e *execution) dropWrites() {
	e.Lock()
	// at once: nobody may take the writes for written because they left the outbox
	e.stopLocked(stopLost, standing.ErrShutdown)
	writes := e.writes
	e.writes, e.taken = nil, 0
	e.Unlock()
	for _, w := range writes {
		w.settle(store.Lost)
	}
}

// isLeftLocked is called when a flush is done with the execution. It reports whether any writes are left.
func (o *outbox) isLeftLocked() bool {
	o.taken = 0
	o.active = len(o.writes) > 0
	return o.active
}

// pauseLocked lets the writes wait for d. Then it calls over, unless endPauseLocked is called before.
func (o *outbox) pauseLocked(d time.Duration, over func()) { o.pausing = time.AfterFunc(d, over) }

// endPauseLocked ends the pause, and reports whether there was one.
func (o *outbox) endPauseLocked() bool {
	if o.pausing == nil {
		return false
	}
	o.pausing.Stop()
	o.pausing = nil
	return true
}

// isApartLocked reports whether the next flush has no other executions.
func (o *outbox) isApartLocked() bool { return o.apart }

// mayWaitLocked reports whether a write may have to wait for a transaction of a stranger.
func (o *outbox) mayWaitLocked() bool { return slices.ContainsFunc(o.writes, (*write).mayWait) }
