package worker

import (
	"time"

	"github.com/kagzi/kagzi/internal/goroutine"
	"github.com/kagzi/kagzi/store"
)

// enqueued lets the run's writes be flushed.
func (s *Session) enqueued(h *held) { s.writes.add(h) }

// released frees the slot of a run whose last write is enqueued.
func (s *Session) released(h *held) { s.release(h) }

// stepped counts the ends of steps.
func (s *Session) stepped(steps int) { s.tally.steps.Add(int64(steps)) }

// ended is called when the run's last write is written, or is given up. The session forgets the run, and wakes the
// loops that wait for a slot or for the last run.
func (s *Session) ended(h *held) {
	s.loads.releaseMemory(h)
	s.lock()
	if s.executing[h.RunID] == h {
		delete(s.executing, h.RunID)
	}
	s.endSuspectLocked(h)
	s.keyFreedLocked(h.ClaimedRun)
	s.unlock()
	goroutine.Signal(s.freed)
}

// aboutNow is how soon a run must be due to be announced at once.
const aboutNow = 200 * time.Millisecond

// suspended wakes the claim loop if the run becomes due before the next claim. It reports whether others should be
// notified, too: because the run is due about now (the estimate of the database's clock lags, so a run that is due may
// seem not to be), or because this worker will not be there when it is.
func (s *Session) suspended(queue string, p *store.Suspension) (announce bool) {
	if p.AvailableAt.IsZero() {
		return false
	}
	left := p.AvailableAt.Sub(s.Now())
	due := time.Now().Add(left)
	s.lock()
	defer s.unlock()
	return s.draining || !s.suspendedLocked(queue, due) || left <= aboutNow
}
