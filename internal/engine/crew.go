package engine

import (
	"context"
	"slices"
	"time"
)

// An event is something that branches wait for. It may happen more than once.
type event struct {
	fired   int     // how often it happened
	calls   int     // how many of these were because the run may have been called, for a step that waits for a limit
	waiters []*wait // for the next time it happens
}

// A wait is a branch that waits until a time, for an event, or for either. See docs/architecture.md, Waits and
// suspension.
type wait struct {
	b        *Branch         // nil if the wait suspends the run at once
	ctx      context.Context // ends the wait: the branch's, or the execution's if anyway is set
	until    time.Time       // by the database's clock; zero: the wait is for an event alone
	why      string          // for people: what the run waits for. A wait for a branch alone does not show it.
	need     int             // how many further wake-ups of the run may end the wait; zero: none does
	child    bool            // the wake-ups are ends of children
	inMemory bool            // it does not last: the run is not suspended meanwhile
	parked   bool            // the branch waits until the run is no longer paused
	anyway   bool            // the branch waits although it is cancelled: see waitAnyway
	woken    chan struct{}   // closed by wakeLocked, which counts the branch busy again
}

// fireLocked notes that ev has happened, and wakes the branches that wait for it.
func (e *execution) fireLocked(ev *event) {
	ev.fired++
	for _, w := range ev.waiters {
		e.wakeLocked(w)
	}
	ev.waiters = nil
}

// wakeLocked ends the wait, unless it has ended, and counts its branch busy again.
func (e *execution) wakeLocked(w *wait) {
	i := slices.Index(e.waits, w)
	if i < 0 {
		return
	}
	e.waits = slices.Delete(e.waits, i, i+1)
	e.busy++
	close(w.woken)
}

// arrivalLocked returns the event of a message's name, or of a child's ID.
func (e *execution) arrivalLocked(of string) *event {
	if e.arrivals == nil {
		e.arrivals = map[string]*event{}
	}
	if e.arrivals[of] == nil {
		e.arrivals[of] = &event{}
	}
	return e.arrivals[of]
}

// earliestLocked returns the wait that ends first by its time. ok is false if none has a time.
func (e *execution) earliestLocked() (first *wait, ok bool) {
	for _, w := range e.waits {
		if !w.until.IsZero() && (first == nil || w.until.Before(first.until)) {
			first = w
		}
	}
	return first, first != nil
}

// needLocked returns how many further wake-ups of the run may end a wait, at the least; zero if none ends any.
func (e *execution) needLocked() (need int) {
	for _, w := range e.waits {
		if w.need > 0 && (need == 0 || w.need < need) {
			need = w.need
		}
	}
	return need
}

// endsSoonLocked reports whether one of the waits is about to end: by its time, or because its branch was cancelled and
// has not noticed yet.
func (e *execution) endsSoonLocked() bool {
	soon := e.now().Add(memoryWait)
	return slices.ContainsFunc(e.waits, func(w *wait) bool {
		return w.inMemory || w.ctx.Err() != nil || !w.until.IsZero() && !w.until.After(soon)
	})
}
