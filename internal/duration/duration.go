// Package duration reads and writes durations in the form that people use: "1 day 2h".
package duration

import (
	"fmt"
	"math"
	"math/bits"
	"strings"
	"time"

	"github.com/kagzi/kagzi/internal/text"
)

const (
	day  = 24 * time.Hour
	week = 7 * day
)

// Longest is the longest duration that a caller may give: a hundred years. Code may double it without an overflow, and
// that time from now is a date which everything can store. It bounds what options and configurations take; where a
// longer one can only mean "without end", as in a sleep, it is taken for Longest.
const Longest = 36_525 * day

// Parse reads a duration as people write it in a configuration: "30s", "1h30m", "1.5h",
// "1 day 2h", "2 weeks". It accepts Go's units (ns, us, µs, ms, s, m, h) and words for the longer ones (day,
// week, hour, minute, second, millisecond, their plurals and short forms). Spaces are optional. A day is always 24
// hours. It returns an error for a number without a unit, a negative duration, and one over 292 years.
func Parse(s string) (time.Duration, error) {
	rest := strings.TrimPrefix(strings.TrimSpace(s), "+")
	switch {
	case strings.TrimSpace(rest) == "":
		return 0, fmt.Errorf(`kagzi: duration %s is empty: write it as "30s" or "1 day 2h"`, text.Quote(s))
	case rest[0] == '-':
		return 0, fmt.Errorf("kagzi: duration %s is negative", text.Quote(s))
	case rest == "0": // as in Go, the only number that needs no unit
		return 0, nil
	}
	var total uint64
	for rest != "" {
		whole, frac, tail, ok := cutNumber(rest)
		if !ok {
			return 0, fmt.Errorf("kagzi: duration %s: want a number at %s", text.Quote(s), text.Quote(rest))
		}
		name, tail := cutUnit(strings.TrimLeft(tail, " \t"))
		if name == "" {
			return 0, fmt.Errorf(`kagzi: duration %s has a number without a unit: write "30s", "5m" or "2 days"`,
				text.Quote(s))
		}
		unit, ok := unitOf(name)
		if !ok {
			return 0, fmt.Errorf("kagzi: duration %s has the unknown unit %s: use w, d, h, m, s, ms, us or ns",
				text.Quote(s), text.Quote(name))
		}
		if total, ok = addTimes(total, whole, frac, uint64(unit)); !ok {
			return 0, fmt.Errorf("kagzi: duration %s is too long: at most 292 years", text.Quote(s))
		}
		rest = strings.TrimLeft(tail, " \t")
	}
	return time.Duration(total), nil
}

// Format writes d in the shortest form that Parse reads back exactly: "30s", "1h30m",
// "1 day 2h".
func Format(d time.Duration) string {
	if d < 0 {
		return d.String() // only in error messages: no wait is negative
	}
	var b strings.Builder
	days, d := d/day, d%day
	switch {
	case days == 1:
		b.WriteString("1 day")
	case days > 1:
		fmt.Fprintf(&b, "%d days", days)
	}
	if days > 0 && d > 0 {
		b.WriteByte(' ')
	}
	if n := d / time.Hour; n > 0 {
		fmt.Fprintf(&b, "%dh", n)
	}
	if n := d % time.Hour / time.Minute; n > 0 {
		fmt.Fprintf(&b, "%dm", n)
	}
	if d %= time.Minute; d > 0 || b.Len() == 0 {
		b.WriteString(d.String())
	}
	return b.String()
}

// cutNumber splits the decimal number at the start of s into the digits before and after its point.
func cutNumber(s string) (whole, frac, rest string, ok bool) {
	whole, rest = cutDigits(s)
	if strings.HasPrefix(rest, ".") {
		frac, rest = cutDigits(rest[1:])
	}
	return whole, frac, rest, whole != "" || frac != ""
}

func cutDigits(s string) (digits, rest string) {
	i := 0
	for i < len(s) && '0' <= s[i] && s[i] <= '9' {
		i++
	}
	return s[:i], s[i:]
}

func cutUnit(s string) (unit, rest string) {
	if i := strings.IndexAny(s, " \t.+-0123456789"); i >= 0 {
		return s[:i], s[i:]
	}
	return s, ""
}

func unitOf(name string) (time.Duration, bool) {
	switch name {
	case "ns", "nanosecond", "nanoseconds":
		return time.Nanosecond, true
	case "us", "µs", "μs", "microsecond", "microseconds": // micro sign and Greek mu
		return time.Microsecond, true
	case "ms", "millisecond", "milliseconds":
		return time.Millisecond, true
	case "s", "sec", "secs", "second", "seconds":
		return time.Second, true
	case "m", "min", "mins", "minute", "minutes":
		return time.Minute, true
	case "h", "hr", "hrs", "hour", "hours":
		return time.Hour, true
	case "d", "day", "days":
		return day, true
	case "w", "week", "weeks":
		return week, true
	}
	return 0, false
}

// addTimes returns total + whole.frac × unit. It computes in integers, so that Parse returns exactly the duration that
// Format has written. It returns false if the result exceeds the longest time.Duration.
func addTimes(total uint64, whole, frac string, unit uint64) (uint64, bool) {
	var n uint64
	for _, c := range []byte(whole) {
		digit := uint64(c - '0')
		if n > (math.MaxInt64/unit-digit)/10 {
			return 0, false
		}
		n = n*10 + digit
	}
	var f, scale uint64 = 0, 1
	for _, c := range []byte(frac[:min(len(frac), 18)]) { // further digits are far below a nanosecond
		f, scale = f*10+uint64(c-'0'), scale*10
	}
	hi, lo := bits.Mul64(f, unit)
	part, _ := bits.Div64(hi, lo, scale) // f < scale, so the quotient is below unit
	if total += n * unit; total > math.MaxInt64 {
		return 0, false
	}
	total += part
	return total, total <= math.MaxInt64
}

// About returns d rounded, in words.
func About(d time.Duration) string {
	switch {
	case d >= 48*time.Hour:
		return fmt.Sprintf("%d days", int(d/(24*time.Hour)))
	case d >= 2*time.Hour:
		return fmt.Sprintf("%d hours", int(d/time.Hour))
	case d >= 2*time.Minute:
		return fmt.Sprintf("%d minutes", int(d/time.Minute))
	default:
		return fmt.Sprintf("%d seconds", int(d/time.Second))
	}
}
