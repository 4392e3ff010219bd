package worker

import "time"

// mostWrites and mostBytes bound a transaction. A larger write gets one of its own.
const (
	mostWrites = 1000
	mostBytes  = 8 << 20
)

// turns is what the session knows of a run's flushes. The held's mutex guards it, but for taken.
type turns struct {
	taken    int         // how many writes are in a flush. Only that flush uses it.
	apart    bool        // the last one met a lock, or failed with this run alone: the next has no other runs
	failures int         // how many failed with this run alone, one after the other
	pausing  *time.Timer // ends the pause before the next; nil if there is none
}

// take takes the first writes for a flush, as many as fit beside what it has.
func (h *held) take(writes, bytes int) (int, int) {
	all, bytes := h.run.Take(writes, bytes, mostWrites, mostBytes)
	h.turns.taken = all - writes
	return all, bytes
}

// takeFewer leaves the second half of the taken writes to another flush. It returns false if only one write is taken.
func (h *held) takeFewer() bool {
	if h.turns.taken < 2 {
		return false
	}
	h.turns.taken /= 2
	h.run.Take(0, 0, h.turns.taken, mostBytes)
	return true
}

// flushed notes that a flush was answered. apart says that the next has no other runs. It reports whether flushes had
// failed with this run alone.
func (h *held) flushed(apart bool) (recovered bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	recovered = h.turns.failures > 0
	h.turns.apart, h.turns.failures = apart, 0
	return recovered
}

// failedAlone notes that a flush has failed with this run alone. It returns how many have before, one after the other.
func (h *held) failedAlone() (before int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	before = h.turns.failures
	h.turns.failures++
	h.turns.apart = true
	return before
}

// endPauseLocked ends the pause before the next flush, and reports whether there was one.
func (h *held) endPauseLocked() bool {
	if h.turns.pausing == nil {
		return false
	}
	h.turns.pausing.Stop()
	h.turns.pausing = nil
	return true
}
