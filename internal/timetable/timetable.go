// Package timetable decides when a schedule fires and how its overlap policy treats due ticks. It reads no clock and no
// database: the caller gives the time, the schedule's cursor, and whether runs of it are active.
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

// MaxTicks is the largest CatchUp, and the most ticks of a backfill.
const MaxTicks = 10_000

// A Schedule is the part of a schedule's row that decides when it fires.
type Schedule struct {
	ID       uuid.UUID // its first four bytes decide the share of the jitter
	Cron     string    // empty: Spec has Every
	TimeZone string    // of Cron
	CatchUp  int       // the most missed ticks that are kept, the newest ones
	Overlap  string
	Spec     json.RawMessage // a Spec
	Paused   bool
	Cursor   time.Time // every tick up to here is decided
	Next     time.Time // when the schedule is due; zero: never
	// a run of the schedule is active, other than a queued one; one that is being cancelled is active until it ends
	Active bool
	Queued bool // a run of the schedule waits for the end of another

	Cancelled bool // the active runs have been cancelled for the tick that is to be decided
}

// A Spec is the part of a schedule that is stored as JSON, in one column.
type Spec struct {
	Every      time.Duration `json:"every,omitzero"`
	CatchUpAge time.Duration `json:"catch_up_age,omitzero"`
	SkipPaused bool          `json:"skip_paused,omitzero"`
	Jitter     time.Duration `json:"jitter,omitzero"`
	Start      time.Time     `json:"start,omitzero"`
	End        time.Time     `json:"end,omitzero"`
}

// A Timetable has the ticks of a schedule, and the offset at which the runs start after them. It is immutable.
type Timetable struct {
	Spec
	Offset time.Duration // the schedule's share of the jitter

	ticks *cron.Schedule
}

// Timetable returns the timetable of s. It returns an error if Spec is not JSON, or if Cron, TimeZone or Every is
// invalid.
func (s *Schedule) Timetable() (*Timetable, error) {
	t := &Timetable{}
	if err := json.Unmarshal(s.Spec, &t.Spec); err != nil {
		return nil, fmt.Errorf("read the schedule: %w", err)
	}
	var err error
	if s.Cron == "" {
		t.Start = t.Start.Truncate(time.Second) // as its first tick is
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
	// The share depends on the ID only, so that it is the same in every process.
	part := float64(binary.BigEndian.Uint32(s.ID[:4])) / (1 << 32)
	t.Offset = time.Duration(part * float64(t.Jitter)).Truncate(time.Microsecond)
	return t, nil
}

// SameTicks reports whether two schedules have the same ticks, even if the offsets of their runs differ. It returns
// false if one of the Specs cannot be read.
func SameTicks(a, b *Schedule) bool {
	var x, y Spec
	if json.Unmarshal(a.Spec, &x) != nil || json.Unmarshal(b.Spec, &y) != nil {
		return false
	}
	return cmp.Or(cmp.Compare(a.Cron, b.Cron), cmp.Compare(a.TimeZone, b.TimeZone), cmp.Compare(x.Every, y.Every),
		x.Start.Compare(y.Start), x.End.Compare(y.End)) == 0
}

// Next returns when the schedule is due after a decided tick: at the next tick plus the offset. The zero time means
// never.
func (t *Timetable) Next(after time.Time) time.Time {
	tick, ok := t.ticks.Next(t.from(after))
	if !ok || t.over(tick) {
		return time.Time{}
	}
	return tick.Add(t.Offset)
}

// Between returns the ticks from from to until, both included. If there are more than most, it returns the newest, and
// more is true.
func (t *Timetable) Between(from, until time.Time, most int) (ticks []time.Time, more bool) {
	if t.over(until) {
		until = t.End
	}
	return t.ticks.Between(t.from(from.Add(-time.Nanosecond)), until, most)
}

// Resume returns the cursor of a schedule that was paused at cursor and is resumed at now. SkipPaused drops the ticks
// between them.
func (t *Timetable) Resume(cursor, now time.Time) time.Time {
	if t.SkipPaused && now.After(cursor) {
		return now
	}
	return cursor
}

// from returns cursor, or a time just before Start if that is later.
func (t *Timetable) from(cursor time.Time) time.Time {
	if first := t.Start.Add(-time.Microsecond); !t.Start.IsZero() && first.After(cursor) {
		return first
	}
	return cursor
}

func (t *Timetable) over(tick time.Time) bool { return !t.End.IsZero() && tick.After(t.End) }

// due returns the newest ticks, at most most, that have come since cursor and are not too old. last is the newest tick
// that has come, or cursor if none has. dropped says why ticks were dropped; it is empty if none were.
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
