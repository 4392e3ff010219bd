package topic

import (
	"errors"

	"github.com/kagzi/kagzi"
)

// StartOn starts one run of wf for each event of t, with the event's payload as its input and the event's ID as its
// [kagzi.ID]. Call it before [kagzi.Worker.Run], as [Consume]: it gives the worker the function of c, of which t must
// be a topic. The runs are [kagzi.Detached] children of c's, of which each starts up to 100.
//
// c starts a run for each event once, also if a worker dies meanwhile. If an active run has the event's ID already,
// c starts none. If a run cannot be started, or an event does not decode, c's run fails: see
// [ConsumerConfig].IgnoreFailure.
//
// opts are those of [kagzi.StartChild], but for an ID.
func StartOn[In, Out any](w *kagzi.Worker, c Consumer, t Topic[In], wf kagzi.Workflow[In, Out],
	opts ...kagzi.StartOption,
) {
	Consume(w, c, func(ctx kagzi.Context, _ struct{}) (struct{}, error) {
		events, err := Peek(ctx, "events", t, startedAtOnce)
		if err != nil {
			return struct{}{}, err
		}
		_, err = kagzi.Map(ctx, "start", events, func(ctx kagzi.Context, e Event[In]) (struct{}, error) {
			with := append(opts[:len(opts):len(opts)], e.ID, kagzi.Detached())
			_, err := kagzi.StartChild(ctx, "run", wf, e.Payload, with...)
			if errors.Is(err, kagzi.ErrIDConflict) {
				return struct{}{}, nil
			}
			return struct{}{}, err
		})
		if err != nil {
			return struct{}{}, err
		}
		return struct{}{}, Reserve(ctx, "started", events...)
	})
}

// startedAtOnce is how many runs one run of a consumer starts.
const startedAtOnce = 100
