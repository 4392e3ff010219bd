package check

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/kagzi/kagzi/chaos/internal/evidence"
)

// A Timetable says when a schedule is due. It has either an expression or an interval.
type Timetable struct {
	Schedule string
	Cron     string        // six plain fields, seconds first: *, numbers, ranges, steps and lists; UTC
	Every    time.Duration // counted from Start; the zero Start is a midnight
	Start    time.Time
	Overlap  string // empty: every tick fires
}

// Ticks returns the ticks of a timetable in (from, to], found by looking at each second. It uses nothing of Kagzi.
func Ticks(t Timetable, from, to time.Time) ([]evidence.Tick, error) {
	due, err := t.due()
	if err != nil {
		return nil, fmt.Errorf("schedule %q: %w", t.Schedule, err)
	}
	may := "fire"
	if t.Overlap != "" {
		may = "fire or skip"
	}
	var ticks []evidence.Tick
	for at := from.UTC().Truncate(time.Second).Add(time.Second); !at.After(to); at = at.Add(time.Second) {
		if due(at) {
			ticks = append(ticks, evidence.Tick{Schedule: t.Schedule, At: at, Overlap: t.Overlap, May: may})
		}
	}
	return ticks, nil
}

func (t Timetable) due() (func(time.Time) bool, error) {
	if t.Every > 0 {
		seconds := int64(t.Every / time.Second)
		if seconds == 0 || t.Every%time.Second != 0 {
			return nil, fmt.Errorf("the interval %v is not of whole seconds", t.Every)
		}
		return func(at time.Time) bool { return (at.Unix()-t.Start.Unix())%seconds == 0 }, nil
	}
	text := strings.Fields(t.Cron)
	if len(text) != 6 {
		return nil, fmt.Errorf("cron %q does not have six fields", t.Cron)
	}
	var sets [6]map[int]bool
	for i, bounds := range [6][2]int{{0, 59}, {0, 59}, {0, 23}, {1, 31}, {1, 12}, {0, 6}} {
		var err error
		if sets[i], err = numbers(text[i], bounds[0], bounds[1]); err != nil {
			return nil, err
		}
	}
	either := text[3][0] != '*' && text[5][0] != '*' // both days are restricted
	return func(at time.Time) bool {
		day, weekday := sets[3][at.Day()], sets[5][int(at.Weekday())]
		return sets[0][at.Second()] && sets[1][at.Minute()] && sets[2][at.Hour()] && sets[4][int(at.Month())] &&
			(day && weekday || either && (day || weekday))
	}, nil
}

// numbers returns the numbers of a field whose values are from low to high.
func numbers(field string, low, high int) (map[int]bool, error) {
	set := map[int]bool{}
	for part := range strings.SplitSeq(field, ",") {
		values, step, stepped := strings.Cut(part, "/")
		by := 1
		if stepped {
			var err error
			if by, err = strconv.Atoi(step); err != nil || by < 1 {
				return nil, fmt.Errorf("%q is no step", part)
			}
		}
		first, last := low, high
		if values != "*" {
			a, b, ranged := strings.Cut(values, "-")
			var err error
			if first, err = strconv.Atoi(a); err != nil {
				return nil, fmt.Errorf("%q is no number", part)
			}
			switch {
			case ranged:
				if last, err = strconv.Atoi(b); err != nil {
					return nil, fmt.Errorf("%q is no range", part)
				}
			case !stepped:
				last = first
			}
		}
		for n := first; n <= last; n += by {
			set[n] = true
		}
	}
	return set, nil
}
