package worker

import (
	"maps"
	"slices"
	"time"

	"github.com/kagzi/kagzi/internal/batch"
)

// enqueued puts the run, whose outbox has got its first write, into the batcher.
func (s *Session) enqueued(h *held) { s.writer.Add(h) }

// requeue is called when a flush is done with the run. If any writes are left, it puts the run into a batcher again:
// after the pause, if that is not zero.
func (s *Session) requeue(h *held, pause time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch more, mayWait := h.run.More(h.flushes.apart); {
	case !more:
	case pause > 0 && !s.GivesUp():
		h.flushes.pausing = time.AfterFunc(pause, func() { s.endPause(h) })
	default:
		s.batcher(h.flushes.apart, mayWait).Add(h)
	}
}

// endPause ends the run's pause, if it makes one, and puts it into a batcher.
func (s *Session) endPause(h *held) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.endPauseLocked() {
		_, mayWait := h.run.More(true)
		s.batcher(h.flushes.apart, mayWait).Add(h)
	}
}

// batcher returns the batcher for a run's next flush. While somebody has the row of its run locked, every flush with it
// takes as long as a wait for a lock may, so it is apart: it shares none with the runs that are not affected. A write
// that may wait for a stranger's transaction is flushed alone. See docs/architecture.md, Locks.
func (s *Session) batcher(apart, mayWait bool) *batch.Batcher[*held] {
	switch {
	case !apart || s.GivesUp():
		return s.writer
	case mayWait:
		return s.alone
	default:
		return s.retries
	}
}

// giveUp gives up writes that cannot be made, from now on. It ends all pauses, because writes that
// wait for a retry are given up, too.
func (s *Session) giveUp() {
	s.mu.Lock()
	s.GiveUp()
	all := slices.Collect(maps.Values(s.executing))
	s.mu.Unlock()
	for _, h := range all {
		s.endPause(h)
	}
}
