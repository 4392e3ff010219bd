package command

import (
	"errors"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/kagzi/kagzi/internal/duration"
)

// ParseDuration reads the duration in a flag: "30s", "7d", "1 day 2h".
func ParseDuration(flag, s string) (time.Duration, error) {
	d, err := duration.Parse(s)
	if err != nil {
		return 0, Usagef("--%s is %q: give a duration, such as 30s, 2h or 7d", flag, s)
	}
	return d, nil
}

// A Duration is a flag that takes a duration as [ParseDuration] reads it.
type Duration time.Duration

// Type is of pflag.Value.
func (*Duration) Type() string { return "duration" }

// String returns what the help shows as the default: "0" means that there is none.
func (d *Duration) String() string {
	if *d == 0 {
		return "0"
	}
	return time.Duration(*d).String()
}

// Set is of pflag.Value.
func (d *Duration) Set(s string) error {
	v, err := duration.Parse(s)
	if err != nil {
		return errors.New("give a duration, such as 30s, 2h or 7d")
	}
	*d = Duration(v)
	return nil
}

// timeLayouts are the forms of a time in a flag. Without a zone a time is of this computer's.
var timeLayouts = []string{
	time.RFC3339, "2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02T15:04",
	"2006-01-02 15:04", "2006-01-02",
}

// ParsePast reads a time that a flag gives as a moment, or as its distance before now.
func ParsePast(flag, s string, now time.Time) (time.Time, error) { return parseTime(flag, s, now, -1) }

// ParseFuture is ParsePast for a distance after now.
func ParseFuture(flag, s string, now time.Time) (time.Time, error) {
	return parseTime(flag, s, now, 1)
}

func parseTime(flag, s string, now time.Time, sign time.Duration) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	for _, layout := range timeLayouts {
		if t, err := time.ParseInLocation(layout, s, time.Local); err == nil {
			return t, nil
		}
	}
	d, err := duration.Parse(s)
	if err != nil {
		return time.Time{}, Usagef("--%s is %q: give a duration such as 1h or 7d, a date such as 2026-10-01, or a "+
			"time such as \"2026-10-01 08:00\" or 2026-10-01T08:00:00Z; without a zone it is this computer's", flag, s)
	}
	return now.Add(sign * d), nil
}

// ParsePairs reads the k=v of a flag that may be given several times.
func ParsePairs(flag string, pairs []string) (map[string]string, error) {
	if len(pairs) == 0 {
		return nil, nil
	}
	out := map[string]string{}
	for _, p := range pairs {
		k, v, ok := strings.Cut(p, "=")
		if !ok || k == "" {
			return nil, Usagef("--%s is %q: write it as name=value", flag, p)
		}
		out[k] = v
	}
	return out, nil
}

// FromOne refuses flags that are given and below 1: the options take 0 for none.
func FromOne(fs *pflag.FlagSet, names ...string) error {
	for _, name := range names {
		if n, err := fs.GetInt(name); err == nil && fs.Changed(name) && n < 1 {
			return Usagef("--%s is %d: give a number from 1, or leave it out", name, n)
		}
	}
	return nil
}

// NotNegative refuses flags that are given and below 0.
func NotNegative(fs *pflag.FlagSet, names ...string) error {
	for _, name := range names {
		if n, err := fs.GetInt(name); err == nil && n < 0 {
			return Usagef("--%s is %d: give a positive number, or 0 for no limit", name, n)
		}
	}
	return nil
}
