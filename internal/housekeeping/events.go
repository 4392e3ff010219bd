package housekeeping

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/store"
)

// Bounds of a pass: the events that it reads at once; and of one event the messages of a transaction, their bytes, and
// the transactions, so that an event for which many runs wait does not hold up the others.
const (
	mostAwaited   = 100
	mostTold      = 500
	mostToldBytes = 16 << 20
	mostPages     = 4
)

// The pauses before an event is sent again to runs that another transaction had locked, or whose messages the database
// refuses.
const (
	firstTellPause = 50 * time.Millisecond
	lastTellPause  = 5 * time.Second
)

// A telling is how far the runs that wait for an event are told of it.
type telling struct {
	behind store.EventWait // the last wait that was read
	held   bool            // some before it are not told
	pause  time.Duration   // the last pause because of such
	next   time.Time       // when it goes on; zero: at once
}

// awaitedEvents is the state of the loop that sends runs the events for which they wait.
type awaitedEvents struct {
	wake     chan struct{} // holds a value while the loop is to make a pass at once
	tellings map[store.Awaited]telling
}

// TellOfEvents sends the runs that wait for events which were published their messages. See store/doc_eventwaits.go.
func (k *Coordinator) TellOfEvents(ctx context.Context) (pause time.Duration, failed error) {
	pause, left := k.cfg.Interval, map[store.Awaited]telling{}
	for last := (store.Awaited{}); ; {
		events, err := k.cfg.Store.Topics.Awaited(ctx, last, mostAwaited)
		if err != nil {
			return pause, errors.Join(failed, err)
		}
		for _, e := range events {
			t := k.awaited.tellings[e]
			if !time.Now().Before(t.next) {
				done, err := k.tellOf(ctx, e, &t)
				if failed = errors.Join(failed, err); done { // an error holds up no other event
					continue
				}
			}
			left[e], pause = t, min(pause, max(0, time.Until(t.next)))
		}
		if len(events) < mostAwaited {
			k.awaited.tellings = left
			return pause, failed
		}
		last = events[len(events)-1]
	}
}

// tellOf sends the event to some of the runs that wait for it. done says that no run waits for it any more.
func (k *Coordinator) tellOf(ctx context.Context, a store.Awaited, t *telling) (done bool, failed error) {
	t.next = time.Time{}
	e, _, err := k.cfg.Store.Topics.Find(ctx, a.WaitedEvent, 0)
	for range mostPages {
		var waits []store.EventWait
		if err == nil && e != nil { // else it was removed
			most := max(1, min(mostTold, mostToldBytes/(1+len(e.Payload))))
			waits, err = k.cfg.Store.Topics.Waits(ctx, a.WaitedEvent, t.behind, most)
		}
		if len(waits) > 0 {
			err = k.tell(ctx, e, waits, t)
			if store.MayBeRowError(err) {
				failed, err = errors.Join(failed, err), nil
			}
			if t.behind = waits[len(waits)-1]; err == nil {
				continue
			}
		}
		if err == nil && !t.held {
			return true, errors.Join(failed, k.cfg.Store.Topics.Forget(ctx, a))
		}
		t.pause = min(max(firstTellPause, 2*t.pause), lastTellPause)
		t.behind, t.held, t.next = store.EventWait{}, false, time.Now().Add(t.pause)
		return false, errors.Join(failed, err)
	}
	return false, failed
}

// tell sends the event to the runs of the waits, and ends the waits of those that are told.
func (k *Coordinator) tell(ctx context.Context, e *store.Event, waits []store.EventWait, t *telling) error {
	messages := make([]store.Message, len(waits))
	for i := range waits {
		messages[i] = waits[i].Message(e)
	}
	sent, err := k.cfg.Store.Messages.SendAll(ctx, messages)
	_ = k.cfg.Hints.Signalled(ctx, nil, sent.Stored...) // fails only in a transaction
	held := map[uuid.UUID]bool{}
	for _, m := range sent.Held {
		held[m.RunID], t.held = true, true
	}
	var told []store.EventWait
	for _, w := range waits {
		if !held[w.RunID] {
			told = append(told, w)
		}
	}
	if len(told) == 0 {
		return err
	}
	return errors.Join(err, k.cfg.Store.Topics.Told(ctx, told))
}
