package ui

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/topic"
	"github.com/kagzi/kagzi/ui/internal/web"
)

// consumerForms change consumers. The library records no actor with these.
type consumerForms struct {
	client *kagzi.Client
	admin  *admin.Client
}

// consumerForm is a form about one consumer. Only its name counts, so that this program needs none of its code.
func (p *consumerForms) consumerForm(verb Verb, title string, show func(admin.ConsumerInfo, *web.Dialog),
	do func(context.Context, web.Form, topic.Consumer) (web.Answer, error),
) web.ChangeForm {
	return web.ChangeForm{
		Path: "/consumers/{name}/" + string(verb), Action: asks(verb, OnConsumer), Slow: verb == Delete,
		Show: func(ctx context.Context, q web.Query) (*web.Dialog, error) {
			all, err := p.admin.Consumers(ctx)
			if err != nil {
				return nil, err
			}
			i := slices.IndexFunc(all, func(c admin.ConsumerInfo) bool { return c.Name == q.Path("name") })
			if i < 0 {
				return nil, web.Status(http.StatusNotFound, "There is no such consumer.")
			}
			v := &web.Dialog{Title: title + " " + all[i].Name, Back: at("/consumers/", all[i].Name)}
			show(all[i], v)
			return v, nil
		},
		Do: func(ctx context.Context, f web.Form) (web.Answer, error) {
			done, err := do(ctx, f, topic.DefineConsumer(f.Path("name"), topic.ConsumerConfig{}))
			if done.To == "" {
				done.To = at("/consumers/", f.Path("name"))
			}
			return done, err
		},
	}
}

// all are the forms.
func (p *consumerForms) all() []web.ChangeForm {
	return []web.ChangeForm{
		p.consumerForm(Trigger, "Trigger", func(c admin.ConsumerInfo, v *web.Dialog) {
			v.Do, v.Says = "Make a run due", []string{"A run of the consumer is due now, whether there are events or " +
				"not. While one is active, another one follows it."}
			if c.Run != "" && !c.RunStatus.Ended() {
				v.Says = append(v.Says, "One is active at the moment.")
			}
			v.Fields = []web.Field{{Name: "unless-active", Label: "Only if no run of it is active", Sort: "check"}}
		}, func(ctx context.Context, f web.Form, c topic.Consumer) (web.Answer, error) {
			opts := f.Options()
			if f.Asked("unless-active") {
				opts = append(opts, kagzi.RejectActive)
			}
			return web.Answer{Said: "Triggered " + c.Name() + "."}, topic.New(p.client).Trigger(ctx, c, opts...)
		}),
		p.consumerForm(Skip, "Skip an event of", func(c admin.ConsumerInfo, v *web.Dialog) {
			v.Do, v.Danger = "Skip the event", true
			v.Says = []string{"The consumer never deals with the event: it is marked as consumed. Other consumers " +
				"keep it, and a run that has read it goes on with it."}
			topic := web.Field{Name: "topic", Label: "Topic", Sort: "select", Required: true}
			for _, t := range c.Topics {
				topic.Options = append(topic.Options, web.Option{Value: t.Topic, Label: t.Topic})
			}
			v.Fields = []web.Field{topic, {Name: "event", Label: "Event ID", Sort: "text", Required: true}}
		}, func(ctx context.Context, f web.Form, c topic.Consumer) (web.Answer, error) {
			topic := topic.Define[json.RawMessage](f.Get("topic"))
			return web.Answer{Said: "Skipped the event."}, p.admin.Skip(ctx, c, topic, kagzi.ID(f.Get("event")),
				f.Options()...)
		}),
		p.consumerForm(Delete, "Delete consumer", func(_ admin.ConsumerInfo, v *web.Dialog) {
			v.Do, v.Danger = "Delete the consumer", true
			v.Says = []string{
				"Its state is deleted, and its place in its topics. Their events stay for other consumers. A run " +
					"that is active goes on, and its end changes nothing more.",
				"A worker that has its code creates it again when it starts.",
			}
		}, func(ctx context.Context, f web.Form, c topic.Consumer) (web.Answer, error) {
			return web.Answer{Leads: true, To: "/topics", Said: "Deleted the consumer " + c.Name() + "."},
				p.admin.DeleteConsumer(ctx, c, f.Options()...)
		}),
	}
}
