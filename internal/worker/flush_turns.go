package worker

import (
	"sync"
	"time"
)

// mostWrites and mostBytes bound a transaction. A larger write gets one of its own.
const (
	mostWrites = 1000
	mostBytes  = 8 << 20
)

// turns is what the session knows of a run's flushes.
type turns struct {
	flusher *flusher // makes the run's writes

	taken int // how many writes are in a flush. Only that flush uses it.

	turning  sync.Mutex  // guards the fields below. It is locked before the run's mutex.
	apart    bool        // the last one met a lock, or failed with this run alone: the next has no other runs
	failures int         // how many failed with this run alone, one after the other
	pausing  *time.Timer // ends the pause before the next; nil if there is none
}

// Enqueued puts the run, whose outbox has got its first write, into a batcher.
func (h *held) Enqueued() { h.flusher.writer.Add(h) }

// Stepped counts the ends of steps.
func (h *held) Stepped(steps int) { h.flusher.tally.stepped(steps) }

// take takes the first writes for a flush, as many as fit beside what it has.
func (h *held) take(writes, bytes int) (int, int) {
	all, bytes := h.Take(writes, bytes, mostWrites, mostBytes)
	h.taken = all - writes
	return all, bytes
}

// takeFewer leaves the second half of the taken writes to another flush. It returns false if only one write is taken.
func (h *held) takeFewer() bool {
	if h.taken < 2 {
		return false
	}
	h.taken /= 2
	h.Take(0, 0, h.taken, mostBytes)
	return true
}

// flushed notes that a flush was answered. apart says that the next has no other runs. It reports whether flushes had
// failed with this run alone.
func (h *held) flushed(apart bool) (recovered bool) {
	h.turning.Lock()
	defer h.turning.Unlock()
	recovered = h.failures > 0
	h.apart, h.failures = apart, 0
	return recovered
}

// failedAlone notes that a flush has failed with this run alone. It returns how many have before, one after the other.
func (h *held) failedAlone() (before int) {
	h.turning.Lock()
	defer h.turning.Unlock()
	before = h.failures
	h.failures++
	h.apart = true
	return before
}

// endPauseLocked ends the pause before the next flush, and reports whether there was one.
func (h *held) endPauseLocked() bool {
	if h.pausing == nil {
		return false
	}
	h.pausing.Stop()
	h.pausing = nil
	return true
}
