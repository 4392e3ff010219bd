package replay

import "time"

// An asking is the part of a wait for an answer that no other wait has: see SignalSpec.Ask.
type asking struct {
	next  time.Time // when Ask is called next; zero: at once
	stays time.Time // until then the run stays in memory: most answers come soon
}

// The pauses between two calls of Ask grow with the time that the branch has waited.
const (
	shortestAsk = 5 * time.Second
	longestAsk  = time.Hour
)

// ask calls Ask until it succeeds, and decides when that is to be called again.
func (w *signalWait) ask() error {
	b, e := w.b, w.e
	if b.hasLost() {
		return errBranchCancelled
	}
	if err := w.untilDone(func(failures int) error {
		return w.spec.Ask(b.context(), b.keyOf(w.id), failures)
	}); err != nil {
		return err
	}
	now := e.Now()
	w.asks.next = now.Add(min(max(now.Sub(b.Now()), shortestAsk), longestAsk))
	w.asks.stays = now.Add(memoryWait / 2)
	return nil
}

// wakes returns when the wait goes on if no message comes; the zero time: never.
func (w *signalWait) wakes() time.Time {
	at := w.until
	if w.spec.Ask == nil {
		return at
	}
	next := w.asks.next
	if w.e.Now().Before(w.asks.stays) {
		next = w.asks.stays
	}
	if at.IsZero() || next.Before(at) {
		return next
	}
	return at
}
