package housekeeping

import (
	"cmp"
	"context"
	"time"

	"github.com/kagzi/kagzi/store"
)

// Bounds of one pass: the events, and the messages of one transaction.
const (
	mostAwaited = 100
	mostTold    = 500

	mostToldBytes = 16 << 20
)

// TellOfEvents sends the runs that wait for events which were published their messages. See store/doc_eventwaits.go.
func (k *Coordinator) TellOfEvents(ctx context.Context) (time.Duration, error) {
	events, err := k.cfg.Store.Topics.Awaited(ctx, mostAwaited)
	if err != nil || len(events) == 0 {
		return k.cfg.Interval, err
	}
	var told []store.Awaited
	var failed error
	for _, e := range events {
		all, err := k.tellOf(ctx, e.WaitedEvent)
		if err != nil {
			failed = err // it holds up no other event
		} else if all {
			told = append(told, e)
		}
	}
	if err := k.cfg.Store.Topics.Told(ctx, told); err != nil {
		return k.cfg.Interval, err
	}
	if len(told) == mostAwaited {
		return 0, failed
	}
	return k.cfg.Interval, failed
}

// tellOf sends the event to the runs that wait for it. It reports whether all have their messages, or are over: a run
// that another transaction has locked gets its message in a later pass.
func (k *Coordinator) tellOf(ctx context.Context, of store.WaitedEvent) (all bool, err error) {
	e, _, err := k.cfg.Store.Topics.Find(ctx, of, 0)
	if err != nil || e == nil { // it was removed
		return e == nil, err
	}
	most := max(1, min(mostTold, mostToldBytes/(1+len(e.Payload))))
	var refused error
	all = true
	for last := (*store.EventWait)(nil); ; {
		waits, err := k.cfg.Store.Topics.Waits(ctx, of, last, most)
		if err != nil || len(waits) == 0 {
			return all, cmp.Or(err, refused)
		}
		last = &waits[len(waits)-1]
		messages := make([]store.Message, len(waits))
		for i := range waits {
			messages[i] = waits[i].Message(e)
		}
		stored, left, err := k.cfg.Store.Messages.SendAll(ctx, messages)
		_ = k.cfg.Hints.Signalled(ctx, nil, stored...) // fails only in a transaction
		switch {
		case err != nil && left == 0:
			return false, err
		case left > 0:
			all, refused = false, cmp.Or(err, refused)
		}
	}
}
