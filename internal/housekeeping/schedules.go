package housekeeping

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/internal/text"
	"github.com/kagzi/kagzi/internal/timetable"
	"github.com/kagzi/kagzi/store"
)

const (
	// lockPause is the pause before a schedule is fired again after a lock on it, or on its run, was in the way.
	lockPause = 250 * time.Millisecond

	// lockWait is the longest that the firing of one schedule waits for each lock. Schedules whose active runs are
	// cancelled share it, because callers may have locked these runs.
	lockWait = 100 * time.Millisecond

	// maxFiredBytes is the most input that one transaction copies.
	maxFiredBytes = 64 << 20
)

// FireSchedules starts the runs of the schedules that are due, and the queued runs whose predecessor has ended. The
// pause is the time until the next schedule is due.
func (k *Coordinator) FireSchedules(ctx context.Context) (time.Duration, error) {
	for ctx.Err() == nil {
		if err := k.releaseQueued(ctx); err != nil {
			return 0, err
		}
		left, ok, err := k.cfg.Store.Schedules.NextDue(ctx)
		switch {
		case err != nil:
			return 0, err
		case !ok || left > 0:
			if !ok || left > k.cfg.Interval {
				left = k.cfg.Interval
			}
			k.unfired.Over(k.cfg.Log, fireSchedules)
			return left, nil
		}
		handled, err := k.fireBatch(ctx)
		if err != nil {
			return 0, err
		}
		if handled == 0 { // another coordinator or a caller's transaction has locked them
			return min(k.cfg.Interval, lockPause), nil
		}
	}
	return 0, ctx.Err()
}

// releaseQueued makes the queued runs due that wait for no other run of their schedule any more. If the server refuses
// one, its schedule is paused, and the others go on. Each pass tries the run again, so it begins soon after the repair.
func (k *Coordinator) releaseQueued(ctx context.Context) error {
	refused := map[uuid.UUID]error{} // by schedule
	released, again, err := k.queued.release(ctx, k.cfg.Store, func(run store.QueuedRun, err error) {
		refused[run.Schedule] = fmt.Errorf("release its queued run %s: %w", run.RunID, err)
	})
	if again {
		k.WakeSchedules()
	}
	if err != nil {
		return err
	}
	k.cfg.Hints.Fired(ctx, released)
	for id, why := range refused {
		k.unfired.Note(k.cfg.Log, releaseQueuedRuns, why)
		if !pg.Refused(why) {
			continue
		}
		// the next pass pauses one that is locked
		if err := k.pause(ctx, id, lockWait, why); err != nil && !pg.Locked(err) {
			return err
		}
	}
	if len(refused) == 0 {
		k.unfired.Over(k.cfg.Log, releaseQueuedRuns)
	}
	return nil
}

// fireBatch fires up to a batch of due schedules in one transaction. If the database refuses that, it fires each
// schedule in a transaction of its own, so that one schedule does not hold up the others. It returns the number of
// schedules handled.
func (k *Coordinator) fireBatch(ctx context.Context) (handled int, err error) {
	if k.cfg.Intercept != nil {
		return k.fireIntercepted(ctx)
	}
	var b batch
	fired, handled, err := k.cfg.Store.Schedules.FireDue(ctx, k.cfg.Batch,
		func(now time.Time, due []*store.Template) []*store.Firing {
			b = k.decideBatch(now, due)
			return b.firings
		})
	if b.due != nil && pg.Answered(err) {
		return k.fireEach(ctx, b.due, lockWait)
	}
	if err != nil {
		return 0, err
	}
	k.cfg.Hints.Fired(ctx, fired)
	for name, why := range b.dropped {
		k.cfg.Log.Warn("kagzi: ticks of a schedule are dropped", "schedule", name, "because", why)
	}
	if len(b.replace) > 0 {
		if _, err := k.fireEach(ctx, b.replace, lockWait/time.Duration(len(b.replace))); err != nil {
			return 0, err
		}
	}
	return handled, nil
}

// fireIntercepted fires due schedules one by one, because code of the application runs around each, and must not run in
// a transaction.
func (k *Coordinator) fireIntercepted(ctx context.Context) (handled int, err error) {
	var all []*store.Template
	_, handled, err = k.cfg.Store.Schedules.FireDue(ctx, k.cfg.Batch,
		func(_ time.Time, due []*store.Template) []*store.Firing {
			all = due
			return nil
		})
	if err != nil || handled == 0 {
		return 0, err
	}
	return k.fireEach(ctx, all, lockWait)
}

// A batch holds the schedules that one transaction fires.
type batch struct {
	due     []*store.Template
	firings []*store.Firing   // for each of them
	replace []*store.Template // schedules whose active runs must be cancelled first: each is fired alone
	dropped map[string]string // by schedule, why ticks were dropped
}

// decideBatch decides which runs the due schedules start, within the bounds of one transaction.
func (k *Coordinator) decideBatch(now time.Time, due []*store.Template) batch {
	b := batch{due: due, firings: make([]*store.Firing, len(due)), dropped: map[string]string{}}
	budget, bytes := k.cfg.MaxRuns, maxFiredBytes
	for i, t := range due {
		most := min(budget, max(0, bytes)/max(1, t.Size))
		if i == 0 { // at least one run, however large
			most = max(1, most)
		}
		f, dropped := decide(t, now, most)
		if dropped != "" {
			b.dropped[t.Name] = dropped
		}
		if f.Replace {
			b.replace = append(b.replace, t)
		}
		b.firings[i] = f
		bytes -= len(f.Runs) * t.Size
		budget = max(0, budget-len(f.Runs))
	}
	return b
}

// fireEach fires schedules one by one: after the database refused them together, to find the schedule that fails, or
// because they cannot share a transaction. It returns the number of those that did not fail.
func (k *Coordinator) fireEach(ctx context.Context, due []*store.Template,
	wait time.Duration,
) (done int, failure error) {
	for _, t := range due {
		switch err := k.FireAlone(ctx, t, wait); {
		case pg.Unavailable(err) && !pg.Answered(err) || pg.Closed(err) || ctx.Err() != nil:
			return 0, err
		case err != nil:
			failure = errors.Join(failure, fmt.Errorf("schedule %q: %w", t.Name, err))
		default:
			done++
		}
	}
	if done > 0 && failure != nil {
		k.unfired.Note(k.cfg.Log, fireSchedules, failure)
		failure = nil
	}
	return done, failure
}

// A refusal is the error of an interceptor that did not let a schedule fire.
type refusal struct{ err error }

func (r *refusal) Error() string { return r.err.Error() }
func (r *refusal) Unwrap() error { return r.err }

// FireAlone fires one schedule, unless its ticks have been decided, or its overlap policy has changed, since t was
// read. It waits at most wait for each lock. It stores the error of an interceptor that refuses the tick, and the
// schedule stays due. It pauses the schedule if the database refuses its runs, and postpones it by lockPause if a
// caller's transaction has locked rows that it needs.
func (k *Coordinator) FireAlone(ctx context.Context, t *store.Template, wait time.Duration) error {
	ticked, err := k.tick(ctx, t, wait)
	if refused, ok := errors.AsType[*refusal](err); ok {
		return errors.Join(refused.err, k.storeRefusal(ctx, t, problemOf(refused.err)))
	}
	switch {
	case err == nil:
		err = k.cfg.Hints.Cancelled(ctx, nil, &ticked.Cancelled)
		k.cfg.Hints.Fired(ctx, ticked.Fired)
	case pg.Locked(err):
		_, err = k.cfg.Store.Schedules.Tick(ctx, t.ID, wait,
			func(now time.Time, t *store.Template) (*store.Edit, error) {
				if t == nil || t.Paused {
					return nil, nil
				}
				return &store.Edit{Fire: &store.Firing{Template: t.ID, Next: now.Add(lockPause)}}, nil
			})
		if pg.Locked(err) { // the schedule itself is locked: the next pass skips it
			err = nil
		}
	case pg.Refused(err):
		k.cfg.Log.Error("kagzi: a schedule cannot be fired, and is paused", "schedule", t.Name, "error", err)
		err = k.pause(ctx, t.ID, wait, err)
	}
	return err
}

// pause pauses a schedule until its repair, and stores why, unless it has been deleted or is paused. One that an
// operator paused gets no problem: Client.Schedule would end its pause.
func (k *Coordinator) pause(ctx context.Context, schedule uuid.UUID, wait time.Duration, why error) error {
	problem := problemOf(why)
	_, err := k.cfg.Store.Schedules.Tick(ctx, schedule, wait,
		func(_ time.Time, t *store.Template) (*store.Edit, error) {
			if t == nil || t.Paused {
				return nil, nil
			}
			return &store.Edit{Fire: &store.Firing{Template: t.ID, Next: t.Next, Problem: problem, Pause: true}}, nil
		})
	return err
}

// storeRefusal stores why a schedule that stays due could not be fired.
func (k *Coordinator) storeRefusal(ctx context.Context, t *store.Template, problem string) error {
	_, err := k.cfg.Store.Schedules.Tick(ctx, t.ID, lockWait,
		func(_ time.Time, t *store.Template) (*store.Edit, error) {
			if t == nil || t.Paused || t.Problem == problem {
				return nil, nil
			}
			return &store.Edit{Fire: &store.Firing{Template: t.ID, Next: t.Next, Problem: problem}}, nil
		})
	if pg.Locked(err) { // a later pass stores it
		return nil
	}
	return err
}

// tick starts the runs of the ticks that have come since the schedule was seen, inside of the interceptors. The ticks
// are still undecided if the schedule is not paused and its cursor has not moved: a call that fires, changes or pauses
// the schedule does one or the other.
func (k *Coordinator) tick(ctx context.Context, seen *store.Template,
	wait time.Duration,
) (ticked store.Ticked, err error) {
	reached := false
	fire := func(ctx context.Context, headers json.RawMessage) (err error) {
		reached = true
		ticked, err = k.cfg.Store.Schedules.Tick(ctx, seen.ID, wait,
			func(now time.Time, t *store.Template) (*store.Edit, error) {
				if t == nil || t.Paused || t.Overlap != seen.Overlap || !t.Cursor.Equal(seen.Cursor) {
					return nil, nil
				}
				f := k.decideAlone(t, now)
				f.Headers = headers
				return &store.Edit{Fire: f}, nil
			})
		return err
	}
	if k.cfg.Intercept != nil {
		if err = k.cfg.Intercept(ctx, seen, fire); err != nil && !reached && ctx.Err() == nil {
			err = &refusal{err}
		}
	} else {
		err = fire(ctx, nil)
	}
	return ticked, err
}

// decideAlone decides which runs a schedule starts in a transaction of its own.
func (k *Coordinator) decideAlone(t *store.Template, now time.Time) *store.Firing {
	f, _ := decide(t, now, min(k.cfg.MaxRuns, max(1, maxFiredBytes/max(1, t.Size))))
	return f
}

// decide decides which runs a schedule starts, at most budget. dropped says why ticks were dropped, which should be
// rare; it is empty if none were.
func decide(t *store.Template, now time.Time, budget int) (f *store.Firing, dropped string) {
	d, err := Schedule(t).Decide(now, budget)
	if err != nil {
		return &store.Firing{Template: t.ID, Problem: problemOf(err), Pause: true, Next: t.Next}, ""
	}
	f = Firing(t, d)
	if f.Replace { // see FireAlone; the schedule is due again in case that fails
		f.Next = now.Add(lockPause)
	}
	return f, d.Dropped
}

// problemOf returns the text of an error in a form that the database can store.
func problemOf(err error) string { return text.Sanitize(text.OfError(err), text.MaxError) }

// Schedule returns the part of a template that decides when it fires.
func Schedule(t *store.Template) *timetable.Schedule {
	return &timetable.Schedule{
		ID: t.ID, Cron: t.Cron, TimeZone: t.TimeZone, CatchUp: t.CatchUp, Overlap: t.Overlap, Spec: t.Timing,
		Paused: t.Paused, Cursor: t.Cursor, Next: t.Next, Active: t.Active, Queued: t.Queued, Cancelled: t.Cancelled,
	}
}

// Firing returns the change to a template, and the runs to start, that carry out a decision. The runs get new IDs.
func Firing(t *store.Template, d timetable.Decision) *store.Firing {
	f := &store.Firing{Template: t.ID, Cursor: d.Cursor, Next: d.Next, Replace: d.Replace}
	for _, tick := range d.Ticks {
		f.Runs = append(f.Runs, store.TickRun{RunID: NewRunID(), Tick: tick, Queued: d.Queued})
	}
	return f
}

// NewRunID returns an ID for a run that a schedule starts.
func NewRunID() uuid.UUID { return uuid.Must(uuid.NewV7()) }

// FiringBefore returns the firing of the past ticks of a schedule that is about to change; nil if its timetable cannot
// be read.
func FiringBefore(t *store.Template, now time.Time) *store.Firing {
	d, err := Schedule(t).DecideBeforeChange(now)
	if err != nil {
		return nil
	}
	return Firing(t, d)
}
