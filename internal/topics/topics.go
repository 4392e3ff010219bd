package topics

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/batch"
	"github.com/kagzi/kagzi/internal/hints"
	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/store"
)

// Topics are what one client publishes. They are safe for concurrent use.
type Topics struct {
	store  *store.Store
	hints  *hints.Hints
	shared *batch.Shared[*store.NewEvent, bool] // tells whether the event is stored, as far as is known
	waits  *batch.Shared[*store.EventWait, waited]
	// until then events with IDs of the application are published apart, in microseconds since 1970. Set by publish.
	apart atomic.Int64

	mu   sync.Mutex
	next map[string]chan struct{} // by topic: closed and removed once an event is published
}

// New returns the Topics of a client. It starts nothing.
func New(s *store.Store, h *hints.Hints) *Topics {
	t := &Topics{store: s, hints: h, next: map[string]chan struct{}{}}
	t.shared = batch.NewShared(batch.SharedConfig[*store.NewEvent, bool]{
		What: "the event", Done: "published", Send: t.publish,
		Size: func(e *store.NewEvent) int { return len(e.Payload) },
	})
	t.waits = batch.NewShared(batch.SharedConfig[*store.EventWait, waited]{
		What: "the wait", Done: "registered", Send: t.await,
		Size: func(w *store.EventWait) int { return len(w.Step) },
	})
	return t
}

// A waited is the answer to a wait.
type waited struct {
	store.Waited
	err error
}

// Await registers a wait for an event, and returns what there is of that: see store.Topics.Await. Waits that come at
// once share statements: a run may have thousands.
func (t *Topics) Await(ctx context.Context, w *store.EventWait) (e *store.Event, open int64, err error) {
	got, err := t.waits.Do(ctx, w)
	if err = cmp.Or(err, got.err); err != nil {
		return nil, 0, err
	}
	if got.Large {
		return t.store.Topics.Find(ctx, w.WaitedEvent, 0)
	}
	return got.Event, got.Open, nil
}

// await registers the waits. If that fails, each is registered by itself, as if there were no others.
func (t *Topics) await(some []*batch.Part[*store.EventWait, waited]) {
	ctx := context.WithoutCancel(some[0].Context())
	var sent []*batch.Part[*store.EventWait, waited]
	var waits []*store.EventWait
	for _, p := range some {
		if p.Send() {
			sent, waits = append(sent, p), append(waits, p.Item)
		}
	}
	if len(sent) == 0 {
		return
	}
	out, err := t.store.Topics.Await(ctx, waits)
	for i, p := range sent {
		switch {
		case err == nil:
			p.Tell(waited{out[i], nil})
		case len(sent) == 1:
			p.Tell(waited{err: err})
		default:
			t.await(sent[i : i+1])
		}
	}
}

// apartFor is how long events with IDs of the application are published apart after one had to wait for another
// transaction: the others must not wait for it again and again.
const apartFor = time.Second

// Publish is store.Topics.Publish.
func (t *Topics) Publish(ctx context.Context, tx pgx.Tx, events []*store.NewEvent) error {
	if tx == nil && len(events) == 1 && t.shares(events[0]) {
		// if it is not stored, Publish finds out why, and whether it was stored although the answer was lost
		if stored, err := t.shared.Do(ctx, events[0]); stored || err != nil {
			t.published(events[0])
			return err
		}
	}
	due, err := t.store.Topics.Publish(ctx, tx, events)
	if err != nil {
		return err
	}
	if tx == nil {
		t.published(events...)
	}
	return t.hints.Due(ctx, tx, due...)
}

// Next returns a channel that is closed once this client has published an event of the topic, other than in a
// transaction of the application.
func (t *Topics) Next(topic string) <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	next := t.next[topic]
	if next == nil {
		next = make(chan struct{})
		t.next[topic] = next
	}
	return next
}

// published wakes those who wait for an event of these topics.
func (t *Topics) published(events ...*store.NewEvent) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range events {
		if next := t.next[e.Topic]; next != nil {
			close(next)
			delete(t.next, e.Topic)
		}
	}
}

func (t *Topics) shares(e *store.NewEvent) bool {
	return !e.Named || time.Now().UnixMicro() >= t.apart.Load()
}

// publish publishes the events with one statement. If that fails, each caller publishes its event by itself, as if
// there were no others.
func (t *Topics) publish(some []*batch.Part[*store.NewEvent, bool]) {
	due, err := t.store.Topics.PublishTogether(context.WithoutCancel(some[0].Context()),
		func() (events []*store.NewEvent) {
			for _, p := range some {
				if p.Send() {
					events = append(events, p.Item)
				}
			}
			return events
		})
	_ = t.hints.Due(context.WithoutCancel(some[0].Context()), nil, due...) // fails only in a transaction
	if pg.Locked(err) {
		t.apart.Store(time.Now().Add(apartFor).UnixMicro())
	}
	for _, p := range some {
		if err != nil {
			p.Item.Named = true // the answer may have been lost
		}
		p.Tell(err == nil)
	}
}
