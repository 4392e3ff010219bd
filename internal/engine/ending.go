package engine

import "github.com/kagzi/kagzi/internal/goroutine"

// Released frees the slot of a run whose last write is enqueued.
func (h *held) Released() { h.s.release(h) }

// Ended is called when the run's last write is written, or is given up. The session forgets the run, and wakes the loops
// that wait for a slot or for the last run.
func (h *held) Ended() {
	s := h.s
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
