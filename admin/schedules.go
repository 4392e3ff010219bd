package admin

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/core"
	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/housekeeping"
	"github.com/kagzi/kagzi/internal/timetable"
	"github.com/kagzi/kagzi/internal/valid"
	"github.com/kagzi/kagzi/store"
)

// Schedules has the verbs for schedules: admin.New(client).Schedules. [kagzi.Client] declares and deletes them.
type Schedules struct{ core *core.Client }

// existing returns an edit that requires the schedule to exist.
func existing(edit func(now time.Time, t *store.Template) (*store.Edit, error)) func(time.Time,
	*store.Template) (*store.Edit, error) {
	return func(now time.Time, t *store.Template) (*store.Edit, error) {
		if t == nil {
			return nil, store.ErrScheduleNotFound
		}
		return edit(now, t)
	}
}

// Pause keeps a schedule from firing until [Schedules.Resume]. Unless SkipPaused is set, the newest
// CatchUp of the ticks that come meanwhile are kept and fire then, with the input that the schedule has then. Runs that
// the schedule has started continue. It takes [kagzi.InTx], and [kagzi.Reason] and [kagzi.Actor], which [ScheduleInfo]
// shows. Pause returns [kagzi.ErrNotFound] if there is no such schedule. If it is already paused, it stays so,
// with its reason and actor unless others are given.
func (s Schedules) Pause(ctx context.Context, name string, opts ...kagzi.ChangeOption) error {
	cfg, err := core.Changes(opts, core.EveryVerb)
	if err != nil {
		return failure.Wrap(err, "pause schedule %.60q", name)
	}
	entry := core.ScheduleEntry(store.EventPaused, name, &cfg)
	return s.core.EditSchedule(ctx, cfg.Tx, "pause schedule", name,
		existing(func(now time.Time, t *store.Template) (*store.Edit, error) {
			why := store.Why{Reason: cmp.Or(cfg.Reason, t.PauseWhy.Reason), Actor: cmp.Or(cfg.Actor, t.PauseWhy.Actor)}
			if t.Paused && t.Problem == "" {
				if why == t.PauseWhy {
					return nil, nil
				}
				t.PauseWhy = why
				return &store.Edit{Save: t, Entry: &entry}, nil
			}
			// without the problem, so that a change does not resume it
			e := &store.Edit{Save: t, Entry: &entry}
			// the ticks that have come precede the pause
			if table, err := housekeeping.Schedule(t).Timetable(); err == nil && table.SkipPaused {
				e.Fire = housekeeping.FiringBefore(t, now)
				t.Cursor = now
			}
			t.Paused, t.PausedAt, t.PauseWhy = true, now, why
			return e, nil
		}))
}

// Resume lets a paused schedule fire again. The ticks that came meanwhile fire as far as its CatchUp,
// CatchUpAge and Overlap allow, or are dropped if SkipPaused is set. It returns [kagzi.ErrNotFound] if there is no such
// schedule, and nil if it is not paused. It takes [kagzi.InTx], [kagzi.Reason] and [kagzi.Actor].
func (s Schedules) Resume(ctx context.Context, name string, opts ...kagzi.ChangeOption) error {
	cfg, err := core.Changes(opts, core.EveryVerb)
	if err != nil {
		return failure.Wrap(err, "resume schedule %.60q", name)
	}
	entry := core.ScheduleEntry(store.EventResumed, name, &cfg)
	return s.core.EditSchedule(ctx, cfg.Tx, "resume schedule", name,
		existing(func(now time.Time, t *store.Template) (*store.Edit, error) {
			if !t.Paused {
				return nil, nil
			}
			table, err := housekeeping.Schedule(t).Timetable()
			if err != nil {
				return nil, fmt.Errorf("%w: repair it with Client.Schedule", err)
			}
			t.Cursor = table.Resume(t.Cursor, now)
			t.Paused, t.PausedAt, t.PauseWhy, t.Next = false, time.Time{}, store.Why{}, table.Next(t.Cursor)
			return &store.Edit{Save: t, Entry: &entry}, nil
		}))
}

// Trigger starts a run of the schedule now, whatever its timetable and overlap policy, and even if it is
// paused. The run belongs to no tick: its FireTime is the zero time. It takes [kagzi.InTx], [kagzi.Reason] and
// [kagzi.Actor]. It returns [kagzi.ErrNotFound] if there is no such schedule. With [kagzi.RejectActive] it starts
// nothing, and returns [kagzi.ErrRunActive], if a run of the schedule, or of its [kagzi.Group], is active.
func (s Schedules) Trigger(ctx context.Context, name string, opts ...kagzi.ChangeOption) (kagzi.RunID, error) {
	cfg, err := core.Changes(opts, core.Takes("IfActive"))
	if err != nil {
		return "", failure.Wrap(err, "trigger schedule %.60q", name)
	}
	id := housekeeping.NewRunID()
	entry := core.ScheduleEntry(store.ActionTriggered, name, &cfg)
	entry.Other = id
	err = s.start(ctx, cfg.Tx, "trigger schedule", name, id,
		func(_ time.Time, t *store.Template) (*store.Edit, error) {
			return &store.Edit{
				Fire: besideTicks(t, []store.TickRun{{RunID: id}}), UnlessActive: cfg.Reject,
				Entry: &entry,
			}, nil
		})
	if err != nil {
		return "", err
	}
	return kagzi.RunID(id.String()), nil
}

// start edits a schedule that exists by starting runs of it, inside of the interceptors. run is the run's ID,
// if there is one run.
func (s Schedules) start(ctx context.Context, tx pgx.Tx, what, name string, run uuid.UUID,
	edit func(time.Time, *store.Template) (*store.Edit, error),
) error {
	if err := s.core.Usable(ctx); err != nil {
		return failure.Wrap(err, "%s %.60q", what, name)
	}
	call := core.StartCall{Schedule: name, Run: run}
	return s.core.InterceptStart(ctx, call, func(ctx context.Context, headers json.RawMessage) error {
		return s.core.EditSchedule(ctx, tx, what, name,
			existing(func(now time.Time, t *store.Template) (*store.Edit, error) {
				e, err := edit(now, t)
				if err == nil && headers != nil {
					e.Fire.Headers = core.Over(headers, t.Headers)
				}
				return e, err
			}))
	})
}

// besideTicks returns a firing that starts runs without moving the schedule.
func besideTicks(t *store.Template, runs []store.TickRun) *store.Firing {
	return &store.Firing{Template: t.ID, Runs: runs, Next: t.Next, Problem: t.Problem}
}

// Backfill starts a run for each tick of the timetable between from and until, both included, that has no run
// in the table. It starts them all at once, whatever the overlap policy, and returns how many it started. until must
// not be in the future. A tick whose run retention has deleted gets another run. More than 10,000 ticks are an error:
// backfill in parts. It takes [kagzi.InTx], [kagzi.Reason] and [kagzi.Actor].
func (s Schedules) Backfill(ctx context.Context, name string, from, until time.Time,
	opts ...kagzi.ChangeOption,
) (int, error) {
	cfg, err := core.Changes(opts, core.EveryVerb)
	if err == nil {
		err = errors.Join(valid.Time("from", from), valid.Time("until", until))
	}
	if err == nil && until.Before(from) {
		err = fmt.Errorf("kagzi: until %s is before from %s", until.Format(time.RFC3339), from.Format(time.RFC3339))
	}
	if err != nil {
		return 0, failure.Wrap(err, "backfill schedule %.60q", name)
	}
	var fired int
	entry := core.ScheduleEntry(store.ActionBackfilled, name, &cfg)
	entry.Change("from", "", core.TimeText(from))
	entry.Change("until", "", core.TimeText(until))
	ids := map[time.Time]uuid.UUID{} // the same in every try
	err = s.start(ctx, cfg.Tx, "backfill schedule", name, uuid.Nil,
		func(now time.Time, t *store.Template) (*store.Edit, error) {
			table, err := housekeeping.Schedule(t).Timetable()
			if err == nil && until.After(now) {
				err = fmt.Errorf("kagzi: until %s is in the future", until.Format(time.RFC3339))
			}
			if err != nil {
				return nil, err
			}
			ticks, more := table.Between(from, until, timetable.MaxTicks)
			if more {
				return nil, fmt.Errorf("kagzi: the range has more than %d ticks: backfill it in parts",
					timetable.MaxTicks)
			}
			runs := make([]store.TickRun, len(ticks))
			for i, tick := range ticks {
				if _, ok := ids[tick]; !ok {
					ids[tick] = housekeeping.NewRunID()
				}
				runs[i] = store.TickRun{RunID: ids[tick], Tick: tick}
			}
			try := entry // its Changes will say how many runs the try has started
			return &store.Edit{Fire: besideTicks(t, runs), Count: &fired, Entry: &try}, nil
		})
	return fired, err
}
