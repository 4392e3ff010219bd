package engine

import "github.com/kagzi/kagzi/internal/goroutine"

// settled is called once the execution has stopped, and its goroutines have ended or were waited for long enough. The
// watchdog goes on watching what is left behind.
func (s *Session) settled(e *execution, behind bool) {
	if behind {
		s.abandon(e)
	}
	e.makeEnd()
}

// released frees the slot of an execution whose last write is enqueued.
func (s *Session) released(e *execution) { s.release(e) }

func (s *Session) stepped() { s.tally.steps.Add(1) }

// ended is called when the execution's last write is written, or is given up. The session forgets the execution, and
// wakes the loops that wait for a slot or for the last execution.
func (s *Session) ended(e *execution) {
	s.loads.releaseMemory(e)
	s.mu.Lock()
	if s.executing[e.RunID] == e {
		delete(s.executing, e.RunID)
	}
	s.endSuspectLocked(e)
	s.keyFreedLocked(e.ClaimedRun)
	s.mu.Unlock()
	goroutine.Signal(s.freed)
}
