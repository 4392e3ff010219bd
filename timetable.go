package kagzi

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/cron"
	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/store"
)

// What a schedule does is decided here, without clock or database.

// A scheduleSpec is what of a [Schedule] the columns of its template do not hold.
type scheduleSpec struct {
	Every      time.Duration `json:"every,omitzero"`
	CatchUpAge time.Duration `json:"catch_up_age,omitzero"`
	SkipPaused bool          `json:"skip_paused,omitzero"`
	Jitter     time.Duration `json:"jitter,omitzero"`
	Start      time.Time     `json:"start,omitzero"`
	End        time.Time     `json:"end,omitzero"`
	Timeout    int64         `json:"timeout,omitzero"` // of the runs, in microseconds: the store reads it
}

// A timetable says when a schedule's ticks are, and how long after each its run starts.
type timetable struct {
	*cron.Schedule
	start, end time.Time
	offset     time.Duration
	spec       scheduleSpec
}

func timetableOf(t *store.Template) (*timetable, error) {
	var spec scheduleSpec
	if err := json.Unmarshal(t.Spec, &spec); err != nil {
		return nil, fmt.Errorf("read the schedule: %w", err)
	}
	table := &timetable{start: spec.Start, end: spec.End, spec: spec}
	var err error
	if t.Cron == "" {
		table.Schedule, err = cron.Every(spec.Every, spec.Start)
	} else {
		var zone *time.Location
		if zone, err = cron.LoadLocation(t.TimeZone); err == nil {
			table.Schedule, err = cron.Parse(t.Cron, zone)
		}
	}
	// A part of the ID's hash, so that it is the same in every process.
	part := float64(binary.BigEndian.Uint32(t.ID[:4])) / (1 << 32)
	table.offset = time.Duration(part * float64(spec.Jitter)).Truncate(time.Microsecond)
	return table, err
}

// next returns when to look at the schedule again: at its first tick after the given one. The zero time is never.
func (t *timetable) next(after time.Time) time.Time {
	tick, ok := t.Next(t.from(after))
	if !ok || t.over(tick) {
		return time.Time{}
	}
	return tick.Add(t.offset)
}

// from moves a cursor to just before the start.
func (t *timetable) from(cursor time.Time) time.Time {
	if first := t.start.Add(-time.Microsecond); !t.start.IsZero() && first.After(cursor) {
		return first
	}
	return cursor
}

func (t *timetable) over(tick time.Time) bool { return !t.end.IsZero() && tick.After(t.end) }

// due returns the ticks after the cursor that have come, of more than most the newest, and those too old left out;
// last is the newest of all that have come, the cursor if none has; dropped says why some were left out.
func (t *timetable) due(cursor, now time.Time, most int) (ticks []time.Time, last time.Time, dropped string) {
	until := now.Add(-t.offset)
	if t.over(until) {
		until = t.end
	}
	ticks, more := t.Between(t.from(cursor), until, most)
	if len(ticks) == 0 {
		return nil, cursor, ""
	}
	if more {
		dropped = fmt.Sprintf("more than CatchUp %d were missed", most)
	}
	last = ticks[len(ticks)-1]
	if t.spec.CatchUpAge > 0 {
		oldest := now.Add(-t.offset - t.spec.CatchUpAge)
		n := len(ticks)
		ticks = slices.DeleteFunc(ticks, func(tick time.Time) bool { return tick.Before(oldest) })
		if len(ticks) < n {
			dropped = fmt.Sprintf("%d were later than CatchUpAge %v", n-len(ticks), t.spec.CatchUpAge)
		}
	}
	return ticks, last, dropped
}

// decide says which runs a schedule that is due starts, at most budget of them. Where runs must not overlap, ticks that
// come to be looked at together are one: the newest. dropped says why ticks were left out that should not be often.
func decide(t *store.Template, now time.Time, budget int) (f *store.Firing, dropped string) {
	f = &store.Firing{Template: t.ID}
	table, err := timetableOf(t)
	if err != nil {
		f.Problem, f.Next = failure.Text(err), t.Next
		return f, ""
	}
	ticks, last, dropped := table.due(t.Cursor, now, t.CatchUp)
	if t.Overlap != "" && len(ticks) > 0 {
		ticks = ticks[len(ticks)-1:]
	}
	switch {
	case len(ticks) == 0:
	case budget == 0: // the next transaction goes on
		f.Next = t.Next
		return f, ""
	case t.Overlap == store.OverlapCancelPrevious && t.Active: // see replace; the next look is in case that fails
		f.Next, f.Replace = now.Add(overlapPause), true
		return f, ""
	case t.Overlap == store.OverlapSkip && (t.Active || t.Queued), t.Overlap == store.OverlapQueueOne && t.Queued:
		ticks = nil
	case len(ticks) > budget:
		ticks, last = ticks[:budget], ticks[budget-1]
	}
	for _, tick := range ticks {
		f.Runs = append(f.Runs, store.TickRun{RunID: newRunID(), Tick: tick, Queued: t.Overlap == store.OverlapQueueOne && t.Active})
	}
	f.Cursor, f.Next = last, table.next(last)
	return f, dropped
}

func newRunID() uuid.UUID { return uuid.Must(uuid.NewV7()) }

// sameTimetable reports whether two templates have the same ticks; their runs may start later than these.
func sameTimetable(a, b *store.Template) bool {
	var x, y scheduleSpec
	if json.Unmarshal(a.Spec, &x) != nil || json.Unmarshal(b.Spec, &y) != nil {
		return false
	}
	return cmp.Or(cmp.Compare(a.Cron, b.Cron), cmp.Compare(a.TimeZone, b.TimeZone), cmp.Compare(x.Every, y.Every),
		x.Start.Compare(y.Start), x.End.Compare(y.End)) == 0
}
