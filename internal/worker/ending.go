package worker

import "github.com/kagzi/kagzi/internal/goroutine"

// released frees the slot of a run whose last write is enqueued.
func (s *Session) released(h *held) { s.release(h) }

// stepped counts the ends of steps.
func (s *Session) stepped(steps int) { s.tally.steps.Add(int64(steps)) }

// ended is called when the run's last write is written, or is given up. The session forgets the run, and wakes the
// loops that wait for a slot or for the last run.
func (s *Session) ended(h *held) {
	s.loads.releaseMemory(h)
	s.mu.Lock()
	if s.executing[h.RunID] == h {
		delete(s.executing, h.RunID)
	}
	s.endSuspectLocked(h)
	s.keyFreedLocked(h.ClaimedRun)
	s.mu.Unlock()
	goroutine.Signal(s.freed)
}
