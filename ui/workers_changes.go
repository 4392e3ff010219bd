package ui

import (
	"context"

	"github.com/kagzi/kagzi"
)

// workerForm is a form about one worker.
func (d *dashboard) workerForm(verb Verb, title string, show func(kagzi.WorkerInfo, *dialog),
	do func(ctx context.Context, id string, opts ...kagzi.ChangeOption) (answer, error),
) changeForm {
	return changeForm{
		path: "/workers/{id}/" + string(verb), action: Action{Verb: verb, Object: OnWorker},
		show: func(ctx context.Context, q query) (*dialog, error) {
			w, err := d.client.Worker(ctx, q.path("id"))
			if err != nil {
				return nil, err
			}
			v := &dialog{Title: title, Back: "/workers/" + w.ID}
			v.Says = []string{"Worker " + short(kagzi.RunID(w.ID)) + " on " + first(60, w.Hostname) + " executes " +
				plural(w.Active, "run") + "."}
			show(w, v)
			return v, nil
		},
		do: func(ctx context.Context, f form) (answer, error) {
			done, err := do(ctx, f.path("id"), f.options()...)
			done.to = "/workers/" + f.path("id")
			return done, err
		},
	}
}

// workerForms change workers.
func (d *dashboard) workerForms() []changeForm {
	return []changeForm{
		d.workerForm(Drain, "Drain the worker", func(w kagzi.WorkerInfo, v *dialog) {
			v.Do = "Drain it"
			v.Says = append(v.Says, "It claims no more runs, lets those under way finish, gives the rest back, "+
				"and ends.", "A process manager that restarts programs will start it again.")
			if w.Status != "ONLINE" {
				v.Refused = "The worker is not online: it drains or has ended."
			}
		}, func(ctx context.Context, id string, opts ...kagzi.ChangeOption) (answer, error) {
			return answer{said: "Asked it to drain."}, d.client.Drain(ctx, id, opts...)
		}),
		d.workerForm(ForceOffline, "Force the worker offline", func(w kagzi.WorkerInfo, v *dialog) {
			v.Do, v.Danger = "Force it offline", true
			v.Says = append(v.Says, "It is declared dead, and others take its runs at once.",
				"This is for a worker that you know to be dead. If it lives, a step that it still executes may be "+
					"executed twice. A coordinator finds dead workers by itself.")
		}, func(ctx context.Context, id string, opts ...kagzi.ChangeOption) (answer, error) {
			return answer{said: "It is offline."}, d.client.ForceOffline(ctx, id, opts...)
		}),
		d.drainQueueForm(),
	}
}

// drainQueueForm drains all workers of a queue.
func (d *dashboard) drainQueueForm() changeForm {
	return changeForm{
		path: "/workers/drain", action: Action{Verb: Drain, Object: OnQueue}, about: func(q query) []Action {
			return onNamed(Drain, OnQueue, q.get("queue"))
		},
		show: func(ctx context.Context, q query) (*dialog, error) {
			v := &dialog{Title: "Drain a queue's workers", Back: "/workers", Do: "Drain them", Danger: true}
			v.Says = []string{"All workers of the queue claim no more runs, of their other queues neither, finish " +
				"those under way, and end. Workers that start later are not affected."}
			v.Fields = []field{{Name: "queue", Label: "Queue", Sort: "text", Required: true}}
			if queue := q.get("queue"); queue != "" {
				_, online, err := d.client.Workers(ctx,
					kagzi.WorkerFilter{Queue: queue, Status: []string{"ONLINE"}, Limit: 1})
				if err != nil {
					return nil, err
				}
				v.Says = append(v.Says, plural(online, "worker")+" of queue "+queue+" would drain. To stop a queue "+
					"and leave its workers up, pause it.")
			}
			return v, nil
		},
		do: func(ctx context.Context, f form) (answer, error) {
			n, err := d.client.DrainQueue(ctx, f.get("queue"), f.options()...)
			return answer{to: "/workers", said: "Asked " + plural(n, "worker") + " to drain."}, err
		},
	}
}
