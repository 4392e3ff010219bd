package topic

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/core"
	"github.com/kagzi/kagzi/internal/text"
	"github.com/kagzi/kagzi/store"
)

// A Batch says when a batch of [ConsumeBatch] is complete.
type Batch struct {
	Most int // how many events it has at most, from 1 to 10,000
	// Within is how long its oldest event waits for others, if there are fewer than Most. Zero means not at all.
	Within time.Duration
}

// batchLooks is how often a run looks for more events before its batch is complete.
const batchLooks = 8

// ConsumeBatch gives the worker a function for batches of the events of t, the oldest first: one run for each batch.
// Call it before the worker starts, as [Consume]. t is the only topic of c.
//
// The events are consumed when the run completes. If fn returns an error, the run fails, and the consumer is paused, as
// every consumer. The next run gets the same events.
//
// A batch ends before an event that does not decode. A run that begins with one fails. See docs/consumers.md.
func ConsumeBatch[T any](w *kagzi.Worker, c Consumer, t Topic[T], b Batch, fn func(kagzi.Context, []Event[T]) error,
	opts ...kagzi.HandleOption,
) {
	var run func(kagzi.Context, struct{}) (struct{}, error)
	if fn != nil {
		run = func(ctx kagzi.Context, none struct{}) (struct{}, error) {
			events, short, err := nextBatch(ctx, t, b)
			if err == nil && len(events) > 0 {
				err = fn(ctx, events)
			}
			if err == nil && short {
				err = WakeAt(ctx, ctx.Now()) // no event announces the one that does not decode
			}
			if err != nil || len(events) == 0 {
				return none, err
			}
			return none, Reserve(ctx, "consumed", events...)
		}
	}
	with := append(opts[:len(opts):len(opts)], batches{consumes{c}, t.name, b})
	kagzi.Handle(w, kagzi.Define[struct{}, struct{}](c.name), run, with...)
}

// nextBatch waits until the batch is complete, and returns its events. short says that it ends before an event that
// does not decode.
func nextBatch[T any](ctx kagzi.Context, t Topic[T], b Batch) (events []Event[T], short bool, err error) {
	for {
		var more bool
		events, more, err = peek(ctx, "events", t, b.Most)
		if err != nil && len(events) > 1 {
			return events[:len(events)-1], true, nil
		}
		if err != nil || len(events) == 0 || len(events) == b.Most || more {
			return events, false, err
		}
		late := events[0].PublishedAt.Add(b.Within)
		left := late.Sub(ctx.Now())
		if left <= 0 {
			return events, false, nil
		}
		if err := kagzi.Sleep(ctx, "wait", min(left, max(b.Within/batchLooks, time.Second))); err != nil {
			return nil, false, err
		}
	}
}

// batches makes a handler that of a consumer of batches.
type batches struct {
	consumes
	topic string
	Batch
}

func (o batches) Handle(c *core.HandleConfig) {
	c.Consumer = func(queues []string) (*store.Consumer, error) {
		row, err := o.stored(queues)
		if err == nil && !slices.Equal(row.Topics, []string{o.topic}) {
			err = fmt.Errorf("kagzi: ConsumeBatch is for topic %s, and consumer %s has the topics %q: give it that "+
				"one alone", text.Quote(o.topic), text.Quote(row.Name), row.Topics)
		}
		if o.Most < 1 || o.Most > mostPeeked {
			err = errors.Join(err, fmt.Errorf("kagzi: Batch.Most is %d: give between 1 and 10,000", o.Most))
		}
		if o.Within < 0 {
			err = errors.Join(err, fmt.Errorf("kagzi: Batch.Within is %v: give a positive time, or 0", o.Within))
		}
		return row, err
	}
}
