package deeds

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/timetable"
)

// ofSchedules returns what can be done to schedules.
func ofSchedules() []Deed {
	return []Deed{
		ofSchedule(Deed{
			Verb: "pause", Past: "paused", Title: "Pause schedule", Short: "Keep a schedule from firing",
			Says: []string{"Pause keeps a schedule from starting runs until it is resumed. Runs that it has started " +
				"go on."},
			Do: pauseSchedule,
		}, func(_ context.Context, _ Asked, v *View, s admin.ScheduleInfo) error {
			if s.SkipPaused {
				v.Says = append(v.Says, "The ticks that come meanwhile are dropped.")
			} else {
				v.Says = append(v.Says, fmt.Sprintf("The ticks that come meanwhile are kept, the newest %d of them, "+
					"and fire when it is resumed.", s.CatchUp))
			}
			if s.Paused && s.Error == "" {
				v.Refused = errors.New("the schedule is paused already")
			}
			return nil
		}),
		ofSchedule(Deed{
			Verb: "resume", Past: "resumed", Title: "Resume schedule", Short: "Let a paused schedule fire again",
			Says: []string{"Resume lets a paused schedule fire again, by its timetable. The ticks that came " +
				"meanwhile fire at once, as far as its CatchUp and Overlap allow."},
			Do: func(ctx context.Context, a Asked) (Done, error) {
				before, look := a.admin().Schedules.Get(ctx, a.Name)
				err := a.admin().Schedules.Resume(ctx, a.Name, onlyWhy(a)...)
				if err == nil && look == nil && !before.Paused {
					return Done{Said: a.Name + " was not paused", Already: true}, nil
				}
				return Done{}, err
			},
		}, lookResumeSchedule),
		ofSchedule(Deed{
			Verb: "trigger", Past: "triggered", Button: "Start a run now", Short: "Start a run of a schedule now",
			Says: []string{"Trigger starts a run of a schedule now, besides those of its timetable and even if it is " +
				"paused."},
			Fields: []Field{{
				Name: "unless-active", Label: "Only if no run of it is active", Kind: Check, Value: "1",
				Help: "Start nothing if a run of the schedule is active. So a trigger that is sent twice does " +
					"not start two runs.",
			}},
			Do: func(ctx context.Context, a Asked) (done Done, err error) {
				done.New, err = a.admin().Schedules.Trigger(ctx, a.Name, unlessActive(a)...)
				done.Result = kagzi.Started{ID: done.New}
				return done, err
			},
		}, func(_ context.Context, _ Asked, v *View, s admin.ScheduleInfo) error {
			v.Says = append(v.Says, "It is a run of "+s.Workflow+".")
			if s.Active {
				v.Says = append(v.Says, "A run of the schedule is active at the moment.")
			}
			return nil
		}),
		ofSchedule(backfillDeed(), nil),
		ofSchedule(Deed{
			Verb: "delete", Past: "deleted", Title: "Delete schedule", Short: "Delete a schedule", Danger: true,
			Slow: true,
			Says: []string{
				"Delete deletes a schedule: it fires no more. Runs that it has started go on, and stay.",
				"A program that creates the schedule at its start creates it again.",
			},
			Do: func(ctx context.Context, a Asked) (Done, error) {
				return Done{}, a.Client.DeleteSchedule(ctx, a.Name, onlyWhy(a)...)
			},
		}, nil),
	}
}

func backfillDeed() Deed {
	return Deed{
		Verb: "backfill", Past: "backfilled", Button: "Show what would start",
		Short: "Start the runs of past ticks that have none",
		Says: []string{"Backfill starts a run for each tick of the timetable in the past that has none: all at " +
			"once, whatever the overlap policy, and at most 10,000."},
		Fields: []Field{
			{
				Name: "from", Label: "From", Kind: Past, Hint: "7d, or 2026-10-01 08:00 (UTC)",
				Help:     "From this time on: 7d ago, or 2026-09-01T00:00:00Z.",
				Required: "say from when on, such as 7d",
			},
			{Name: "until", Label: "Until", Kind: Past, Hint: "now", Help: "Until this time. Empty: now."},
		},
		Do: backfill, Plan: planBackfill,
	}
}

// ofSchedule is a deed about a schedule, which there must be.
func ofSchedule(d Deed, look func(context.Context, Asked, *View, admin.ScheduleInfo) error) Deed {
	d.Object = Schedule
	d.Look = func(ctx context.Context, a Asked, v *View) error {
		s, err := a.admin().Schedules.Get(ctx, a.Name)
		if err != nil || look == nil {
			return err
		}
		return look(ctx, a, v, s)
	}
	return d
}

// pauseSchedule leaves the reason and the actor of an earlier pause, unless others are given.
func pauseSchedule(ctx context.Context, a Asked) (done Done, err error) {
	s, look := a.admin().Schedules.Get(ctx, a.Name)
	if look == nil && s.Paused {
		done.Said, done.Already = a.Name+" was paused already", true
	}
	if done.Already && s.Error == "" && !a.Explained {
		return done, nil
	}
	return done, a.admin().Schedules.Pause(ctx, a.Name, onlyWhy(a)...)
}

func lookResumeSchedule(ctx context.Context, a Asked, v *View, s admin.ScheduleInfo) error {
	if !s.Paused {
		v.Refused = errors.New("the schedule is not paused")
		return nil
	}
	fires, err := a.admin().Schedules.NextFires(ctx, s.Name, s.CatchUp+1)
	if err != nil {
		v.Warning = err
		return nil // the resume will say it, too
	}
	now, overdue := time.Now(), 0
	for _, at := range fires {
		if !at.After(now) {
			overdue++
		}
	}
	if overdue > 0 {
		v.Says = append(v.Says, plural(overdue, "tick")+" that came meanwhile fire at once.")
	} else {
		v.Says = append(v.Says, "No tick that came meanwhile fires.")
	}
	return nil
}

// unlessActive are the options of a trigger.
func unlessActive(a Asked) []kagzi.ChangeOption {
	if a.Values.Has("unless-active") {
		return why[kagzi.ChangeOption](a, kagzi.RejectActive)
	}
	return onlyWhy(a)
}

const (
	shownTicks = 20
	// mostCompared bounds the runs of a schedule that are read to say which ticks have one.
	mostCompared = 2000
)

func backfill(ctx context.Context, a Asked) (done Done, err error) {
	from, until, err := backfillRange(ctx, a)
	if err != nil {
		return done, err
	}
	n, err := a.admin().Schedules.Backfill(ctx, a.Name, from, until, onlyWhy(a)...)
	done.Said = fmt.Sprintf("started %s of %s", plural(n, "run"), a.Name)
	done.Result = map[string]any{"name": a.Name, "started": n}
	return done, err
}

func planBackfill(ctx context.Context, a Asked) (*Plan, error) {
	from, until, err := backfillRange(ctx, a)
	if err != nil {
		return nil, err
	}
	s, err := a.admin().Schedules.Get(ctx, a.Name)
	if err != nil {
		return nil, err
	}
	would, err := ticksOf(ctx, a, s, from, until)
	if err != nil {
		return nil, err
	}
	left := would.All - would.Have
	would.Button = "Start " + plural(left, "run")
	switch {
	case would.More:
		return nil, mistake("there are more than 10,000 ticks in that time: backfill it in parts")
	case left == 0:
		return nil, mistake("there is nothing to start: of the %s in that time, none lacks a run",
			plural(would.All, "tick"))
	case would.Unknown:
		would.Button = "Start them"
	}
	return would, nil
}

// backfillRange reads the time. Without an end it is now by the database's clock, as a tick in the future is refused.
func backfillRange(ctx context.Context, a Asked) (from, until time.Time, err error) {
	report, err := a.admin().Health(ctx)
	if err == nil && report.At.IsZero() {
		err = fmt.Errorf("the database does not answer: %s", report.Check("database").Detail)
	}
	now := report.At
	from, until = a.past("from", now), a.past("until", now)
	if until.IsZero() {
		until = now
	}
	switch {
	case err != nil:
	case until.Before(from):
		err = mistake("the time ends before it begins")
	case until.After(now):
		err = mistake("the time ends in the future: a schedule fires those ticks by itself")
	}
	return from, until, err
}

// ticksOf returns the ticks of a schedule, and which of them have runs.
func ticksOf(ctx context.Context, a Asked, s admin.ScheduleInfo, from, until time.Time) (*Plan, error) {
	spec, err := json.Marshal(timetable.Spec{Every: s.Every, Start: s.Start, End: s.End})
	if err != nil {
		return nil, err
	}
	table, err := (&timetable.Schedule{Cron: s.Cron, TimeZone: s.TimeZone, Spec: spec}).Timetable()
	if err != nil {
		return nil, mistake("the timetable cannot be read: %v", err)
	}
	all, more := table.Between(from, until, timetable.MaxTicks)
	out := &Plan{All: len(all), More: more, From: from, Until: until}
	runs, tooMany, err := fired(ctx, a.Client, s.Name, from)
	if err != nil {
		return nil, err
	}
	out.Unknown = tooMany
	for _, at := range all {
		have := runs[at.UnixMicro()]
		if have {
			out.Have++
		}
		if len(out.First) < shownTicks {
			out.First = append(out.First, Tick{at, have})
		}
	}
	return out, nil
}

// fired returns the ticks, in microseconds, for which a schedule has runs that were started since.
func fired(ctx context.Context, c *kagzi.Client, name string,
	since time.Time,
) (ticks map[int64]bool, tooMany bool, err error) {
	ticks = map[int64]bool{}
	f := kagzi.RunFilter{Schedule: name, Since: since.Add(-time.Second), Limit: 500}
	for n := 0; n < mostCompared; n += f.Limit {
		page, err := c.List(ctx, f)
		if err != nil {
			return nil, false, err
		}
		for _, r := range page {
			if !r.FireTime.IsZero() {
				ticks[r.FireTime.UnixMicro()] = true
			}
		}
		if len(page) < f.Limit {
			return ticks, false, nil
		}
		f.After = page[len(page)-1].ID
	}
	return ticks, true, nil
}
