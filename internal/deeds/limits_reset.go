package deeds

import (
	"context"
	"fmt"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/explain"
)

// resetting is a deed that takes back what operators have set, in favour of what the code declares.
func resetting(d Deed, field string, do func(ctx context.Context, a Asked, name string,
	why ...kagzi.ChangeOption) error,
) Deed {
	d.Verb, d.Past = "reset", "reset"
	d.Fields = []Field{{Name: field, Flag: "-", Kind: Hidden}}
	d.Says = []string{
		"Reset takes back what operators have set. Then what the code declares applies again: at once, and " +
			"whenever it declares something else.",
	}
	d.Look = func(_ context.Context, a Asked, v *View) error {
		v.Name = a.Values.Get(field)
		v.field(field).Value = v.Name
		return nil
	}
	d.Do = func(ctx context.Context, a Asked) (Done, error) {
		name := a.Values.Get(field)
		return Done{Said: fmt.Sprintf("%s %s is as the code declares it", d.Object, name)},
			do(ctx, a, name, onlyWhy(a)...)
	}
	return d
}

func resetLimit() Deed {
	return resetting(Deed{
		Object: Limit, Title: "Reset limit", Short: "Let a limit be as the code declares it",
	}, "limit", func(ctx context.Context, a Asked, name string, why ...kagzi.ChangeOption) error {
		return a.admin().Limits.Reset(ctx, name, why...)
	})
}

func resetQueue() Deed {
	return resetting(Deed{
		Object: Queue, Title: "Reset the limits of queue",
		Short: "Let the limits of a queue be as the code declares them",
	}, "queue", func(ctx context.Context, a Asked, name string, why ...kagzi.ChangeOption) error {
		return a.admin().Queues.Reset(ctx, name, why...)
	})
}

// LimitOrigin says where a limit comes from. It is empty if that is not known.
func LimitOrigin(l admin.LimitInfo, took func(time.Duration) string) string {
	switch {
	case l.Unset:
		return "not set: no step begins"
	case l.Declared == nil:
		return setText(l.Override)
	}
	return origin(l.Override, "rate %s, %s", RateText(l.Declared.Rate, took), atMost(l.Declared.MaxRunning))
}

// QueueOrigin is LimitOrigin for the limits of a queue.
func QueueOrigin(q admin.QueueInfo, took func(time.Duration) string) string {
	if q.Declared == nil {
		return setText(q.Override)
	}
	return origin(q.Override, "rate %s, %s, each key %s", RateText(q.Declared.Rate, took),
		atMost(q.Declared.MaxRunning), KeyText(q.Declared.EachKey, took))
}

// origin says where limits come from; format and args are those that the code declares.
func origin(o *admin.Override, format string, args ...any) string {
	if o == nil {
		return "declared"
	}
	return fmt.Sprintf("set%s; declared: %s", explain.By(o.Actor, o.Reason), fmt.Sprintf(format, args...))
}

// setText says who has set what no code declares.
func setText(o *admin.Override) string {
	if o == nil || o.Actor == "" && o.Reason == "" {
		return ""
	}
	return "set" + explain.By(o.Actor, o.Reason)
}
