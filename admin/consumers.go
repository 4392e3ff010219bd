package admin

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/core"
	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/payloads"
	"github.com/kagzi/kagzi/internal/text"
	"github.com/kagzi/kagzi/internal/valid"
	"github.com/kagzi/kagzi/topic"
)

// Consumers has the verbs for the consumers of topics: admin.New(client).Consumers.
type Consumers struct{ core *core.Client }

// ConsumerInfo is a consumer, and what there is for it. Its JSON follows the rules of [kagzi.RunInfo].
type ConsumerInfo struct {
	Name     string          `json:"name"`
	Group    kagzi.Group     `json:"group"` // of its runs
	Queue    string          `json:"queue"`
	Topics   []ConsumerTopic `json:"topics,omitempty"`   // by name
	NextWake time.Time       `json:"next_wake,omitzero"` // when a run is due if no event comes before; zero: never
	// the last run, which may be active; empty if there is none any more
	Run       kagzi.RunID  `json:"run,omitempty"`
	RunStatus kagzi.Status `json:"run_status,omitempty"`
	RunEnded  time.Time    `json:"run_ended,omitzero"`
	// the pause that keeps runs from being started: that of its group, its workflow, its queue or of all runs
	Pause     Pause           `json:"pause,omitzero"`
	CreatedAt time.Time       `json:"created_at,omitzero"`
	State     json.RawMessage `json:"state,omitempty"` // what its last completed run has returned, as RunInfo.Output
}

// ConsumerTopic is a topic of a consumer.
type ConsumerTopic struct {
	Topic   string `json:"topic"`
	Pending int    `json:"pending"` // events that the consumer has not consumed; see More
	// there are more than were counted: up to 1,000 are, fewer if there are many consumers
	More     bool      `json:"more,omitempty"`
	Oldest   time.Time `json:"oldest,omitzero"`    // when the first of them was published
	Reserved int       `json:"reserved,omitempty"` // of these, the active run has reserved so many
}

// List returns the first thousand consumers, by name.
func (c Consumers) List(ctx context.Context) ([]ConsumerInfo, error) {
	err := c.core.Usable(ctx)
	if err == nil {
		err = c.core.CheckSchema(ctx, nil)
	}
	var out []ConsumerInfo
	if err == nil {
		rows, e := c.core.Inspect.ConsumerStates(ctx)
		for _, r := range rows {
			info := ConsumerInfo{
				Name: r.Name, Group: kagzi.Group(r.Key), Queue: r.Queue, NextWake: r.WakeAt,
				RunStatus: kagzi.Status(r.RunStatus),
				RunEnded:  r.RunEnded,
				CreatedAt: r.CreatedAt, State: c.core.Payloads.Shown(r.State),
			}
			if r.RunID != uuid.Nil {
				info.Run = kagzi.RunID(r.RunID.String())
			}
			if r.Paused {
				info.Pause = pauseOf(r.Pause)
			}
			for _, t := range r.Topics {
				info.Topics = append(info.Topics, ConsumerTopic{t.Topic, t.Pending, t.More, t.Oldest, t.Reserved})
			}
			out = append(out, info)
		}
		err = e
	}
	return out, c.core.FailedIf(ctx, err, "list consumers")
}

// Skip marks an event of a topic as consumed by the consumer, for people who decide that it is not to be dealt with,
// for example because each run fails at it. topic.Events lists the events. A run that has read the event already goes
// on with it. Other consumers keep it. An event that the consumer has consumed stays so, and Skip returns nil.
//
// Skip ends no pause: see [Pauses.End]. The options are [kagzi.Reason], [kagzi.Actor] and [kagzi.InTx]: commit
// soon, because until then the consumer's runs neither begin nor end. It returns [kagzi.ErrNotFound] if there is no
// such consumer with that topic, or if the topic has no event with the ID.
func (c Consumers) Skip(ctx context.Context, consumer topic.Consumer, from topic.AnyTopic, id kagzi.ID,
	opts ...kagzi.ChangeOption,
) error {
	cfg, err := c.options(ctx, consumer, opts, core.EveryVerb)
	if err == nil && from == nil {
		err = errors.New("kagzi: the topic is nil: give the one that has the event")
	}
	if err == nil {
		err = cmp.Or(valid.Name("topic", from.Name()), valid.Name("event ID", string(id)))
	}
	if err == nil {
		err = c.core.Store.Consumers.SkipEvent(ctx, cfg.Tx, consumer.Name(), from.Name(), string(id), cfg.Why)
	}
	return c.core.FailedIf(ctx, err, "skip event %s for consumer %s", text.Quote(string(id)),
		text.Quote(consumer.Name()))
}

// Delete deletes the consumer with its state, and gives up its place in its topics. Their events stay for other
// consumers. Only its name counts, so a program that no longer has it can pass topic.DefineConsumer(name,
// topic.ConsumerConfig{}). A run that is active goes on, and its end changes nothing more. A worker that still has the
// consumer's function stores it again when it starts. The options are [kagzi.InTx], [kagzi.Reason] and [kagzi.Actor].
// It returns [kagzi.ErrNotFound] if there is no such consumer.
func (c Consumers) Delete(ctx context.Context, consumer topic.Consumer, opts ...kagzi.ChangeOption) error {
	cfg, err := c.options(ctx, consumer, opts, core.EveryVerb)
	if err == nil {
		err = c.core.Store.Consumers.Delete(ctx, cfg.Tx, consumer.Name(), cfg.Why)
	}
	return c.core.FailedIf(ctx, err, "delete consumer %s", text.Quote(consumer.Name()))
}

func (c Consumers) options(ctx context.Context, consumer topic.Consumer, opts []kagzi.ChangeOption,
	takes []string,
) (core.ChangeConfig, error) {
	cfg, err := core.Changes(opts, takes)
	if err = cmp.Or(err, c.core.Usable(ctx), valid.Consumer(consumer.Name())); err == nil {
		err = c.core.CheckSchema(ctx, cfg.Tx)
	}
	return cfg, err
}

type consumerFields ConsumerInfo

type consumerJSON struct {
	consumerFields
	State      json.RawMessage `json:"state,omitempty"`
	StateBytes []byte          `json:"state_base64,omitempty"`
}

// MarshalJSON writes the consumer by the rules of RunInfo.
func (i ConsumerInfo) MarshalJSON() ([]byte, error) {
	out := consumerJSON{consumerFields: consumerFields(i)}
	out.State, out.StateBytes = payloads.InJSON(i.State)
	return json.Marshal(out)
}

// UnmarshalJSON is the inverse of MarshalJSON.
func (i *ConsumerInfo) UnmarshalJSON(data []byte) error {
	var in consumerJSON
	if err := json.Unmarshal(data, &in); err != nil {
		return failure.Wrap(err, "consumer as JSON")
	}
	*i = ConsumerInfo(in.consumerFields)
	i.State = payloads.FromJSON(in.State, in.StateBytes)
	return nil
}
