package topic

import (
	"context"
	"iter"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/core"
	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/store"
)

// Follow is [Events] that waits behind the last event for the next one, until ctx ends: the iteration then ends with
// its error. Events that this client publishes without a transaction come at once. For others Follow looks after
// pauses that grow to a second while there are none. A query that takes too long is repeated. If one fails, the
// iteration ends with an error: call Follow again, with the Position of the last event.
func Follow[T any](ctx context.Context, client *kagzi.Client, t Topic[T], after int64) iter.Seq2[Event[T], error] {
	c := client.Core()
	return func(yield func(Event[T], error) bool) {
		var p pauses
		for {
			next := published(c, t.name) // before the query, which may not see what comes now
			for e, err := range Events(ctx, client, t, after) {
				if e.Position == 0 && pg.Classify(err) == pg.ClassLate {
					break // the server may end the query just before ctx
				}
				if !yield(e, err) || err != nil && e.Position == 0 {
					return
				}
				after, p = e.Position, pauses{}
			}
			if err := p.wait(ctx, c, next); err != nil {
				yield(Event[T]{}, c.FailedIf(ctx, err, "follow %s", t.name))
				return
			}
		}
	}
}

// published returns a channel that is closed once the client has published an event of the topic; nil without a client.
func published(c *core.Client, topic string) <-chan struct{} {
	if c.Made() != nil {
		return nil
	}
	return c.Topics.Next(topic)
}

// pauses are those between the queries of a program that waits for events. They grow while there are none.
type pauses struct {
	last time.Duration
	n    int
}

const (
	firstPause   = 5 * time.Millisecond
	longestPause = time.Second

	// movedEvery is how many pauses there are for each question whether the namespace has left the database.
	movedEvery = 5
)

// wait returns after the next pause, or once published is closed, which may have been an event of the topic. It
// returns store.ErrMoved if the namespace has left the database, where no event comes any more.
func (p *pauses) wait(ctx context.Context, c *core.Client, published <-chan struct{}) error {
	if p.n++; p.n%movedEvery == 0 {
		if moved, err := c.Store.Moved(ctx); err == nil && moved {
			return store.ErrMoved
		}
	}
	p.last = min(max(firstPause, 2*p.last), longestPause)
	timer := time.NewTimer(p.last)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-published:
	case <-timer.C:
	}
	return nil
}
