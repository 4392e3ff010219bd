package kagzi

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/goroutine"
	"github.com/kagzi/kagzi/store"
)

// overlapPause is how long to wait before trying again to cancel a run that somebody has locked.
const overlapPause = 250 * time.Millisecond

// firedBytes is how much input one transaction copies.
const firedBytes = 64 << 20

// overlapWait is how long one pass waits for the locks of runs that it is to cancel.
const overlapWait = 100 * time.Millisecond

// fire starts the runs of the schedules that are due, and those that waited for the one before. It returns how long
// to wait for the next.
func (k *Coordinator) fire(ctx context.Context) (time.Duration, error) {
	for ctx.Err() == nil {
		if err := k.releaseQueued(ctx); err != nil {
			return 0, err
		}
		left, ok, err := k.client.store.NextDue(ctx)
		switch {
		case err != nil:
			return 0, err
		case !ok || left > 0:
			if !ok || left > k.cfg.Interval {
				left = k.cfg.Interval
			}
			k.unfired.Over(k.client.cfg.Logger, fireSchedules)
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
		budget, bytes := k.cfg.MaxRuns, firedBytes
		firings := make([]*store.Firing, len(templates))
		for i, t := range templates {
			most := min(budget, max(0, bytes)/max(1, t.Size))
			if i == 0 { // one run at least, however large
				most = max(1, most)
			}
			var why string
			if firings[i], why = decide(t, now, most); why != "" {
				dropped[t.Name] = why
			}
			bytes -= len(firings[i].Runs) * t.Size
			if firings[i].Replace {
				cancel = append(cancel, t)
			}
			budget = max(0, budget-len(firings[i].Runs))
		}
		return firings
	})
	if due != nil && store.Answered(err) {
		return k.fireEach(ctx, due)
	}
	if err != nil {
		return 0, err
	}
	k.client.hints.Fired(ctx, fired)
	for name, why := range dropped {
		k.client.cfg.Logger.Warn("kagzi: ticks of a schedule are dropped", "schedule", name, "because", why)
	}
	for _, t := range cancel {
		if err := k.replace(ctx, t, overlapWait/time.Duration(len(cancel))); err != nil {
			return 0, err
		}
	}
	return looked, nil
}

// fireEach fires schedules one by one, because together they failed: whose fault it is shows then. It returns how many
// are done with, for now.
func (k *Coordinator) fireEach(ctx context.Context, due []*store.Template) (done int, failure error) {
	for _, t := range due {
		switch err := k.fireAlone(ctx, t); {
		case store.Away(err) && !store.Answered(err) || store.Closed(err) || ctx.Err() != nil:
			return 0, err
		case err != nil:
			failure = errors.Join(failure, fmt.Errorf("schedule %q: %w", t.Name, err))
		default:
			done++
		}
	}
	if done > 0 && failure != nil {
		k.unfired.Note(k.client.cfg.Logger, fireSchedules, failure)
		failure = nil
	}
	return done, failure
}

// fireAlone fires one schedule. It is paused if the database refuses what it asks for, and put off if a caller's
// transaction has what it needs.
func (k *Coordinator) fireAlone(ctx context.Context, t *store.Template) error {
	s := k.client.store
	fired, err := s.TickSchedule(ctx, t.ID, k.settle)
	switch {
	case store.Locked(err):
		_, err = s.TickSchedule(ctx, t.ID, func(now time.Time, t *store.Template) (*store.Edit, error) {
			if t == nil || t.Paused {
				return nil, nil
			}
			return &store.Edit{Fire: &store.Firing{Template: t.ID, Next: now.Add(overlapPause)}}, nil
		})
		if store.Locked(err) { // the schedule itself: the next pass leaves it out
			err = nil
		}
	case store.Refused(err):
		k.client.cfg.Logger.Error("kagzi: a schedule cannot be fired, and is paused", "schedule", t.Name, "error", err)
		text := failure.Text(err)
		_, err = s.TickSchedule(ctx, t.ID, func(_ time.Time, t *store.Template) (*store.Edit, error) {
			if t == nil || t.Paused {
				return nil, nil
			}
			return &store.Edit{Fire: &store.Firing{Template: t.ID, Next: t.Next, Problem: text}}, nil
		})
	}
	k.client.hints.Fired(ctx, fired)
	return err
}

// settle is an edit that fires what is due.
func (k *Coordinator) settle(now time.Time, t *store.Template) (*store.Edit, error) {
	if t == nil || t.Paused || t.Next.IsZero() || t.Next.After(now) {
		return nil, nil
	}
	return k.decided(t, now), nil
}

// decided is an edit that fires what has come, as much as one transaction may.
func (k *Coordinator) decided(t *store.Template, now time.Time) *store.Edit {
	f, _ := decide(t, now, min(k.cfg.MaxRuns, max(1, firedBytes/max(1, t.Size))))
	return &store.Edit{Fire: f}
}

// replace cancels the active runs of a schedule and starts the next one.
func (k *Coordinator) replace(ctx context.Context, t *store.Template, wait time.Duration) error {
	c := k.client
	ended, err := c.store.CancelFired(ctx, t, wait)
	switch {
	case store.Locked(err): // by a caller's transaction
		c.cfg.Logger.Debug("kagzi: the run that a schedule is to replace is locked; trying again", "schedule", t.Name)
		return nil
	case err != nil:
		return err
	}
	if err := c.hints.Cancelled(ctx, nil, ended); err != nil {
		return err
	}
	fired, err := c.store.TickSchedule(ctx, t.ID, func(now time.Time, t *store.Template) (*store.Edit, error) {
		if t == nil || t.Paused || t.Active {
			return nil, nil
		}
		return k.decided(t, now), nil
	})
	if store.Locked(err) {
		return nil
	}
	c.hints.Fired(ctx, fired)
	return err
}

// releaseQueued makes the runs due that waited for the one before, and remembers what the others wait for. Meanwhile any
// run that moves may be one of those.
func (k *Coordinator) releaseQueued(ctx context.Context) error {
	k.mu.Lock()
	k.asking = true
	k.mu.Unlock()
	released, blocking, err := k.client.store.ReleaseQueued(ctx)
	k.mu.Lock()
	k.asking = false
	if err == nil {
		k.blocking = make(map[uuid.UUID]bool, len(blocking))
		for _, id := range blocking {
			k.blocking[id] = true
		}
		if k.missed && len(blocking) > 0 {
			goroutine.Signal(k.wake)
		}
	}
	k.missed = false
	k.mu.Unlock()
	if err != nil {
		return err
	}
	k.client.hints.Fired(ctx, released)
	return nil
}
