package ui

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/ui/internal/web"
)

const (
	agendaDays = 7
	// mostPlanned is how many schedules the agenda asks for their fires. Each costs one query to three.
	mostPlanned = 100
	// mostTicks is how many fires of a schedule are counted: those of each hour in the agenda's time.
	mostTicks = 200
	// eachAtMost is how many fires of a schedule stand in the calendar. A schedule that has more is named once, above
	// it.
	eachAtMost = 25
	// mostFires bounds the calendar.
	mostFires = 400
)

// An agenda is the view model of what the schedules will start. The browser arranges the days anew, in the viewer's
// zone: so there is one more than is shown.
type agenda struct {
	Days   []agendaDay
	Often  []oftenFires
	More   int       // schedules that were not asked
	Until  time.Time // there are more fires after it; zero if all are shown
	Any    bool
	Paused bool // some of the fires are of paused schedules
}

// An agendaDay is a day in UTC.
type agendaDay struct {
	Day   time.Time
	Slack bool // it is shown only as a part of the day before, in another zone
	Fires []agendaFire
}

// An agendaFire is one run that a schedule will start.
type agendaFire struct {
	At                 time.Time
	Schedule, Workflow string
	Paused             bool // it fires only if the schedule is resumed
}

// An oftenFires is a schedule with many fires.
type oftenFires struct {
	scheduleRow
	Count int
	Many  bool // there are more
	At    time.Time
}

func (p *schedulePages) agenda(ctx context.Context, q web.Query) (any, error) {
	all, _, err := p.scanSchedules(ctx, admin.ScheduleFilter{Workflow: q.Get("workflow")}, q.Get("name"), mostScanned)
	if err != nil {
		return nil, err
	}
	var v agenda
	now := time.Now()
	start := now.UTC().Truncate(day)
	all, v.More = bounded(all, mostPlanned)
	var fires []agendaFire
	for _, s := range all {
		if s.Error != "" && s.Paused {
			continue // its timetable cannot be read
		}
		ticks, err := p.firesUntil(ctx, s.Name, start.Add((agendaDays+1)*day))
		if web.Away(err) {
			return nil, err
		}
		if err != nil {
			continue // deleted meanwhile
		}
		asked := len(ticks)
		ticks = slices.DeleteFunc(ticks, func(t time.Time) bool { return !t.Before(start.Add((agendaDays + 1) * day)) })
		if len(ticks) > eachAtMost {
			often := oftenFires{scheduleRow: rowOf(s, now), At: ticks[0]}
			for _, t := range ticks {
				if t.Before(now.Add(agendaDays * day)) {
					often.Count++
				}
			}
			if often.Count > mostTicks && asked == len(ticks) {
				often.Count, often.Many = mostTicks, true
			}
			v.Often = append(v.Often, often)
			continue
		}
		for _, t := range ticks {
			fires = append(fires, agendaFire{t, s.Name, s.Workflow, s.Paused})
			v.Paused = v.Paused || s.Paused
		}
	}
	slices.SortStableFunc(fires, func(a, b agendaFire) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Schedule, b.Schedule))
	})
	if shown, more := bounded(fires, mostFires); more > 0 {
		fires, v.Until = shown, shown[mostFires-1].At
	}
	v.Any = len(fires)+len(v.Often) > 0
	for n := range agendaDays + 1 {
		v.Days = append(v.Days, agendaDay{Day: start.Add(time.Duration(n) * day), Slack: n == agendaDays})
	}
	for _, f := range fires {
		n := max(0, int(f.At.Sub(start)/day)) // one that is overdue is of today
		v.Days[n].Fires = append(v.Days[n].Fires, f)
	}
	return v, nil
}

// firesUntil returns the next fires of the schedule, mostTicks and one at most, as long as they are before until. It
// asks for few first: those of a yearly schedule are sought through as many years.
func (p *schedulePages) firesUntil(ctx context.Context, name string, until time.Time) (ticks []time.Time, err error) {
	for _, n := range []int{1, eachAtMost + 1, mostTicks + 1} {
		ticks, err = p.admin.Schedules.NextFires(ctx, name, n)
		if err != nil || len(ticks) < n || !ticks[n-1].Before(until) {
			break
		}
	}
	return ticks, err
}
