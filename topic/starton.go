package topic

import (
	"fmt"
	"slices"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/core"
	"github.com/kagzi/kagzi/internal/text"
	"github.com/kagzi/kagzi/internal/valid"
	"github.com/kagzi/kagzi/store"
)

// StartOn starts one run of wf for each event of t, with the event's payload as its input. Call it before
// [kagzi.Worker.Run], as [Consume]: it gives the worker the function of c, whose only topic is t. A worker needs wf's
// handler, too.
//
// The [kagzi.ID] of a run is the consumer's name, a slash, and the event's ID: "shipper/order-7". The runs are
// [kagzi.Detached] children. No event is left out or has two runs, also if a worker dies.
//
// An event for which no run can be started, such as one that does not decode, is left to c's next run, after
// [ConsumerConfig].LeastWake. A run of c that starts none fails. See docs/consumers.md.
//
// opts are those of [kagzi.StartChild], except an ID.
func StartOn[In, Out any](w *kagzi.Worker, c Consumer, t Topic[In], wf kagzi.Workflow[In, Out],
	opts ...kagzi.StartOption,
) {
	start := func(ctx kagzi.Context, _ struct{}) (struct{}, error) {
		events, failed := Peek(ctx, "events", t, startedAtOnce)
		if failed != nil && len(events) > 0 { // the last one does not decode
			events = events[:len(events)-1]
		}
		errs, err := kagzi.Map(ctx, "start", events, func(ctx kagzi.Context, e Event[In]) (string, error) {
			id := c.name + "/" + string(e.ID)
			if err := valid.NewID(id); err != nil { // a wrong call would fail the consumer's run
				return err.Error(), nil
			}
			with := append(opts[:len(opts):len(opts)], kagzi.ID(id), kagzi.Detached())
			if _, err := kagzi.StartChild(ctx, "run", wf, e.Payload, with...); err != nil {
				return err.Error(), ctx.Err()
			}
			return "", nil
		})
		if err != nil {
			return struct{}{}, err
		}
		var started []Event[In]
		for i, e := range events {
			if errs[i] == "" {
				started = append(started, e)
			} else if failed == nil {
				failed = fmt.Errorf("start a run for event %s: %s", text.Quote(string(e.ID)), errs[i])
			}
		}
		if len(started) == 0 {
			return struct{}{}, failed
		}
		// The run completes, so that none of these events gets another run. What has failed is left for the next one.
		if failed != nil {
			if err := WakeAt(ctx, ctx.Now()); err != nil {
				return struct{}{}, err
			}
		}
		return struct{}{}, Reserve(ctx, "started", started...)
	}
	var none In
	given := wf.With(none, opts...).Core().Text != wf.With(none).Core().Text
	kagzi.Handle(w, kagzi.Define[struct{}, struct{}](c.name), start, startsOn{consumes{c}, t.name, given})
}

// startsOn makes a handler that of a consumer which starts runs for the events of one topic.
type startsOn struct {
	consumes
	topic string
	id    bool // the options have an ID
}

func (o startsOn) Handle(c *core.HandleConfig) {
	c.Consumer = func(queues []string) (*store.Consumer, error) {
		row, err := o.stored(queues)
		if err == nil && !slices.Equal(row.Topics, []string{o.topic}) {
			err = fmt.Errorf("kagzi: StartOn is for topic %s, and consumer %s has the topics %q: give it that one "+
				"alone", text.Quote(o.topic), text.Quote(row.Name), row.Topics)
		}
		if err == nil && o.id {
			err = fmt.Errorf("kagzi: StartOn of consumer %s takes no ID: each run has the one of its event",
				text.Quote(row.Name))
		}
		return row, err
	}
}

// startedAtOnce is how many runs one run of a consumer starts.
const startedAtOnce = 100
