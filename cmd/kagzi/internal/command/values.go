package command

import (
	"errors"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/kagzi/kagzi/internal/deeds"
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
	t, err := deeds.ParseTime(s, now, sign, time.Local)
	if err != nil {
		return t, Usagef("--%s is %q: %s", flag, s, deeds.TimeAdvice(time.Local))
	}
	return t, nil
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

// NotNegative refuses flags that are given and below 0.
func NotNegative(fs *pflag.FlagSet, names ...string) error {
	for _, name := range names {
		if n, err := fs.GetInt(name); err == nil && n < 0 {
			return Usagef("--%s is %d: give a positive number, or 0 for no limit", name, n)
		}
	}
	return nil
}
