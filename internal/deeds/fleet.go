package deeds

import (
	"context"
	"errors"
	"fmt"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
)

// ofWorkers returns what can be done to workers.
func ofWorkers() []Deed {
	return []Deed{
		ofWorker(Deed{
			Verb: "drain", Past: "asked to drain", Title: "Drain worker",
			Short: "Ask a worker to finish its runs and stop",
			Says: []string{
				"Drain asks a worker to claim no more runs, to let those under way finish, to give the rest back, " +
					"and to stop. It does not wait for that.",
				"A process manager that restarts programs will start the worker again.",
			},
		}, "asked %s to drain", admin.Workers.Drain, func(v *View, w admin.WorkerInfo) {
			if w.Status != "ONLINE" {
				v.Refused = errors.New("the worker is not online: it drains or has ended")
			}
		}),
		ofWorker(Deed{
			Verb: "force-offline", Past: "forced offline", Title: "Force offline worker", Button: "Force it offline",
			Danger: true, Short: "Declare a worker dead, so that others take its runs at once",
			Says: []string{
				"Force-offline declares a worker dead. Its runs are available to other workers at once.",
				"It is for a worker that you know to be dead: if it lives, a step that it still executes may be " +
					"executed twice. A coordinator finds dead workers by itself.",
			},
		}, "%s is offline", admin.Workers.ForceOffline, nil),
		drainQueue(),
	}
}

func ofWorker(d Deed, said string, do func(admin.Workers, context.Context, string, ...kagzi.ChangeOption) error,
	look func(*View, admin.WorkerInfo),
) Deed {
	d.Object = Worker
	d.Look = func(ctx context.Context, a Asked, v *View) error {
		w, err := a.admin().Workers.Get(ctx, a.Name)
		if err != nil {
			return err
		}
		v.Says = append(v.Says, "The worker, on "+cut(60, w.Hostname)+", executes "+plural(w.Active, "run")+".")
		if look != nil {
			look(v, w)
		}
		return nil
	}
	d.Do = func(ctx context.Context, a Asked) (Done, error) {
		return Done{Said: fmt.Sprintf(said, a.Name)}, do(a.admin().Workers, ctx, a.Name, onlyWhy(a)...)
	}
	return d
}

// drainQueue drains all workers of a queue.
func drainQueue() Deed {
	return Deed{
		Verb: "drain", Object: Queue, Past: "drained", Title: "Drain a queue's workers", Button: "Drain them",
		Danger: true,
		Short:  "Ask all workers of a queue to finish their runs and stop",
		Says: []string{
			"Drain asks all workers of a queue to claim no more runs, of their other queues neither, to finish those " +
				"under way, and to stop. Workers that start later are not affected.",
			"To stop a queue and leave its workers up, pause it.",
		},
		Fields: []Field{{
			Name: "queue", Label: "Queue", Letter: "q", Arg: "NAME", Help: "The name of the queue.",
			Required: "give the queue whose workers are to drain; the list of workers shows the queues",
		}},
		Look: func(ctx context.Context, a Asked, v *View) error {
			queue := a.Values.Get("queue")
			if queue == "" {
				return nil
			}
			online, err := Online(ctx, a.Client, queue)
			v.Says = append(v.Says, plural(online, "worker")+" of queue "+queue+" would drain.")
			return err
		},
		Do: func(ctx context.Context, a Asked) (Done, error) {
			queue := a.Values.Get("queue")
			n, err := a.admin().Workers.DrainQueue(ctx, queue, onlyWhy(a)...)
			return Done{
				Said:   fmt.Sprintf("asked %s of queue %s to drain", plural(n, "worker"), queue),
				Result: map[string]any{"queue": queue, "drained": n},
			}, err
		},
	}
}

// Online counts the workers of a queue that a drain would ask.
func Online(ctx context.Context, c *kagzi.Client, queue string) (n int, err error) {
	_, n, err = admin.New(c).Workers.List(ctx, admin.WorkerFilter{Queue: queue, Status: []string{"ONLINE"}, Limit: 1})
	return n, err
}
