// Package cron computes the ticks of a cron expression in a time zone, or of a fixed interval. It reads no clock and
// starts nothing.
//
// # Expressions
//
// An expression has five fields (minute, hour, day of month, month, day of week), six with seconds first, or
// seven with seconds first and the year last. A field is `*`, a value, a range `a-b`, a step `*/n`, `a/n`,
// `a-b/n`, or a list of those with commas; months and days of the week may be named (jan, MON), and `?` means
// `*`. The day of the month also takes `L`, its last day, and `nW`, the working day nearest to the nth; the
// day of the week `nL`, the month's last such day, and `n#k`, its kth. Where both days are restricted and
// neither begins with `*`, either may match. Macros such as @daily stand for the usual expressions.
//
// # Daylight saving
//
// A schedule of fixed hours fires once for every wall-clock time that it names. If clocks are set forward over such
// times, it fires once for all of them, at the first instant after the gap. If clocks are set back over such a time, it
// fires at its first occurrence only. A schedule whose hour is `*` or has a step follows real time: it does not fire in
// an hour that is skipped, and fires in both occurrences of an hour that is repeated.
package cron

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// ErrNeverFires is wrapped by Parse's error for a well-formed expression that matches no date, such as 30 February.
var ErrNeverFires = errors.New("never fires")

// A Schedule says when something fires. It is immutable and safe for concurrent use.
type Schedule struct {
	expr expression
	loc  *time.Location

	every, anchor int64 // in seconds; every is zero in a cron schedule
}

// Parse reads a cron expression whose times are wall-clock times in loc; nil means UTC. Its errors name the field, its
// text and the valid values. Parse returns ErrNeverFires for an expression that matches no date at all. Past years are
// no error, because Parse does not know the present and a stored schedule must stay readable; Next returns false for
// them.
func Parse(expr string, loc *time.Location) (*Schedule, error) {
	e, err := parse(expr)
	if err != nil {
		return nil, fmt.Errorf("cron %s: %w", quote(expr), err)
	}
	// This check uses UTC: an expression whose only date falls into a gap of the zone is no mistake.
	if _, ok := e.next(-1); !ok {
		return nil, fmt.Errorf("cron %s: %w: no date matches it", quote(expr), ErrNeverFires)
	}
	if loc == nil {
		loc = time.UTC
	}
	return &Schedule{expr: e, loc: loc}, nil
}

// Every returns a schedule of a fixed interval of real time: it fires at anchor, and at every multiple of d before and
// after it. d must be at least one second, in whole seconds. A fraction of anchor's second is dropped. With the zero
// anchor, an interval that divides a day fires at midnight UTC.
func Every(d time.Duration, anchor time.Time) (*Schedule, error) {
	switch {
	case d < time.Second:
		return nil, fmt.Errorf("Every is %v: give at least 1s (a time.Duration counts nanoseconds: 30*time.Second)", d)
	case d%time.Second != 0:
		return nil, fmt.Errorf("Every is %v: give whole seconds", d)
	}
	return &Schedule{loc: time.UTC, every: int64(d / time.Second), anchor: anchor.Unix()}, nil
}

// String returns the schedule's canonical form, without its time zone: a cron expression that Parse reads as
// the same schedule, or "every 1m30s".
func (s *Schedule) String() string {
	if s.every > 0 {
		return "every " + (time.Duration(s.every) * time.Second).String()
	}
	return s.expr.String()
}

// Next returns the first tick after after, in UTC and whole seconds. It returns false if there is none before the year
// 10000.
func (s *Schedule) Next(after time.Time) (time.Time, bool) {
	n, ok := s.next(after.Unix())
	if !ok {
		return time.Time{}, false
	}
	return time.Unix(n, 0).UTC(), true
}

// Between returns the ticks after after and not after until, oldest first. If there are more than most, it returns the
// newest, and skipped is true. Its running time depends on most, and hardly on the length of the period.
func (s *Schedule) Between(after, until time.Time, most int) (ticks []time.Time, skipped bool) {
	from, to := max(after.Unix(), firstSecond-1), min(until.Unix(), lastSecond)
	// Search windows from the newest on, each twice as long as the last. A window with too many ticks is halved until
	// it has only the newest ones.
	for width := max(1, min(int64(most), lastSecond)); to > from && len(ticks) < most; {
		start := max(from, to-width)
		window, more := s.list(start, to, most-len(ticks))
		if more {
			width = (to - start + 1) / 2
			continue
		}
		slices.Reverse(window)
		ticks = append(ticks, window...)
		to, width = start, min(2*width, lastSecond)
	}
	slices.Reverse(ticks)
	n, ok := s.next(from)
	return ticks, ok && n <= to
}

// list returns the ticks in (from, to], or only more if there are more than most.
func (s *Schedule) list(from, to int64, most int) (ticks []time.Time, more bool) {
	for {
		n, ok := s.next(from)
		switch {
		case !ok || n > to:
			return ticks, false
		case len(ticks) == most:
			return nil, true
		}
		ticks = append(ticks, time.Unix(n, 0).UTC())
		from = n
	}
}

// Ticks are computed for the seconds of the years 1 to 9999, which a time.Time can be in text.
var (
	firstSecond = time.Time{}.Unix()
	lastSecond  = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC).Unix()
)

// next returns the first tick after the second from.
func (s *Schedule) next(from int64) (int64, bool) {
	from = max(from, firstSecond-1)
	if from >= lastSecond {
		return 0, false
	}
	var n int64
	ok := true
	if s.every > 0 {
		since := from - s.anchor
		n = from + s.every - floorMod(since, s.every)
	} else {
		n, ok = s.nextZoned(from)
	}
	return n, ok && n <= lastSecond
}

// floorMod is a modulo b, never negative.
func floorMod(a, b int64) int64 {
	return (a%b + b) % b
}
