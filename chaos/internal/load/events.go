package load

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/chaos/internal/evidence"
	"github.com/kagzi/kagzi/internal/testhook"
	"github.com/kagzi/kagzi/topic"
)

// A Quiet is a topic that gets two events in a round, shortly one after the other, with a consumer of its own. On a
// busy topic the next event wakes a consumer that has overlooked one; here there is no next event.
type Quiet struct {
	Topic    topic.Topic[string]
	Consumer topic.Consumer
}

// Quiets are all of them.
var Quiets = quiets(4)

// quietWork is how long the run of a quiet topic's consumer works after it has looked: the second event often comes
// meanwhile.
const quietWork = 200 * time.Millisecond

func quiets(n int) (all []Quiet) {
	for i := range n {
		t := topic.Define[string](fmt.Sprint("quiet ", i))
		all = append(all, Quiet{t, topic.DefineConsumer(fmt.Sprint("listener ", i), topic.ConsumerConfig{
			Topics: []topic.AnyTopic{t}, Queue: "plain", LeastWake: 200 * time.Millisecond, IgnoreFailure: true,
			RetryPolicy: kagzi.RetryPolicy{MaxAttempts: 10, Backoff: 20 * time.Millisecond},
		})})
	}
	return all
}

// reads returns the function of a consumer, which works for a while on the events that it has seen.
func (h *Handler) reads(about topic.Topic[string], work time.Duration) func(kagzi.Context, Read) (Read, error) {
	return func(ctx kagzi.Context, last Read) (Read, error) {
		events, err := topic.Peek(ctx, "new", about, 100)
		if err = cmp.Or(err, topic.Reserve(ctx, "all", events...)); err != nil {
			return last, err
		}
		x := execution{Handler: h}
		lease, run := ctx.(testhook.Branch).Lease(), ctx.RunID()
		for _, e := range events {
			last = Read{last.Count + 1, Link(last.Chain, string(e.ID))}
		}
		return last, kagzi.Do(ctx, "write", func(ctx context.Context) error {
			end := x.begin(ctx, lease)
			x.Reach("during step")
			if err := pause(ctx, int(work.Milliseconds())); err != nil {
				end(evidence.Fail, err.Error())
				return err
			}
			for _, e := range events {
				h.Ledger.Write(evidence.Line{
					Event: evidence.Consume, Run: string(run), Lease: lease.String(),
					Detail: string(e.ID),
				})
			}
			end(evidence.End, "")
			return nil
		}, again)
	}
}

// told is the payload of the event that an operation of a run publishes. No other operation has it.
func told(run, op string) string { return run + " " + op }

// Published returns the run and the operation that have published an event. It returns false for an event of another
// topic.
func Published(e evidence.Event) (run, op string, ok bool) {
	var text string
	if e.Topic != Told.Name() || json.Unmarshal([]byte(e.Payload), &text) != nil {
		return "", "", false
	}
	return strings.Cut(text, " ")
}
