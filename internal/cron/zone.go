package cron

import (
	"fmt"
	"strings"
	"time"
	_ "time/tzdata" // without it, on a machine without zones a coordinator would reject every schedule with a zone
)

// LoadLocation returns the time zone of an IANA name such as "Europe/Berlin"; "" and "UTC" are UTC. It refuses
// "Local", which differs between machines.
func LoadLocation(name string) (*time.Location, error) {
	return loadLocation(name, time.LoadLocation)
}

func loadLocation(name string, load func(string) (*time.Location, error)) (*time.Location, error) {
	switch {
	case name == "" || name == "UTC":
		return time.UTC, nil
	case strings.EqualFold(name, "local"), strings.EqualFold(name, "localtime"):
		return nil,
			fmt.Errorf(`time zone %s differs from machine to machine: want a name such as "Europe/Berlin", or "UTC"`,
				quote(name))
	}
	loc, err := load(name)
	if err == nil {
		return loc, nil
	}
	wrong := fmt.Errorf(`time zone %s: want a name such as "Europe/Berlin", or "UTC"; names are case-sensitive`,
		quote(name))
	if _, missing := load("America/New_York"); missing != nil {
		wrong = fmt.Errorf(`time zone %s: this machine has no time zone data: install tzdata, or import _ `+
			`"time/tzdata" in the program`, quote(name))
	}
	if strings.Contains(err.Error(), name) { // err adds no information
		return nil, wrong
	}
	return nil, fmt.Errorf("%w: %w", wrong, err)
}

// A wall-clock time is represented by the second at which a clock in UTC shows it: the instant plus the zone's offset.
// gronx computes with these and never sees a zone. It is exact in UTC; in other zones it errs, repeats ticks and drops
// some.

// overlapReach is the longest time after a change in which clocks may repeat times: none was ever set back by more than
// a day.
const overlapReach = 26 * 60 * 60

// nextZoned returns the first tick after the second from, by the clocks of s.loc.
func (s *Schedule) nextZoned(from int64) (int64, bool) {
	z := zoneAt(from, s.loc)
	wall := from + z.offset
	if !s.expr.everyHour {
		wall = max(wall, shown(z, from, s.loc)) // times that clocks have shown before have had their tick
	}
	n, ok := s.expr.next(wall)
	for ok {
		if !z.ends || n-z.offset < z.end {
			return n - z.offset, true
		}
		then := zoneAt(z.end, s.loc)
		// the first time that clocks show after the change; n is later than the last one before
		first := z.end + then.offset
		switch {
		case !s.expr.everyHour && n < first: // in a gap
			return z.end, true
		case s.expr.everyHour && (n < first || first <= wall): // in a gap, or the times from first on are repeated
			wall = first - 1
			n, ok = s.expr.next(wall)
		}
		z = then
	}
	return 0, false
}

// A zone is a period in which clocks keep their offset from UTC. The next one may have the same.
type zone struct {
	begin, end   int64 // [begin, end)
	begins, ends bool  // whether there is a begin, and an end
	offset       int64
}

func zoneAt(second int64, loc *time.Location) zone {
	const day = 24 * 60 * 60
	t := time.Unix(second, 0).In(loc)
	begin, end := t.ZoneBounds()
	_, offset := t.Zone()
	z := zone{begin.Unix(), end.Unix(), !begin.IsZero(), !end.IsZero(), int64(offset)}
	// After the changes that a zone's file lists, package time ends the last period of a year after 365 days, which is
	// before 31 December of a leap year (golang/go#81583). In fact nothing changes before midnight UTC.
	if z.ends && z.end <= second {
		z.end = second - floorMod(second, day) + day
	}
	return z
}

// shown returns the latest wall-clock time that clocks have shown up to second, which is in z.
func shown(z zone, second int64, loc *time.Location) int64 {
	latest := second + z.offset
	for z.begins && second-z.begin < overlapReach {
		begin := z.begin
		z = zoneAt(begin-1, loc)
		latest = max(latest, begin-1+z.offset)
	}
	return latest
}
