// Package timetable decides when a schedule fires and what its overlap policy does with the ticks that are due. It reads no
// clock and no database: the caller says what time it is, how far the schedule has come and which of its runs are active.
package timetable

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/cron"
)

// MaxTicks bounds CatchUp and the ticks of a backfill.
const MaxTicks = 10_000

// A Schedule is the part of a schedule's row that decides when it fires.
type Schedule struct {
	ID       uuid.UUID // its first four bytes choose the share of the jitter
	Cron     string    // empty: Every of Spec
	TimeZone string    // of Cron
	CatchUp  int       // how many of the ticks that were missed are kept, the newest
	Overlap  string
	Spec     json.RawMessage // a Spec
	Paused   bool
	Cursor   time.Time // every tick up to here is decided
	Next     time.Time // when the schedule is due; zero if never
	Active   bool      // a run of it is active, apart from a queued one
	Queued   bool      // a run of it waits for the one before
}

// A Spec is the part of a schedule that has no columns of its own: it is stored as JSON.
type Spec struct {
	Every      time.Duration `json:"every,omitzero"`
	CatchUpAge time.Duration `json:"catch_up_age,omitzero"`
	SkipPaused bool          `json:"skip_paused,omitzero"`
	Jitter     time.Duration `json:"jitter,omitzero"`
	Start      time.Time     `json:"start,omitzero"`
	End        time.Time     `json:"end,omitzero"`
	Timeout    int64         `json:"timeout,omitzero"` // of the runs, in microseconds: the store reads it
}

// A Timetable has the ticks of a schedule, and says how long after each its run starts. It is immutable.
type Timetable struct {
	Spec
	Offset time.Duration // the schedule's share of the jitter

	ticks *cron.Schedule
}

// Timetable returns the timetable of s. It fails if Spec is no JSON, or if Cron, TimeZone or Every is wrong.
func (s *Schedule) Timetable() (*Timetable, error) {
	t := &Timetable{}
	if err := json.Unmarshal(s.Spec, &t.Spec); err != nil {
		return nil, fmt.Errorf("read the schedule: %w", err)
	}
	var err error
	if s.Cron == "" {
		t.ticks, err = cron.Every(t.Every, t.Start)
	} else {
		var zone *time.Location
		if zone, err = cron.LoadLocation(s.TimeZone); err == nil {
			t.ticks, err = cron.Parse(s.Cron, zone)
		}
	}
	if err != nil {
		return nil, err
	}
	// A part of the ID's hash, so that it is the same in every process.
	part := float64(binary.BigEndian.Uint32(s.ID[:4])) / (1 << 32)
	t.Offset = time.Duration(part * float64(t.Jitter)).Truncate(time.Microsecond)
	return t, nil
}

// SameTicks reports whether two schedules have the same ticks. Their runs may start later than these. It returns false if
// one of them cannot be read.
func SameTicks(a, b *Schedule) bool {
	var x, y Spec
	if json.Unmarshal(a.Spec, &x) != nil || json.Unmarshal(b.Spec, &y) != nil {
		return false
	}
	return cmp.Or(cmp.Compare(a.Cron, b.Cron), cmp.Compare(a.TimeZone, b.TimeZone), cmp.Compare(x.Every, y.Every),
		x.Start.Compare(y.Start), x.End.Compare(y.End)) == 0
}

// Next returns when the schedule is due after a tick that is decided: at the next one, and its share of the jitter later.
// The zero time is never.
func (t *Timetable) Next(after time.Time) time.Time {
	tick, ok := t.ticks.Next(t.from(after))
	if !ok || t.over(tick) {
		return time.Time{}
	}
	return tick.Add(t.Offset)
}

// Between returns the ticks from from until until, both included; of more than most the newest, and more is true.
func (t *Timetable) Between(from, until time.Time, most int) (ticks []time.Time, more bool) {
	if t.over(until) {
		until = t.End
	}
	return t.ticks.Between(t.from(from.Add(-time.Nanosecond)), until, most)
}

// Resume returns the cursor of a schedule that is paused at cursor and resumed at now: with SkipPaused the ticks that came
// meanwhile are dropped.
func (t *Timetable) Resume(cursor, now time.Time) time.Time {
	if t.SkipPaused && now.After(cursor) {
		return now
	}
	return cursor
}

// from moves a cursor to just before the start.
func (t *Timetable) from(cursor time.Time) time.Time {
	if first := t.Start.Add(-time.Microsecond); !t.Start.IsZero() && first.After(cursor) {
		return first
	}
	return cursor
}

func (t *Timetable) over(tick time.Time) bool { return !t.End.IsZero() && tick.After(t.End) }

// due returns the ticks after the cursor that have come, without those that are too old; of more than most the newest. last
// is the newest of all that have come, and the cursor if none has. dropped says why some were left out.
func (t *Timetable) due(cursor, now time.Time, most int) (ticks []time.Time, last time.Time, dropped string) {
	until := now.Add(-t.Offset)
	if t.over(until) {
		until = t.End
	}
	ticks, more := t.ticks.Between(t.from(cursor), until, most)
	if len(ticks) == 0 {
		return nil, cursor, ""
	}
	if more {
		dropped = fmt.Sprintf("more than CatchUp %d were missed", most)
	}
	last = ticks[len(ticks)-1]
	if t.CatchUpAge > 0 {
		oldest := now.Add(-t.Offset - t.CatchUpAge)
		n := len(ticks)
		ticks = slices.DeleteFunc(ticks, func(tick time.Time) bool { return tick.Before(oldest) })
		if len(ticks) < n {
			dropped = fmt.Sprintf("%d were later than CatchUpAge %v", n-len(ticks), t.CatchUpAge)
		}
	}
	return ticks, last, dropped
}
