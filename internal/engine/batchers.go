package engine

import (
	"maps"
	"slices"
	"time"

	"github.com/kagzi/kagzi/internal/batch"
	"github.com/kagzi/kagzi/store"
)

// enqueued has the execution's outbox flushed.
func (s *Session) enqueued(e *execution) { s.writer.Add(e) }

// dropWrites tells everybody who waits that nothing more is written.
func (s *Session) dropWrites(e *execution) {
	e.mu.Lock()
	writes := e.outbox.writes
	e.outbox.writes, e.outbox.taken = nil, 0
	e.mu.Unlock()
	for _, w := range writes {
		w.settle(store.Lost)
	}
	s.requeue(e, 0)
}

// requeue lets the execution, with which a flush is through, come again if anything is left: after a pause, if that is
// not zero.
func (s *Session) requeue(e *execution, pause time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	o := &e.outbox
	o.taken = 0
	switch {
	case len(o.writes) == 0:
		o.active = false
	case pause > 0 && !s.closing.Load():
		o.pause = time.AfterFunc(pause, func() { s.endPause(e) })
	default:
		s.batcherLocked(e).Add(e)
	}
}

// endPause ends the pause that the execution makes, if it makes one.
func (s *Session) endPause(e *execution) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.outbox.pause != nil {
		e.outbox.pause.Stop()
		e.outbox.pause = nil
		s.batcherLocked(e).Add(e)
	}
}

// batcherLocked is where the execution comes again. While somebody has its row locked, what is flushed with it takes as
// long as a wait for a lock may; what may wait for a stranger's transaction is flushed by itself.
func (s *Session) batcherLocked(e *execution) *batch.Batcher[*execution] {
	switch o := &e.outbox; {
	case !o.apart || s.closing.Load():
		return s.writer
	case slices.ContainsFunc(o.writes, (*write).mayWait):
		return s.alone
	default:
		return s.retries
	}
}

// giveUp gives up what cannot be written, also what waits to be tried again.
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
