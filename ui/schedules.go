package ui

import (
	"context"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/ui/internal/web"
)

// schedulePages are about runs that start by the clock.
type schedulePages struct {
	client   *kagzi.Client
	admin    *admin.Client
	payloads payloads
}

// pages are those pages.
func (p *schedulePages) pages() []web.Page {
	return []web.Page{
		{
			Path: "/schedules", Action: asks(View, OnSchedule), Template: "schedules",
			Live: []string{"schedule-rows", "agenda"}, Look: p.schedules,
			Parts: []web.Part{{Name: "agenda", Every: 20 * time.Second, Look: p.agenda}},
		},
		{
			Path: "/schedules/{name}", Action: asks(View, OnSchedule), Template: "schedule",
			Live: []string{"schedule-buttons", "schedule-state", "schedule-fires", "schedule-runs", "changed"},
			Look: p.schedule,
		},
	}
}

// mostScanned is how many schedules a search by a part of the name reads.
const mostScanned = 2000

// A scheduleList is the view model of the list of schedules.
type scheduleList struct {
	Schedules []scheduleRow
	Next      string // path of the next page; empty on the last one
	First     bool
	Filtered  bool
	Cut       bool // the search has not read all schedules
}

// A scheduleRow is a schedule with what the page says about it.
type scheduleRow struct {
	admin.ScheduleInfo
	Tone, State string    // of its badge
	Words       string    // its timetable in words; empty if there are none
	Code        string    // its cron expression
	Fired       time.Time // the newest tick; zero before the first
	Overdue     bool
	Lapse       string // what it does while a run is active
}

func (p *schedulePages) schedules(ctx context.Context, q web.Query) (any, error) {
	v := scheduleList{First: q.Get("after") == "", Filtered: q.Has("name", "workflow")}
	found, cut, err := p.scanSchedules(ctx, admin.ScheduleFilter{Workflow: q.Get("workflow"), After: q.Get("after")},
		q.Get("name"), pageSize+1)
	if err != nil {
		return nil, err
	}
	v.Cut = cut
	shown, more := bounded(found, pageSize)
	now := time.Now()
	for _, s := range shown {
		v.Schedules = append(v.Schedules, rowOf(s, now))
	}
	if more > 0 {
		v.Next = q.With("after", shown[pageSize-1].Name)
	}
	return v, nil
}

// scanSchedules returns the first n schedules whose names contain part, and whether it gave up before it had read all.
func (p *schedulePages) scanSchedules(ctx context.Context, f admin.ScheduleFilter, part string,
	n int,
) (found []admin.ScheduleInfo, cut bool, err error) {
	f.Limit = n
	if part != "" {
		f.Limit = 500
	}
	for read := 0; read < mostScanned; read += f.Limit {
		page, err := p.admin.Schedules.List(ctx, f)
		if err != nil {
			return nil, false, err
		}
		for _, s := range page {
			if contains(s.Name, part) {
				found = append(found, s)
			}
		}
		if len(page) < f.Limit || len(found) >= n {
			return found[:min(n, len(found))], false, nil
		}
		f.After = page[len(page)-1].Name
	}
	return found, true, nil
}

// rowOf returns what the pages say about a schedule. A coordinator may be a moment late, which is not overdue.
func rowOf(s admin.ScheduleInfo, now time.Time) scheduleRow {
	r := scheduleRow{ScheduleInfo: s, Code: s.Cron, Lapse: overlaps[s.Overlap], Overdue: !s.Paused &&
		!s.Next.IsZero() && s.Next.Before(now.Add(-10*time.Second))}
	if s.Cron == "" {
		r.Words = "every " + duration(s.Every)
	} else {
		r.Words = cronWords(s.Cron)
	}
	if !s.Last.Before(s.CreatedAt.Add(time.Second)) { // else it is the time of its creation
		r.Fired = s.Last
	}
	switch {
	case s.Error != "" && !s.Paused:
		r.Tone, r.State = "failed", "Refused"
	case s.Error != "":
		r.Tone, r.State = "failed", "Stopped by an error"
	case s.Paused:
		r.Tone, r.State = "warning", "Paused"
	case s.Queued:
		r.Tone, r.State = "pending", "Run waits"
	case s.Active:
		r.Tone, r.State = "running", "Run active"
	case s.Next.IsZero():
		r.Tone, r.State = "cancelled", "Over"
	default:
		r.Tone, r.State = "completed", "On"
	}
	return r
}

// Zone is the time zone of the cron expression; empty if it has none.
func (r scheduleRow) Zone() string {
	if r.Cron == "" {
		return ""
	}
	if r.TimeZone == "" {
		return "UTC"
	}
	return r.TimeZone
}

var overlaps = map[kagzi.Overlap]string{
	"":                          "starts another run",
	kagzi.OverlapSkip:           "skips the tick",
	kagzi.OverlapQueueOne:       "one run waits",
	kagzi.OverlapCancelPrevious: "cancels the active run",
}

// nextShown is how many fires the page of a schedule shows.
const nextShown = 20

// A scheduleView is the view model of the page of a schedule.
type scheduleView struct {
	scheduleRow
	Fires   []fireTime
	Wrong   string // why there are no fires
	Runs    recent
	Changed changes
	Payload payload
}

// A fireTime is a fire, with its text in the schedule's own zone.
type fireTime struct {
	At    time.Time
	There string
}

func (p *schedulePages) schedule(ctx context.Context, q web.Query) (any, error) {
	name := q.Path("name")
	s, err := p.admin.Schedules.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	v := scheduleView{scheduleRow: rowOf(s, time.Now()), Payload: p.payloads.show(s.Input, "")}
	if v.Runs, err = recentRuns(ctx, p.client, kagzi.RunFilter{Schedule: name}, "schedule", name); err != nil {
		return nil, err
	}
	if v.Changed, err = changed(ctx, p.admin, admin.AuditSchedule, name); err != nil {
		return nil, err
	}
	fires, err := p.admin.Schedules.NextFires(ctx, name, nextShown)
	if err != nil {
		if web.Away(err) {
			return nil, err
		}
		v.Wrong = web.Sentence(err) // such as a cron expression that this version does not know
	}
	zone, err := time.LoadLocation(v.Zone())
	if err != nil {
		zone = time.UTC
	}
	for _, t := range fires {
		layout := "Mon 2 Jan 2006, 15:04 MST"
		if t.Second() != 0 {
			layout = "Mon 2 Jan 2006, 15:04:05 MST"
		}
		v.Fires = append(v.Fires, fireTime{t, t.In(zone).Format(layout)})
	}
	return v, nil
}
