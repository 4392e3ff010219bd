package deeds

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/core"
	"github.com/kagzi/kagzi/topic"
)

// ofConsumers returns what can be done to consumers.
func ofConsumers() []Deed {
	return []Deed{
		ofConsumer(Deed{
			Verb: "trigger", Past: "triggered", Button: "Make a run due", Short: "Make a run of a consumer due now",
			Says: []string{"Trigger makes a run of a consumer due now, whether there are events or not. While one is " +
				"active, another one follows it."},
			Fields: []Field{{
				Name: "unless-active", Label: "Only if no run of it is active", Kind: Check,
				Help: "Start nothing if a run of the consumer is active.",
			}},
		}, func(v *View, c admin.ConsumerInfo) {
			if c.Run != "" && !c.RunStatus.Ended() {
				v.Says = append(v.Says, "One is active at the moment.")
			}
		}, func(ctx context.Context, a Asked, c topic.Consumer) (Done, error) {
			return Done{}, topic.New(a.Client).Trigger(ctx, c, unlessActive(a)...)
		}),
		ofConsumer(Deed{
			Verb: "skip", Past: "skipped", Title: "Skip an event of", Button: "Skip the event", Danger: true,
			Short: "Mark an event as consumed",
			Says: []string{"Skip marks an event as consumed: the consumer never deals with it. Other consumers keep " +
				"it, and a run that has read it goes on with it."},
			Fields: []Field{
				{Name: "topic", Flag: "-", Label: "Topic", Kind: Choice, Required: "give the topic of the event"},
				{Name: "event", Flag: "-", Label: "Event ID", Required: "give the ID of the event"},
			},
		}, func(v *View, c admin.ConsumerInfo) {
			for _, t := range c.Topics {
				v.field("topic").Choices = append(v.field("topic").Choices, Option{Value: t.Topic, Label: t.Topic})
			}
		}, func(ctx context.Context, a Asked, c topic.Consumer) (Done, error) {
			from, event := topic.Define[json.RawMessage](a.Values.Get("topic")), a.Values.Get("event")
			return Done{Said: fmt.Sprintf("skipped the event %s", event)},
				a.admin().Consumers.Skip(ctx, c, from, kagzi.ID(event), onlyWhy(a)...)
		}),
		ofConsumer(Deed{
			Verb: "delete", Past: "deleted", Title: "Delete consumer", Danger: true, Slow: true,
			Short: "Delete a consumer",
			Says: []string{
				"Delete deletes the state of a consumer, and its place in its topics. Their events stay for other " +
					"consumers. A run that is active goes on, and its end changes nothing more.",
				"A worker that has the consumer's code creates it again when it starts.",
			},
		}, nil, func(ctx context.Context, a Asked, c topic.Consumer) (Done, error) {
			return Done{}, a.admin().Consumers.Delete(ctx, c, onlyWhy(a)...)
		}),
	}
}

// ofConsumer is a deed about a consumer. Only its name counts, so that this program needs none of its code.
func ofConsumer(d Deed, look func(*View, admin.ConsumerInfo),
	do func(context.Context, Asked, topic.Consumer) (Done, error),
) Deed {
	d.Object = Consumer
	d.Look = func(ctx context.Context, a Asked, v *View) error {
		all, err := a.admin().Consumers.List(ctx)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(all, func(c admin.ConsumerInfo) bool { return c.Name == a.Name })
		if i < 0 {
			return core.ErrConsumerNotFound
		}
		if look != nil {
			look(v, all[i])
		}
		return nil
	}
	d.Do = func(ctx context.Context, a Asked) (Done, error) {
		return do(ctx, a, topic.DefineConsumer(a.Name, topic.ConsumerConfig{}))
	}
	return d
}
