package hints

import (
	"sync"
	"time"
)

// waiting is the name in place of a queue's by which a process says that it waits. No queue has it.
const waiting = "\x01waiting"

const (
	// sayEvery is how often it is said that a process waits, while one does.
	sayEvery = time.Second

	// saidFor is for how long the others go by that. One such notification may be lost, and another late.
	saidFor = 3 * sayEvery

	// unsaidFor is for how long a process that has connected goes by what it may have missed.
	unsaidFor = sayEvery + sayEvery/2
)

// A demand knows whether other processes may wait for ends of runs, answers or values. A notification wakes every
// process that listens, so these are announced only while a process waits.
type demand struct {
	mu    sync.Mutex
	said  time.Time // when this process or another last said that it waits
	until time.Time // from when on no process waits, as far as this one has heard
}

// hear notes that a process has said that it waits.
func (d *demand) hear() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.said = time.Now()
	d.until = d.said.Add(saidFor)
}

// connected notes that a process may have said that it waits, unheard.
func (d *demand) connected() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.until = later(d.until, time.Now().Add(unsaidFor))
}

// lately reports whether a process waits, as far as this one has heard.
func (d *demand) lately() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return time.Now().Before(d.until)
}

// says reports whether it is time to say that this process waits, and notes that it does. Processes that wait at the
// same time need not all say so.
func (d *demand) says() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	if !d.said.IsZero() && now.Sub(d.said) < sayEvery {
		return false
	}
	d.said = now
	return true
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
