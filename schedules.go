package kagzi

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/kagzi/kagzi/internal/core"
	"github.com/kagzi/kagzi/internal/duration"
	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/housekeeping"
	"github.com/kagzi/kagzi/internal/text"
	"github.com/kagzi/kagzi/internal/timetable"
	"github.com/kagzi/kagzi/internal/valid"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/store"
)

// A Schedule starts Run by the clock: at each tick of Cron or Every. Create it with [Client.Schedule].
type Schedule struct {
	// Name is the schedule's name, unique in the namespace; at most 255 bytes.
	Name string

	// Run is the workflow to start, with its input and options: Report.With(in, kagzi.Queue("reports")). Each tick
	// starts a run of its own, so Run takes no ID, Delay, At, Message or InTx.
	Run Call

	// Cron is a cron expression in TimeZone: five fields (minute, hour, day of month, month, day of week), six with
	// seconds first, or seven with the year last; names, ranges, steps, lists, L, W and #; or a macro such as @daily.
	// If day of month and day of week are both restricted, either may match: 0 7 1 * mon is the 1st, and Mondays; a
	// field that begins with *, such as */2, is not restricted. When clocks are set forward, a tick in the gap fires at
	// the first instant after it. When they are set back, a tick in the repeated hour fires in its first pass, unless
	// the hour is * or a step.
	Cron string

	// Every is the time between two ticks, in whole seconds, instead of Cron. Ticks are counted from Start, whose
	// fraction of a second is dropped. Without Start they are counted from a fixed instant long ago: one is at midnight
	// UTC if Every divides a day, and the first comes within one Every.
	Every time.Duration

	// TimeZone is the IANA name of Cron's time zone, such as "Europe/Berlin". Zero means UTC.
	TimeZone string

	// Overlap says what a tick does while a run of this schedule is active. Zero means that it starts another run.
	Overlap Overlap

	// CatchUp is how many ticks, the newest, are kept while no coordinator can fire them or the schedule is paused.
	// Unless runs may overlap, one tick is kept. Zero means 100; the maximum is 10,000.
	CatchUp int

	// CatchUpAge is how late a tick may fire, at least one second; an older one is dropped. Zero means no limit.
	CatchUpAge time.Duration

	// SkipPaused drops the ticks that come while the schedule is paused. Without it they fire when the schedule is
	// resumed.
	SkipPaused bool

	// Jitter spreads schedules of one timetable: each starts its runs later than its ticks, by a constant share of
	// Jitter of its own. From 1 ms to 24 hours. Zero means none.
	Jitter time.Duration

	// FireNew starts a run when the schedule is created, besides those of its ticks. The time of creation is its
	// FireTime. It does nothing in a call that changes a schedule.
	FireNew bool

	// Start and End limit the ticks, both included. Zero means no limit. Give fixed times: Every counts from Start. If
	// a program calls Schedule with Start: time.Now() each time it starts, the ticks move each time, and never fire if
	// it restarts more often than Every.
	Start, End time.Time
}

// Overlap says what a tick does while a run of its schedule is active. A cancelled run is active until it has ended,
// its compensations included.
type Overlap string

// Overlap policies. Without one, a tick always starts another run.
const (
	OverlapSkip Overlap = timetable.OverlapSkip // the tick is dropped
	// one tick waits for the end of the active run; further ones are dropped
	OverlapQueueOne Overlap = timetable.OverlapQueueOne
	// all active runs of the schedule are cancelled, and the tick's run begins when they have ended
	OverlapCancelPrevious Overlap = timetable.OverlapCancelPrevious
)

// validate checks all but the run.
func (s *Schedule) validate() error {
	errs := []error{valid.Name("schedule name", s.Name)}
	check := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf("kagzi: "+format, args...))
		}
	}
	check(s.Run.workflow == "", "Run is missing: bind a workflow to its input, as in Report.With(in)")
	check(s.Cron == "" && s.Every == 0, "neither Cron nor Every is set")
	check(s.Cron != "" && s.Every != 0, "both Cron and Every are set: choose one")
	check(s.Every != 0 && s.TimeZone != "", "TimeZone has no meaning with Every, which counts real time: use Cron")
	switch s.Overlap {
	case "", OverlapSkip, OverlapQueueOne, OverlapCancelPrevious:
	default:
		check(true, "there is no Overlap %s: give kagzi.OverlapSkip, OverlapQueueOne or OverlapCancelPrevious, or "+
			"leave it out", text.Quote(string(s.Overlap)))
	}
	check(s.CatchUp < 0 || s.CatchUp > timetable.MaxTicks, "CatchUp is %d: give between 1 and %d; to drop what is "+
		"missed, set CatchUpAge", s.CatchUp, timetable.MaxTicks)
	check(s.CatchUpAge != 0 && s.CatchUpAge < time.Second, "CatchUpAge is %v: give at least 1s (a time.Duration "+
		"counts nanoseconds: 30*time.Second)", s.CatchUpAge)
	check(s.Jitter != 0 && (s.Jitter < time.Millisecond || s.Jitter > 24*time.Hour), "Jitter is %v: give between 1ms "+
		"and 24h (a time.Duration counts nanoseconds: 30*time.Second)", s.Jitter)
	check(!s.Start.IsZero() && !s.End.IsZero() && s.End.Before(s.Start), "End %s is before Start %s",
		s.End.Format(time.RFC3339), s.Start.Format(time.RFC3339))
	errs = append(errs, valid.Time("Start", s.Start), valid.Time("End", s.End),
		duration.CheckLength("Every", s.Every),
		duration.CheckLength("CatchUpAge", s.CatchUpAge))
	return errors.Join(errs...)
}

// template returns the row of s, without its cursor.
func (c *Client) template(s *Schedule) (*store.Template, *timetable.Timetable, error) {
	if err := s.validate(); err != nil {
		return nil, nil, err
	}
	call := s.Run
	call.as = asTick
	cfg, err := call.config(nil)
	if err != nil {
		return nil, nil, err
	}
	run, err := c.newRun(context.Background(), call, &cfg)
	if err != nil {
		return nil, nil, err
	}
	timing, err := json.Marshal(timetable.Spec{
		Every: s.Every, CatchUpAge: s.CatchUpAge, SkipPaused: s.SkipPaused, Jitter: s.Jitter, Start: s.Start.UTC(),
		End: s.End.UTC(),
	})
	if err != nil {
		return nil, nil, err
	}
	t := &store.Template{
		Spec: run.Spec, ID: c.core.ScheduleID(s.Name), Name: s.Name, Input: run.Input, Cron: s.Cron,
		TimeZone: s.TimeZone, CatchUp: cmp.Or(s.CatchUp, 100), Overlap: string(s.Overlap), Timing: timing,
	}
	table, err := housekeeping.Schedule(t).Timetable()
	if err != nil {
		return nil, nil, failure.Of(kind.BadRequest, fmt.Errorf("kagzi: %w", err))
	}
	return t, table, nil
}

// Schedule creates the schedule named s.Name, or changes it to s; call it at each start of the program. The last caller
// wins, even if it is an older program that starts again during a deploy.
//
// A new schedule begins now: admin.Schedules.Backfill runs earlier ticks. If the timetable of a schedule changes,
// its past ticks fire by the old timetable, and future ones by s. A paused schedule stays paused, and when it is
// resumed, the ticks of its pause fire by what it has then.
//
// Schedule returns an error for a cron expression that does not parse or never fires, an unknown time zone, and a
// timetable without a future tick. It takes [InTx], [Reason] and [Actor].
func (c *Client) Schedule(ctx context.Context, s Schedule, opts ...ChangeOption) error {
	cfg, err := core.Changes(opts, core.EveryVerb)
	if err := cmp.Or(err, c.Core().Usable(ctx)); err != nil {
		return failure.Wrap(err, "schedule %.60q", s.Name)
	}
	saved, table, err := c.template(&s)
	if err != nil {
		return failure.Wrap(err, "schedule %.60q", s.Name)
	}
	first, entry := housekeeping.NewRunID(), core.ScheduleEntry(store.EventUpdated, s.Name, &cfg)
	return c.Core().EditSchedule(ctx, cfg.Tx, "schedule", s.Name,
		func(now time.Time, old *store.Template) (*store.Edit, error) {
			t := *saved
			e := &store.Edit{Save: &t, Entry: c.core.ScheduleChanged(entry, old, saved)}
			t.Cursor = now
			if old != nil {
				if old.Paused && old.Problem == "" { // one that Kagzi paused is repaired by this
					t.Paused, t.PausedAt, t.PauseWhy = true, old.PausedAt, old.PauseWhy
				}
				switch {
				case old.Paused || timetable.SameTicks(housekeeping.Schedule(old), housekeeping.Schedule(&t)):
					// the coordinator fires the past ticks, now or once it is resumed
					t.Cursor = old.Cursor
				default:
					e.Fire = housekeeping.FiringBefore(old, now)
				}
			}
			t.Next = table.Next(t.Cursor)
			if t.Next.IsZero() {
				return nil, neverAgain(&s)
			}
			if old == nil && s.FireNew {
				e.Fire = &store.Firing{
					Template: t.ID, Runs: []store.TickRun{{RunID: first, Tick: now}}, Cursor: now,
					Next: t.Next,
				}
			}
			return e, nil
		})
}

// neverAgain is the error for a schedule that never fires again.
func neverAgain(s *Schedule) error {
	if s.End.IsZero() {
		return fmt.Errorf("kagzi: cron %q never fires again: its last tick is in the past", s.Cron)
	}
	return fmt.Errorf("kagzi: no tick is left before End %s", s.End.Format(time.RFC3339))
}

// DeleteSchedule deletes a schedule. The runs that it has started continue and stay as history; List with
// RunFilter.Schedule still finds them. Cancel those that wait for a worker that will not come. It returns [ErrNotFound]
// if there is no such schedule. It takes [InTx], [Reason] and [Actor].
func (c *Client) DeleteSchedule(ctx context.Context, name string, opts ...ChangeOption) error {
	cfg, err := core.Changes(opts, core.EveryVerb)
	if err != nil {
		return failure.Wrap(err, "delete schedule %.60q", name)
	}
	gone := false // by an earlier try, whose answer was lost
	entry := core.ScheduleEntry(store.EventDeleted, name, &cfg)
	return c.Core().EditSchedule(ctx, cfg.Tx, "delete schedule", name,
		func(_ time.Time, t *store.Template) (*store.Edit, error) {
			if t == nil && !gone {
				return nil, store.ErrScheduleNotFound
			}
			gone = true
			return &store.Edit{Delete: true, Entry: &entry}, nil
		})
}
