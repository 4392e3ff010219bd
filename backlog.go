package kagzi

import (
	"cmp"
	"slices"
	"time"

	"github.com/kagzi/kagzi/store"
)

// busyPause is how long a write waits that met somebody else's lock.
const busyPause = 100 * time.Millisecond

// A backlog is what an execution cannot write at once: an item that met somebody else's lock, and all that was submitted
// since. It is written in its order, because what comes later may follow from what came before, also where nobody waited
// for that to be written, as for the start of a child. The execution's mutex guards it.
type backlog struct {
	items   []*item // in order of their places
	places  int     // given so far
	trying  int     // more items, which are being written
	pausing bool    // it is not tried before a pause is over
}

// lineUp puts an item into its place, the last one if it never had one.
func (l *backlog) lineUp(it *item) {
	if it.place == 0 {
		l.places++
		it.place = l.places
	} else {
		l.trying--
	}
	i, _ := slices.BinarySearchFunc(l.items, it, func(a, b *item) int { return cmp.Compare(a.place, b.place) })
	l.items = slices.Insert(l.items, i, it)
}

// overtakes reports whether an item would be written before another that was submitted earlier.
func (l *backlog) overtakes(it *item) bool {
	if it.place == 0 {
		return len(l.items) > 0 || l.trying > 0
	}
	return len(l.items) > 0 && l.items[0].place < it.place
}

// withoutBacklog returns the items that may be written now. The others join the backlogs of their executions.
func withoutBacklog(items []*item) []*item {
	kept := items[:0:0]
	for _, it := range items {
		e := it.e
		e.mu.Lock()
		wait := e.backlog.overtakes(it)
		if wait {
			e.backlog.lineUp(it)
		}
		e.mu.Unlock()
		if wait {
			e.writeBacklog() // it may be the last of those that were tried, and the pause be over
		} else {
			kept = append(kept, it)
		}
	}
	return kept
}

// putOff lets an item that was found busy come again after a pause.
func (e *execution) putOff(it *item) { e.putOffFor(it, busyPause) }

// putOffFor lets an item come again after a pause, or after the one that the backlog makes already.
func (e *execution) putOffFor(it *item, pause time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.backlog.lineUp(it)
	if e.backlog.pausing {
		return
	}
	e.backlog.pausing = true
	time.AfterFunc(pause, e.endPause)
}

// endPause lets the backlog be written again.
func (e *execution) endPause() {
	e.mu.Lock()
	e.backlog.pausing = false
	e.mu.Unlock()
	e.writeBacklog()
}

// overcome notes that an item needs no other write. The last of the backlog makes way for what has joined it since.
func (e *execution) overcome(it *item) {
	if it.place == 0 {
		return
	}
	e.mu.Lock()
	e.backlog.trying--
	e.mu.Unlock()
	e.writeBacklog()
}

// writeBacklog submits the backlog, unless a part of it is being written, or it pauses.
func (e *execution) writeBacklog() {
	e.mu.Lock()
	l := &e.backlog
	if l.trying > 0 || l.pausing {
		e.mu.Unlock()
		return
	}
	items := l.items
	l.items, l.trying = nil, len(items)
	e.mu.Unlock()
	if slices.ContainsFunc(items, (*item).mayWait) { // with what follows them, which must not be written before
		e.s.apart.Add(items)
		return
	}
	for _, it := range items {
		e.s.patient.Add(it)
	}
}

// mayWait reports whether to write the item may wait for a stranger's transaction.
func (it *item) mayWait() bool { return slices.ContainsFunc(it.records, (*store.Record).MayWait) }
