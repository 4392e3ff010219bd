package driver

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/chaos/internal/evidence"
	"github.com/kagzi/kagzi/chaos/internal/load"
	"github.com/kagzi/kagzi/topic"
)

// tell publishes the events for which the runs of a job wait, whether its start is acknowledged or not. It publishes
// some of them twice. For others it waits, as a program does.
func (c *customers) tell(ctx context.Context, number int, job load.Job) {
	var all sync.WaitGroup
	defer all.Wait()
	for _, p := range load.NewsOf(job) {
		published := make(chan struct{})
		if p.Awaited {
			all.Go(func() {
				for !c.awaitEvent(ctx, number, p.ID) && !closed(published) && sleep(ctx, 50*time.Millisecond) {
				}
			})
		}
		all.Go(func() {
			defer close(published)
			if !sleep(ctx, p.After) || !c.publish(ctx, number, load.News, p.ID, p.Payload, p.Open) {
				return
			}
			again := "too late"
			if c.forgetful { // the server may have lost the first one
				again = p.Payload
			}
			if p.Again > 0 && sleep(ctx, p.Again) {
				c.publish(ctx, number, load.News, p.ID, again, 0)
			}
		})
	}
}

// awaitEvent waits for an event as long as a customer waits for any answer, and reports whether it came.
func (c *customers) awaitEvent(ctx context.Context, number int, id string) bool {
	call := evidence.Call{Client: number, Verb: "await", Name: load.News.Name(), Message: id}
	return c.call(ctx, &call, func(ctx context.Context) error {
		e, err := topic.Await(ctx, c.client(), load.News, kagzi.ID(id))
		call.Output = e.Payload
		return err
	}) == evidence.OK
}

// tellAgain publishes the events again, every second until ctx ends, for which runs wait and which are gone after they
// were published: a failover has lost them, or they are so old that they were removed.
func (c *customers) tellAgain(ctx context.Context, pool *pgxpool.Pool) {
	for sleep(ctx, time.Second) {
		// CollectRows returns its error
		rows, _ := pool.Query(ctx, `SELECT DISTINCT w.event_id FROM kagzi.event_waits w WHERE w.topic = $1
			AND NOT EXISTS (SELECT FROM kagzi.events e WHERE e.topic = w.topic AND e.event_id = w.event_id)`,
			load.News.Name())
		gone, _ := pgx.CollectRows(rows, pgx.RowTo[string]) // the next look comes soon
		for _, id := range gone {
			if c.published(load.News.Name(), id) {
				c.publish(ctx, 0, load.News, id, load.NewsPayload(id), 0)
			}
		}
	}
}

// published reports whether a customer was told that an event is published.
func (c *customers) published(topic, id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.ContainsFunc(c.calls, func(call evidence.Call) bool {
		return call.Verb == "publish" && call.Outcome == evidence.OK && call.Name == topic && call.Message == id
	})
}
