package kagzi

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/store"
)

// overlapPause is how long to wait before trying again to cancel a run that somebody has locked.
const overlapPause = 250 * time.Millisecond

// fire starts the runs of the schedules that are due, and those that waited for the one before. It returns how long
// to wait for the next.
func (k *Coordinator) fire(ctx context.Context) (time.Duration, error) {
	if err := k.releaseQueued(ctx); err != nil {
		return 0, err
	}
	for ctx.Err() == nil {
		left, ok, err := k.client.store.NextDue(ctx)
		switch {
		case err != nil:
			return 0, err
		case !ok || left > 0:
			if !ok || left > k.cfg.Interval {
				left = k.cfg.Interval
			}
			return left, nil
		}
		looked, err := k.fireBatch(ctx)
		if err != nil {
			return 0, err
		}
		if looked == 0 { // another coordinator is at it, or a caller's transaction has them
			return min(k.cfg.Interval, overlapPause), nil
		}
	}
	return 0, ctx.Err()
}

// fireBatch fires up to a batch of due schedules in one transaction, or if that is refused each in one of its own: it
// must not be at the mercy of one of them. It returns how many were looked at.
func (k *Coordinator) fireBatch(ctx context.Context) (looked int, err error) {
	var due []*store.Template
	var cancel []*store.Template
	dropped := map[string]string{} // ticks, by schedule
	fired, looked, err := k.client.store.FireDue(ctx, k.cfg.Batch, func(now time.Time, templates []*store.Template) []*store.Firing {
		due, cancel = templates, nil
		clear(dropped)
		budget := k.cfg.MaxRuns
		firings := make([]*store.Firing, len(templates))
		for i, t := range templates {
			var why string
			if firings[i], why = decide(t, now, budget); why != "" {
				dropped[t.Name] = why
			}
			if firings[i].Runs == nil && t.Active && t.Overlap == store.OverlapCancelPrevious {
				cancel = append(cancel, t)
			}
			budget = max(0, budget-len(firings[i].Runs))
		}
		return firings
	})
	if store.Refused(err) && due != nil {
		for _, t := range due {
			if err := k.fireAlone(ctx, t); err != nil {
				return 0, err
			}
		}
		return len(due), nil
	}
	if err != nil {
		return 0, err
	}
	k.client.wakeFired(ctx, fired)
	for name, why := range dropped {
		k.client.cfg.Logger.Warn("kagzi: ticks of a schedule are dropped", "schedule", name, "because", why)
	}
	for _, t := range cancel {
		if err := k.replace(ctx, t); err != nil {
			return 0, err
		}
	}
	return looked, nil
}

// fireAlone fires one schedule, and pauses it if the database refuses what it asks for.
func (k *Coordinator) fireAlone(ctx context.Context, t *store.Template) error {
	fired, err := k.client.store.EditSchedule(ctx, nil, t.ID, k.settle)
	if store.Refused(err) {
		k.client.cfg.Logger.Error("kagzi: a schedule cannot be fired, and is paused", "schedule", t.Name, "error", err)
		text := errorText(err)
		_, err = k.client.store.EditSchedule(ctx, nil, t.ID, func(_ time.Time, t *store.Template) (*store.Edit, error) {
			if t == nil || t.Paused {
				return nil, nil
			}
			return &store.Edit{Fire: &store.Firing{Template: t.ID, Next: t.Next, Problem: text}}, nil
		})
	}
	k.client.wakeFired(ctx, fired)
	return err
}

// settle is an edit that fires what is due.
func (k *Coordinator) settle(now time.Time, t *store.Template) (*store.Edit, error) {
	if t == nil || t.Paused || t.Next.IsZero() || t.Next.After(now) {
		return nil, nil
	}
	f, _ := decide(t, now, k.cfg.MaxRuns)
	return &store.Edit{Fire: f}, nil
}

// replace cancels the active runs of a schedule and starts the next one.
func (k *Coordinator) replace(ctx context.Context, t *store.Template) error {
	c := k.client
	ended, err := c.store.CancelFired(ctx, t.ID)
	switch {
	case store.Locked(err): // by a caller's transaction
		c.cfg.Logger.Debug("kagzi: the run that a schedule is to replace is locked; trying again", "schedule", t.Name)
		return nil
	case err != nil:
		return err
	}
	c.wakeRuns(ctx, ended...)
	fired, err := c.store.EditSchedule(ctx, nil, t.ID, func(now time.Time, t *store.Template) (*store.Edit, error) {
		if t == nil || t.Paused || t.Active {
			return nil, nil
		}
		f, _ := decide(t, now, k.cfg.MaxRuns)
		return &store.Edit{Fire: f}, nil
	})
	c.wakeFired(ctx, fired)
	return err
}

// releaseQueued makes the runs due that waited for the one before, and remembers what the others wait for.
func (k *Coordinator) releaseQueued(ctx context.Context) error {
	released, blocking, err := k.client.store.ReleaseQueued(ctx)
	if err != nil {
		return err
	}
	k.mu.Lock()
	k.blocking = make(map[uuid.UUID]bool, len(blocking))
	for _, id := range blocking {
		k.blocking[id] = true
	}
	k.mu.Unlock()
	k.client.wakeFired(ctx, released)
	return nil
}

// wakeFired tells workers of runs that are due.
func (c *Client) wakeFired(ctx context.Context, fired []store.FiredRun) {
	type work struct {
		queue, typ string
		version    int
	}
	n := map[work]int{}
	for _, r := range fired {
		n[work{r.Queue, r.Type, r.Version}]++
	}
	for w, n := range n {
		c.wakeWork(ctx, w.queue, w.typ, w.version, n)
	}
}
