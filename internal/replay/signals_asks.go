package replay

import (
	"time"

	"github.com/kagzi/kagzi/store"
)

// An asking is the part of a wait with Ask that no other wait has: see SignalSpec.Ask.
type asking struct {
	next  time.Time // when Ask is called next; zero: at once
	stays time.Time // until then the run stays in memory, because the message may come soon
	soon  int       // how often in a row Ask has returned soon

	expires time.Time // when the question has expired; zero: never, or it should have
}

// mostSoon is how often Ask is called in the same execution because it returns soon.
const mostSoon = 10

// expiryDelay is how much later than the wait began its question may be stored, whose time to be read begins then.
const expiryDelay = time.Second

// again returns the pause before the next call of Ask, once the branch has waited about so long. The pauses grow with
// that time, up to an hour for an answer, and up to a day for an event: runs may wait for events for months, a million
// of them at once, and hardly anything loses their messages.
func (a *asking) again(kind string, waited time.Duration) time.Duration {
	switch {
	case a.soon > mostSoon:
		return min(max(waited, time.Second), 10*time.Second)
	case a.soon > 0:
		return memoryWait / 2
	case kind == store.KindEvent:
		return min(max(waited, time.Hour), 24*time.Hour)
	}
	return min(max(waited, 5*time.Second), time.Hour)
}

// ask calls Ask until it succeeds, and decides when that is to be called again. The question may follow from results of
// the run.
func (w *signalWait) ask() error {
	b, e := w.b, w.e
	if b.hasLost() {
		return errBranchCancelled
	}
	if err := b.awaitResults(); err != nil {
		return err
	}
	var soon bool
	if err := w.untilDone(func(failures int) (err error) {
		soon, err = w.spec.Ask(b.context(), b.keyOf(w.id), failures)
		return err
	}); err != nil {
		return err
	}
	w.asks.soon++
	if !soon {
		w.asks.soon = 0
	}
	now := e.Now()
	waited := now.Sub(b.Now())
	pause := w.asks.again(w.spec.Kind, waited)
	w.asks.expires = time.Time{}
	if left := w.spec.Within - waited; left > 0 {
		w.asks.expires = now.Add(left + expiryDelay)
		pause = min(pause, left+expiryDelay)
	}
	w.asks.next = now.Add(pause)
	w.asks.stays = now
	if soon || w.spec.Kind == store.KindAsk { // most answers come soon
		w.asks.stays = now.Add(memoryWait / 2)
	}
	return nil
}

// ends returns when the wait ends if no message comes; the zero time: never, as far as it knows.
func (w *signalWait) ends() time.Time {
	at := w.until
	if x := w.asks.expires; at.IsZero() || !x.IsZero() && x.Before(at) {
		return x
	}
	return at
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
