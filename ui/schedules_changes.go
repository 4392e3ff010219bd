package ui

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/timetable"
	"github.com/kagzi/kagzi/ui/internal/web"
)

// scheduleForms change schedules.
type scheduleForms struct {
	client *kagzi.Client
	admin  *admin.Client
}

// scheduleForm is a form about one schedule.
func (p *scheduleForms) scheduleForm(verb Verb, title string, show func(context.Context, web.Query, admin.ScheduleInfo,
	*web.Dialog) error, do func(context.Context, web.Form, string) (web.Answer, error),
) web.ChangeForm {
	return web.ChangeForm{
		Path: "/schedules/{name}/" + string(verb), Action: asks(verb, OnSchedule), Slow: verb == Delete,
		Show: func(ctx context.Context, q web.Query) (*web.Dialog, error) {
			s, err := p.admin.GetSchedule(ctx, q.Path("name"))
			if err != nil {
				return nil, err
			}
			v := &web.Dialog{Title: title + " " + s.Name, Back: at("/schedules/", s.Name)}
			if err := show(ctx, q, s, v); err != nil {
				return nil, err
			}
			return v, nil
		},
		Do: func(ctx context.Context, f web.Form) (web.Answer, error) {
			name := f.Path("name")
			done, err := do(ctx, f, name)
			if done.To == "" {
				done.To = at("/schedules/", name)
			}
			return done, err
		},
	}
}

// all are the forms.
func (p *scheduleForms) all() []web.ChangeForm {
	return []web.ChangeForm{
		p.scheduleForm(Pause, "Pause schedule", func(_ context.Context, _ web.Query, s admin.ScheduleInfo,
			v *web.Dialog,
		) error {
			v.Do, v.Says = "Pause the schedule",
				[]string{"It starts no runs until it is resumed. Runs that it has started go on."}
			if s.SkipPaused {
				v.Says = append(v.Says, "The ticks that come meanwhile are dropped.")
			} else {
				v.Says = append(v.Says, fmt.Sprintf("The ticks that come meanwhile are kept, the newest %d of them, "+
					"and fire when it is resumed.", s.CatchUp))
			}
			if s.Paused && s.Error == "" {
				v.Refused = "The schedule is paused already."
			}
			return nil
		}, func(ctx context.Context, f web.Form, name string) (web.Answer, error) {
			return web.Answer{Said: "Paused."}, p.admin.PauseSchedule(ctx, name, f.Options()...)
		}),
		p.scheduleForm(Resume, "Resume schedule", p.showResumeSchedule,
			func(ctx context.Context, f web.Form, name string) (web.Answer, error) {
				return web.Answer{Said: "Resumed."}, p.admin.ResumeSchedule(ctx, name, f.Options()...)
			}),
		p.scheduleForm(Trigger, "Trigger", func(_ context.Context, _ web.Query, s admin.ScheduleInfo,
			v *web.Dialog,
		) error {
			v.Do = "Start a run now"
			v.Says = []string{"A run of " + s.Workflow + " starts now, besides those of the timetable, and even if " +
				"the schedule is paused."}
			if s.Active {
				v.Says = append(v.Says, "A run of the schedule is active at the moment.")
			}
			v.Fields = []web.Field{{
				Name: "unless-active", Label: "Only if no run of it is active", Sort: "check", On: true,
				Help: "This also keeps a form that is sent twice from starting two runs.",
			}}
			return nil
		}, func(ctx context.Context, f web.Form, name string) (web.Answer, error) {
			opts := f.Options()
			if f.Asked("unless-active") {
				opts = append(opts, kagzi.RejectActive)
			}
			run, err := p.admin.TriggerSchedule(ctx, name, opts...)
			return web.Answer{
				Leads: true, To: "/runs/" + string(run),
				Said: "Triggered " + name + ": this is the run.",
			}, err
		}),
		p.scheduleForm(Backfill, "Backfill", func(_ context.Context, _ web.Query, _ admin.ScheduleInfo,
			v *web.Dialog,
		) error {
			v.Do = "Show what would start"
			v.Says = []string{"For each tick of the timetable in the past that has no run, one starts: all at once, " +
				"whatever the overlap policy, and at most 10,000."}
			v.Fields = []web.Field{
				{Name: "from", Label: "From", Sort: "text", Hint: "7d, or 2026-10-01 08:00 (UTC)", Required: true},
				{Name: "until", Label: "Until", Sort: "text", Hint: "now"},
			}
			return nil
		}, p.backfill),
		p.scheduleForm(Delete, "Delete schedule", func(_ context.Context, _ web.Query, s admin.ScheduleInfo,
			v *web.Dialog,
		) error {
			v.Do, v.Danger = "Delete the schedule", true
			v.Says = []string{
				"It fires no more. Runs that it has started go on, and stay.",
				"A program that creates the schedule at its start creates it again.",
			}
			return nil
		}, func(ctx context.Context, f web.Form, name string) (web.Answer, error) {
			return web.Answer{Leads: true, To: "/schedules", Said: "Deleted the schedule " + name + "."},
				p.client.DeleteSchedule(ctx, name, f.Options()...)
		}),
	}
}

func (p *scheduleForms) showResumeSchedule(ctx context.Context, _ web.Query, s admin.ScheduleInfo,
	v *web.Dialog,
) error {
	v.Do, v.Says = "Resume the schedule", []string{"It fires again, by its timetable."}
	if !s.Paused {
		v.Refused = "The schedule is not paused."
		return nil
	}
	fires, err := p.admin.NextFires(ctx, s.Name, s.CatchUp+1)
	if err != nil {
		v.Warning = web.Sentence(err)
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

// ticks are what a backfill would start.
type ticks struct {
	All     int
	More    bool // there are more than 10,000
	Have    int  // have a run already
	Unknown bool // there are too many runs to be compared
	First   []tick
	From    time.Time
	Until   time.Time
}

// Rest is how many ticks are not shown.
func (t *ticks) Rest() int { return t.All - len(t.First) }

// A tick is one time of a timetable.
type tick struct {
	At   time.Time
	Have bool
}

const (
	shownTicks = 20
	// mostCompared bounds the runs of a schedule that are read to say which ticks have one.
	mostCompared = 2000
)

// backfill shows what would start, and then starts it.
func (p *scheduleForms) backfill(ctx context.Context, f web.Form, name string) (web.Answer, error) {
	from, until, err := p.backfillRange(ctx, f.Query)
	if err != nil {
		return web.Answer{}, err
	}
	if f.Asked("sure") {
		n, err := p.admin.BackfillSchedule(ctx, name, from, until, f.Options()...)
		return web.Answer{Said: "Started " + plural(n, "run") + "."}, err
	}
	s, err := p.admin.GetSchedule(ctx, name)
	if err != nil {
		return web.Answer{}, err
	}
	would, err := p.ticksOf(ctx, s, from, until)
	if err != nil {
		return web.Answer{}, err
	}
	left := would.All - would.Have
	switch {
	case would.More:
		return web.Answer{}, web.BadRequest("There are more than 10,000 ticks in that time: backfill it in parts.")
	case left == 0:
		return web.Answer{}, web.BadRequest("There is nothing to start: of the %s in that time, none lacks a run.",
			plural(would.All, "tick"))
	}
	v := &web.Dialog{
		Title: "Backfill " + name, Do: "Start " + plural(left, "run"), Back: at("/schedules/", name),
		Plan: would,
	}
	if would.Unknown {
		v.Do = "Start them"
	}
	v.Fields = []web.Field{
		{Name: "from", Sort: "hidden", Value: from.Format(time.RFC3339Nano)},
		{Name: "until", Sort: "hidden", Value: until.Format(time.RFC3339Nano)},
		{Name: "sure", Sort: "hidden", Value: "1"},
	}
	v.Finish(f.Query, true)
	return web.Answer{Template: "change", View: v, Again: true}, nil
}

// backfillRange reads the fields from and until. Without until it is now by the database's clock, as a tick in the
// future is refused.
func (p *scheduleForms) backfillRange(ctx context.Context, q web.Query) (from, until time.Time, err error) {
	report, err := p.admin.Health(ctx)
	if err != nil {
		return from, until, err
	}
	now := report.At
	if now.IsZero() {
		now = time.Now()
	}
	if q.Get("from") == "" {
		return from, until, web.BadRequest("Say from when on: 7d, or 2026-10-01.")
	}
	if from, err = past(q.Get("from"), now); err != nil {
		return from, until, err
	}
	if until, err = past(q.Get("until"), now); err != nil {
		return from, until, err
	}
	if until.IsZero() {
		until = now
	}
	switch {
	case until.Before(from):
		err = web.BadRequest("The time ends before it begins.")
	case until.After(now):
		err = web.BadRequest("The time ends in the future: a schedule fires those ticks by itself.")
	}
	return from, until, err
}

// ticksOf returns the ticks of a schedule, and which of them have runs.
func (p *scheduleForms) ticksOf(ctx context.Context, s admin.ScheduleInfo, from, until time.Time) (*ticks, error) {
	spec, err := json.Marshal(timetable.Spec{Every: s.Every, Start: s.Start, End: s.End})
	if err != nil {
		return nil, err
	}
	table, err := (&timetable.Schedule{Cron: s.Cron, TimeZone: s.TimeZone, Spec: spec}).Timetable()
	if err != nil {
		return nil, web.BadRequest("The timetable cannot be read: %v", err)
	}
	all, more := table.Between(from, until, timetable.MaxTicks)
	out := &ticks{All: len(all), More: more, From: from, Until: until}
	runs, tooMany, err := p.fired(ctx, s.Name, from)
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
			out.First = append(out.First, tick{at, have})
		}
	}
	return out, nil
}

// fired returns the ticks, in microseconds, for which a schedule has runs that were started since.
func (p *scheduleForms) fired(ctx context.Context, name string,
	since time.Time,
) (ticks map[int64]bool, tooMany bool, err error) {
	ticks = map[int64]bool{}
	f := kagzi.RunFilter{Schedule: name, Since: since.Add(-time.Second), Limit: 500}
	for n := 0; n < mostCompared; n += f.Limit {
		page, err := p.client.List(ctx, f)
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
