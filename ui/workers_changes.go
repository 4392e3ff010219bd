package ui

import (
	"context"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/ui/internal/web"
)

// workerForms change workers.
type workerForms struct {
	admin *admin.Client
}

// workerForm is a form about one worker.
func (p *workerForms) workerForm(verb Verb, title string, show func(admin.WorkerInfo, *web.Dialog),
	do func(ctx context.Context, id string, opts ...kagzi.ChangeOption) (web.Answer, error),
) web.ChangeForm {
	return web.ChangeForm{
		Path: "/workers/{id}/" + string(verb), Action: asks(verb, OnWorker),
		Show: func(ctx context.Context, q web.Query) (*web.Dialog, error) {
			w, err := p.admin.Worker(ctx, q.Path("id"))
			if err != nil {
				return nil, err
			}
			v := &web.Dialog{Title: title, Back: "/workers/" + w.ID}
			v.Says = []string{"Worker " + short(kagzi.RunID(w.ID)) + " on " + first(60, w.Hostname) + " executes " +
				plural(w.Active, "run") + "."}
			show(w, v)
			return v, nil
		},
		Do: func(ctx context.Context, f web.Form) (web.Answer, error) {
			done, err := do(ctx, f.Path("id"), f.Options()...)
			done.To = "/workers/" + f.Path("id")
			return done, err
		},
	}
}

// all are the forms.
func (p *workerForms) all() []web.ChangeForm {
	return []web.ChangeForm{
		p.workerForm(Drain, "Drain the worker", func(w admin.WorkerInfo, v *web.Dialog) {
			v.Do = "Drain it"
			v.Says = append(v.Says, "It claims no more runs, lets those under way finish, gives the rest back, "+
				"and ends.", "A process manager that restarts programs will start it again.")
			if w.Status != "ONLINE" {
				v.Refused = "The worker is not online: it drains or has ended."
			}
		}, func(ctx context.Context, id string, opts ...kagzi.ChangeOption) (web.Answer, error) {
			return web.Answer{Said: "Asked it to drain."}, p.admin.Drain(ctx, id, opts...)
		}),
		p.workerForm(ForceOffline, "Force the worker offline", func(w admin.WorkerInfo, v *web.Dialog) {
			v.Do, v.Danger = "Force it offline", true
			v.Says = append(v.Says, "It is declared dead, and others take its runs at once.",
				"This is for a worker that you know to be dead. If it lives, a step that it still executes may be "+
					"executed twice. A coordinator finds dead workers by itself.")
		}, func(ctx context.Context, id string, opts ...kagzi.ChangeOption) (web.Answer, error) {
			return web.Answer{Said: "It is offline."}, p.admin.ForceOffline(ctx, id, opts...)
		}),
		p.drainQueueForm(),
	}
}

// drainQueueForm drains all workers of a queue.
func (p *workerForms) drainQueueForm() web.ChangeForm {
	return web.ChangeForm{
		Path: "/workers/drain", Action: asks(Drain, OnQueue), About: func(q web.Query) []web.Action {
			return onNamed(Drain, OnQueue, q.Get("queue"))
		},
		Show: func(ctx context.Context, q web.Query) (*web.Dialog, error) {
			v := &web.Dialog{Title: "Drain a queue's workers", Back: "/workers", Do: "Drain them", Danger: true}
			v.Says = []string{"All workers of the queue claim no more runs, of their other queues neither, finish " +
				"those under way, and end. Workers that start later are not affected."}
			v.Fields = []web.Field{{Name: "queue", Label: "Queue", Sort: "text", Required: true}}
			if queue := q.Get("queue"); queue != "" {
				_, online, err := p.admin.Workers(ctx,
					admin.WorkerFilter{Queue: queue, Status: []string{"ONLINE"}, Limit: 1})
				if err != nil {
					return nil, err
				}
				v.Says = append(v.Says, plural(online, "worker")+" of queue "+queue+" would drain. To stop a queue "+
					"and leave its workers up, pause it.")
			}
			return v, nil
		},
		Do: func(ctx context.Context, f web.Form) (web.Answer, error) {
			n, err := p.admin.DrainQueue(ctx, f.Get("queue"), f.Options()...)
			return web.Answer{To: "/workers", Said: "Asked " + plural(n, "worker") + " to drain."}, err
		},
	}
}
