package replay

import (
	"errors"

	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/store"
	"github.com/kagzi/kagzi/waits"
)

// A suspender suspends an execution of which all branches wait. Its file locks the execution's mutex, and a method
// ending in Locked is called with it. See doc_waits.go.
type suspender struct {
	ending *ending // the execution's
	crew   *crew
	mail   *mail
}

// TrySuspend suspends the execution if it may: a time has passed for which it was to stay in memory.
func (s *suspender) TrySuspend() {
	s.ending.mu.Lock()
	defer s.ending.mu.Unlock()
	if s.ending.underWayLocked() && s.crew.waitsLocked() {
		s.trySuspendLocked()
	}
}

// trySuspendLocked is called when no branch is busy. It suspends the execution, or stops it for another reason, unless
// a wait ends soon or the execution lingers.
func (s *suspender) trySuspendLocked() {
	x, c := s.ending, s.crew
	if c.cancelClosedLocked() {
		return
	}
	if c.parkedLocked() {
		// The run is due at once when the pause ends, and goes on with what a branch was about to begin.
		s.suspendLocked(s.suspending(x.newSuspension(store.Pending, waits.List{{Kind: waits.Pause}})))
		return
	}
	if c.endsSoonLocked(x.env.Now()) || s.lingersLocked() {
		return
	}
	if !x.env.beginsNew() { // the branches wait for one another, and those with unrecorded operations have exited
		x.stopLocked(stopVerified, nil)
		return
	}
	first, need := c.earliestLocked(), c.needLocked()
	if first.IsZero() && need == 0 {
		x.failLocked(failure.Quarantine(kind.Nondeterminism, errors.New("every branch of the run waits for another: "+
			"the run cannot go on")))
		return
	}
	p := x.newSuspension(store.Sleeping, c.waitingOnLocked())
	p.Wake, p.WakeAt, p.Need, p.Seen = -1, first, need, s.mail.seenLocked()
	s.suspendLocked(s.suspending(p))
}

// suspendLocked stops the execution, to be suspended with w. If a durable operation was called from a goroutine that
// does not own its Context, the run fails instead: the next execution might not repeat the call, and would complete as
// if it had succeeded. Callers call runtime.Gosched before, because a goroutine that the function has just started may
// be about to make such a call.
func (s *suspender) suspendLocked(w *write) {
	if err := s.crew.misusedLocked(); errors.Is(err, ErrForeignGoroutine) {
		s.ending.failLocked(err)
		return
	}
	s.ending.suspendWithLocked(w)
	s.ending.stopLocked(stopSuspended, nil)
}

// lingersLocked reports whether the execution stays in memory for a while although it could be suspended: children end
// in swarms, and each suspension costs the run a claim. It does not keep a slot that others may need, such as a child
// that it waits for.
func (s *suspender) lingersLocked() bool {
	left := memoryWait - s.mail.sinceLastEndLocked()
	return left > 0 && s.crew.awaitsChildLocked() && s.ending.host.MayLinger(left)
}

// suspending returns the write of p.
func (s *suspender) suspending(p *store.Suspension) *write {
	return &write{suspension: p, settled: s.ending.by.written}
}
