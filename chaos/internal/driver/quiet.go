package driver

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/chaos/internal/evidence"
	"github.com/kagzi/kagzi/chaos/internal/load"
	"github.com/kagzi/kagzi/topic"
)

// whisper publishes two events in each quiet topic, at some moment within d. In every other topic, the transaction of
// the first event stays open until the second one has been published, or for longer: its position is lower, and it is
// committed later.
func (c *customers) whisper(ctx context.Context, d time.Duration) {
	var all sync.WaitGroup
	defer all.Wait()
	for i, q := range load.Quiets {
		if i%c.of != c.number {
			continue
		}
		r := rand.New(rand.NewPCG(c.seed, uint64(i)))
		at, gap := time.Duration(r.Int64N(int64(d))), time.Duration(r.IntN(500))*time.Millisecond
		all.Go(func() {
			if !sleep(ctx, at) {
				return
			}
			var first sync.WaitGroup
			defer first.Wait()
			if i%2 == 0 {
				c.quietly(ctx, q, "first", 0)
			} else {
				first.Go(func() { c.quietly(ctx, q, "first", gap+time.Duration(r.IntN(1000))*time.Millisecond) })
			}
			if sleep(ctx, gap) {
				c.quietly(ctx, q, "second", 0)
			}
		})
	}
}

// quietly is publish for a quiet topic.
func (c *customers) quietly(ctx context.Context, q load.Quiet, what string, open time.Duration) {
	c.publish(ctx, 0, q.Topic, fmt.Sprintf("%s of %s", what, q.Topic.Name()), what, open)
}

// publish publishes an event until that has succeeded, and reports whether it has. Its transaction stays open for a
// while; zero: it has none.
func (c *customers) publish(ctx context.Context, number int, t topic.Topic[string], id, payload string,
	open time.Duration,
) bool {
	call := evidence.Call{Client: number, Verb: "publish", Name: t.Name(), Message: id}
	e := t.With(payload).WithID(kagzi.ID(id))
	return c.insist(ctx, call, func(ctx context.Context) error {
		at := c.routes.Of(c.namespace)
		if open == 0 {
			return topic.New(c.clients[at]).Publish(ctx, e)
		}
		return pgx.BeginFunc(ctx, c.pools[at], func(tx pgx.Tx) error {
			if err := topic.New(c.clients[at]).Publish(ctx, e, kagzi.InTx(tx)); err != nil {
				return err
			}
			sleep(ctx, open)
			return nil
		})
	}).Outcome == evidence.OK
}
