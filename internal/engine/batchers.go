package engine

import (
	"maps"
	"slices"
	"time"

	"github.com/kagzi/kagzi/internal/batch"
)

// enqueued puts the execution, whose outbox has got its first write, into the batcher.
func (s *Session) enqueued(e *execution) { s.writer.Add(e) }

// dropWrites gives up the execution's writes.
func (s *Session) dropWrites(e *execution) {
	e.dropWrites()
	s.requeue(e, 0)
}

// requeue is called when a flush is done with the execution. If any writes are left, it puts the execution into a
// batcher again: after the pause, if that is not zero.
func (s *Session) requeue(e *execution, pause time.Duration) {
	e.Lock()
	defer e.Unlock()
	switch {
	case !e.isLeftLocked():
	case pause > 0 && !s.closing.Load():
		e.pauseLocked(pause, func() { s.endPause(e) })
	default:
		s.batcherLocked(e).Add(e)
	}
}

// endPause ends the execution's pause, if it makes one, and puts it into a batcher.
func (s *Session) endPause(e *execution) {
	e.Lock()
	defer e.Unlock()
	if e.endPauseLocked() {
		s.batcherLocked(e).Add(e)
	}
}

// batcherLocked returns the batcher for the execution's next flush. While somebody has the row of its run locked, every
// flush with it takes as long as a wait for a lock may, so it shares none with the executions that are not affected. A
// write that may wait for a stranger's transaction is flushed alone. See doc_flush.go.
func (s *Session) batcherLocked(e *execution) *batch.Batcher[*execution] {
	switch {
	case !e.isApartLocked() || s.closing.Load():
		return s.writer
	case e.mayWaitLocked():
		return s.alone
	default:
		return s.retries
	}
}

// giveUp sets closing: from now on, writes that cannot be made are given up. It ends all pauses, because writes that
// wait for a retry are given up, too.
func (s *Session) giveUp() {
	s.mu.Lock()
	first := !s.closing.Swap(true)
	all := slices.Collect(maps.Values(s.executing))
	s.mu.Unlock()
	if first {
		close(s.closed)
	}
	for _, e := range all {
		s.endPause(e)
	}
}
