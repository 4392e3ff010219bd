package ui

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"

	"github.com/kagzi/kagzi"
)

// consumerForm is a form about one consumer. Only its name counts, so that this program needs none of its code.
func (d *dashboard) consumerForm(verb Verb, title string, show func(kagzi.ConsumerInfo, *dialog),
	do func(context.Context, form, kagzi.Consumer) (answer, error),
) changeForm {
	return changeForm{
		path: "/consumers/{name}/" + string(verb), action: Action{Verb: verb, Object: OnConsumer},
		show: func(ctx context.Context, q query) (*dialog, error) {
			all, err := d.client.Consumers(ctx)
			if err != nil {
				return nil, err
			}
			i := slices.IndexFunc(all, func(c kagzi.ConsumerInfo) bool { return c.Name == q.path("name") })
			if i < 0 {
				return nil, status(http.StatusNotFound, "There is no such consumer.")
			}
			v := &dialog{Title: title + " " + all[i].Name, Back: at("/consumers/", all[i].Name)}
			show(all[i], v)
			return v, nil
		},
		do: func(ctx context.Context, f form) (answer, error) {
			done, err := do(ctx, f, kagzi.DefineConsumer(f.path("name"), kagzi.ConsumerConfig{}))
			if done.to == "" {
				done.to = at("/consumers/", f.path("name"))
			}
			return done, err
		},
	}
}

// consumerForms change consumers. The library records no actor with these.
func (d *dashboard) consumerForms() []changeForm {
	return []changeForm{
		d.consumerForm(Trigger, "Trigger", func(c kagzi.ConsumerInfo, v *dialog) {
			v.Do, v.Says = "Make a run due", []string{"A run of the consumer is due now, whether there are events or " +
				"not. While one is active, another one follows it."}
			if c.Run != "" && !c.RunStatus.Ended() {
				v.Says = append(v.Says, "One is active at the moment.")
			}
			v.Fields = []field{{Name: "unless-active", Label: "Only if no run of it is active", Sort: "check"}}
		}, func(ctx context.Context, f form, c kagzi.Consumer) (answer, error) {
			opts := f.options()
			if f.asked("unless-active") {
				opts = append(opts, kagzi.RejectActive)
			}
			return answer{said: "Triggered " + c.Name() + "."}, d.client.Trigger(ctx, c, opts...)
		}),
		d.consumerForm(Skip, "Skip an event of", func(c kagzi.ConsumerInfo, v *dialog) {
			v.Do, v.Danger = "Skip the event", true
			v.Says = []string{"The consumer never deals with the event: it is marked as consumed. Other consumers " +
				"keep it, and a run that has read it goes on with it."}
			topic := field{Name: "topic", Label: "Topic", Sort: "select", Required: true}
			for _, t := range c.Topics {
				topic.Options = append(topic.Options, option{Value: t.Topic, Label: t.Topic})
			}
			v.Fields = []field{topic, {Name: "event", Label: "Event ID", Sort: "text", Required: true}}
		}, func(ctx context.Context, f form, c kagzi.Consumer) (answer, error) {
			topic := kagzi.DefineTopic[json.RawMessage](f.get("topic"))
			return answer{said: "Skipped the event."}, d.client.Skip(ctx, c, topic, kagzi.ID(f.get("event")),
				f.options()...)
		}),
		d.consumerForm(Delete, "Delete consumer", func(_ kagzi.ConsumerInfo, v *dialog) {
			v.Do, v.Danger = "Delete the consumer", true
			v.Says = []string{
				"Its state is deleted, and its place in its topics. Their events stay for other consumers. A run " +
					"that is active goes on, and its end changes nothing more.",
				"A worker that has its code creates it again when it starts.",
			}
		}, func(ctx context.Context, f form, c kagzi.Consumer) (answer, error) {
			return answer{leads: true, to: "/topics", said: "Deleted the consumer " + c.Name() + "."},
				d.client.DeleteConsumer(ctx, c, f.options()...)
		}),
	}
}
