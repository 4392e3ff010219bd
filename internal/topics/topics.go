package topics

import (
	"context"
	"errors"
	"fmt"
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
	store   *store.Store
	hints   *hints.Hints
	batcher *batch.Batcher[*publication]
	// until then events with IDs of the application are published apart, in microseconds since 1970. Set by publish.
	apart atomic.Int64
}

// New returns the Topics of a client. It starts nothing.
func New(s *store.Store, h *hints.Hints) *Topics {
	t := &Topics{store: s, hints: h}
	t.batcher = batch.New(batch.Config[*publication]{Flush: t.flush, MaxItems: mostTogether})
	return t
}

const (
	mostTogether = 1000
	mostBytes    = 8 << 20 // of the payloads; a larger one has a statement of its own

	// apartFor is how long events with IDs of the application are published apart after one had to wait for another
	// transaction: the others must not wait for it again and again.
	apartFor = time.Second
)

// A publication is one caller's event in the batcher. It is told whether the event is stored, as far as is known.
type publication struct {
	*batch.Shared[bool]
	event *store.NewEvent
}

// Publish is store.Topics.Publish.
func (t *Topics) Publish(ctx context.Context, tx pgx.Tx, events []*store.NewEvent) error {
	if tx == nil && len(events) == 1 && t.shares(events[0]) {
		if stored, err := t.together(ctx, events[0]); stored || err != nil {
			return err
		}
	}
	due, err := t.store.Topics.Publish(ctx, tx, events)
	if err != nil {
		return err
	}
	return t.hints.Due(ctx, tx, due...)
}

func (t *Topics) shares(e *store.NewEvent) bool {
	return !e.Named || time.Now().UnixMicro() >= t.apart.Load()
}

// together publishes the event together with those of other callers. If it is not stored, and there is no error, the
// caller publishes it by itself: that finds out why, and whether it was stored although the answer was lost.
func (t *Topics) together(ctx context.Context, e *store.NewEvent) (stored bool, err error) {
	p := &publication{batch.NewShared[bool](ctx), e}
	t.batcher.Add(p)
	stored, err = p.Wait()
	switch {
	case errors.Is(err, batch.ErrUnsent):
		return false, fmt.Errorf("nothing was published: %w", ctx.Err())
	case err != nil:
		return false, fmt.Errorf("%w, so the event may have been published: %w", err, context.DeadlineExceeded)
	}
	return stored, nil
}

// flush publishes the events of the batcher, in statements of mostBytes.
func (t *Topics) flush(all []*publication) {
	for len(all) > 0 {
		n, size := 0, 0
		for n < len(all) && (n == 0 || size+len(all[n].event.Payload) <= mostBytes) {
			size += len(all[n].event.Payload)
			n++
		}
		t.publish(all[:n])
		all = all[n:]
	}
}

// publish publishes the events with one statement. If that fails, each caller publishes its event by itself, as if
// there were no others.
func (t *Topics) publish(some []*publication) {
	due, err := t.store.Topics.PublishTogether(context.WithoutCancel(some[0].Context()),
		func() (events []*store.NewEvent) {
			for _, p := range some {
				if p.Send() {
					events = append(events, p.event)
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
			p.event.Named = true // the answer may have been lost
		}
		p.Tell(err == nil)
	}
}
