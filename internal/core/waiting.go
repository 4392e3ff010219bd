package core

import (
	"context"
	"time"

	"github.com/kagzi/kagzi/store"
	"github.com/kagzi/kagzi/store/inspect"
	"github.com/kagzi/kagzi/waits"
)

// A Wait is what a run waits for, and what is read with it.
type Wait struct {
	On             waits.List // kagzi.RunInfo.WaitingOn
	InboxFullSince time.Time
	Hung           []store.HungCode
}

// WaitingOn returns what a run waits for, as far as its row says it.
func WaitingOn(r *store.Run) waits.List {
	if r.Status == store.Running && !r.CancelledAt.IsZero() {
		return waits.List{{Kind: waits.Cancel}}
	}
	return r.WaitingOn
}

// Wait returns what a run waits for. It reads which limit or pause holds up a run that is due.
func (c *Client) Wait(ctx context.Context, r *store.Run) (w Wait, err error) {
	w.On = WaitingOn(r)
	if (r.Status == store.Pending || r.Status == store.Sleeping) && !r.AvailableAt.IsZero() {
		o, err := c.Inspect.Obstacle(ctx, r.RunID)
		if err != nil {
			return w, err
		}
		if held := obstacle(r, o); held.Kind != "" {
			w.On = waits.List{held}
		}
	}
	// Of many waits, one that is not named may be for a message.
	aside, fullSince, err := c.Inspect.InboxOf(ctx, r, w.On.Has(waits.Signal) || w.On.Has(waits.More))
	if aside > 0 {
		w.On = append(w.On, waits.Wait{Kind: waits.Undecoded, Count: aside})
	}
	w.InboxFullSince = fullSince
	switch {
	case err != nil:
	case !r.SilentSince.IsZero():
		w.On = waits.List{{Kind: waits.Takeover}}
	case r.Status != store.Pending && r.Status != store.Sleeping:
		err = c.addUnderWay(ctx, &w, r)
	}
	return w, err
}

// mostNamed is how many steps under way a Wait names.
const mostNamed = 3

// addUnderWay adds to w what a worker does for r, which is RUNNING or over: the code that hangs, and the steps that a
// cancel waits for.
func (c *Client) addUnderWay(ctx context.Context, w *Wait, r *store.Run) (err error) {
	if w.Hung, err = c.Inspect.HungCode(ctx, r); err != nil || !w.On.Has(waits.Cancel) {
		return err
	}
	steps, err := c.Inspect.StepsUnderWay(ctx, r, mostNamed+1)
	if len(steps) > 0 {
		w.On = nil
	}
	for i, step := range steps {
		under := waits.Wait{Kind: waits.Cancel, Name: step}
		if i == mostNamed {
			under = waits.Wait{Kind: waits.More}
		}
		w.On = append(w.On, under)
	}
	return err
}

// obstacle returns what keeps workers from claiming a due run; it has no kind if nothing does.
func obstacle(r *store.Run, o inspect.Obstacle) waits.Wait {
	key, pause, rate := waits.Key, waits.PauseOfKey, waits.KeyRate
	if r.Key.Group {
		key, pause, rate = waits.Group, waits.PauseOfGroup, waits.GroupRate
	}
	switch {
	case o.Own:
		return waits.Wait{Kind: waits.Pause}
	case o.Paused && o.Pause.Key.Name != "":
		return waits.Wait{Kind: pause, Name: r.Key.Name}
	case o.Paused && o.Pause.Type != "":
		return waits.Wait{Kind: waits.PauseOfWorkflow, Name: o.Pause.Type}
	case o.Paused && o.Pause.Queue != "":
		return waits.Wait{Kind: waits.PauseOfQueue, Name: o.Pause.Queue}
	case o.Paused:
		return waits.Wait{Kind: waits.PauseOfAll}
	case o.Key.Most > 0:
		return waits.Wait{
			Kind: key, Name: r.Key.Name, Count: o.Key.Running, Limit: o.Key.Most, Behind: o.Key.Holder,
		}
	case o.Key.Rate:
		return waits.Wait{Kind: rate, Name: r.Key.Name}
	case o.Queue.Most > 0:
		return waits.Wait{Kind: waits.Queue, Name: r.Queue, Count: o.Queue.Running, Limit: o.Queue.Most}
	case o.Queue.Rate:
		return waits.Wait{Kind: waits.QueueRate, Name: r.Queue}
	}
	return waits.Wait{}
}
