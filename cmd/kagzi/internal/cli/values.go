package cli

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/duration"
)

// parseDuration reads the duration in a flag: "30s", "7d", "1 day 2h".
func parseDuration(flag, s string) (time.Duration, error) {
	d, err := duration.Parse(s)
	if err != nil {
		return 0, usagef("--%s is %q: give a duration, such as 30s, 2h or 7d", flag, s)
	}
	return d, nil
}

// A durationFlag is a flag that takes a duration as parseDuration reads it.
type durationFlag time.Duration

func (*durationFlag) Type() string { return "duration" }

// String returns what the help shows as the default: "0" means that there is none.
func (d *durationFlag) String() string {
	if *d == 0 {
		return "0"
	}
	return time.Duration(*d).String()
}

func (d *durationFlag) Set(s string) error {
	v, err := duration.Parse(s)
	if err != nil {
		return errors.New("give a duration, such as 30s, 2h or 7d")
	}
	*d = durationFlag(v)
	return nil
}

// timeLayouts are the forms of a time in a flag. Without a zone a time is of this computer's.
var timeLayouts = []string{
	time.RFC3339, "2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02T15:04",
	"2006-01-02 15:04", "2006-01-02",
}

// parsePast reads a time that a flag gives as a moment, or as its distance before now.
func parsePast(flag, s string, now time.Time) (time.Time, error) { return parseTime(flag, s, now, -1) }

// parseFuture is parsePast for a distance after now.
func parseFuture(flag, s string, now time.Time) (time.Time, error) {
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
		return time.Time{}, usagef("--%s is %q: give a duration such as 1h or 7d, a date such as 2026-10-01, or a "+
			"time such as \"2026-10-01 08:00\" or 2026-10-01T08:00:00Z; without a zone it is this computer's", flag, s)
	}
	return now.Add(sign * d), nil
}

// parsePairs reads the k=v of a flag that may be given several times.
func parsePairs(flag string, pairs []string) (map[string]string, error) {
	if len(pairs) == 0 {
		return nil, nil
	}
	out := map[string]string{}
	for _, p := range pairs {
		k, v, ok := strings.Cut(p, "=")
		if !ok || k == "" {
			return nil, usagef("--%s is %q: write it as name=value", flag, p)
		}
		out[k] = v
	}
	return out, nil
}

// parseRate reads a rate: "10/s", "600/m", "5/10s". "0" is no rate.
func parseRate(flag, s string) (kagzi.Rate, error) {
	bad := usagef("--%s is %q: write it as 10/s, 600/m or 5/10s; 0 means no rate", flag, s)
	if s == "0" {
		return kagzi.Rate{}, nil
	}
	count, per, ok := strings.Cut(s, "/")
	n, err := strconv.Atoi(strings.TrimSpace(count))
	if !ok || err != nil || n < 1 {
		return kagzi.Rate{}, bad
	}
	if per = strings.TrimSpace(per); per != "" && (per[0] < '0' || per[0] > '9') {
		per = "1" + per
	}
	d, err := duration.Parse(per)
	if err != nil || d <= 0 {
		return kagzi.Rate{}, bad
	}
	return kagzi.Rate{Starts: n, Per: d}, nil
}

// readJSON returns the JSON that a flag gives: as text, in a file (@name), or on standard input (@- or -).
func (a *app) readJSON(flag, s string) (json.RawMessage, error) {
	text, from := []byte(s), "--"+flag
	switch {
	case s == "-" || s == "@-":
		data, err := io.ReadAll(a.world.In)
		if err != nil {
			return nil, usagef("standard input cannot be read: %s", err)
		}
		text, from = data, "standard input"
	case strings.HasPrefix(s, "@"):
		data, err := os.ReadFile(s[1:])
		if err != nil {
			return nil, usagef("--%s: %s: give a file that exists after the @", flag, err)
		}
		text, from = data, s[1:]
	}
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		return nil, usagef("%s is not JSON (%s): write text in double quotes inside of single ones, as in --%s "+
			"'\"ada\"'", from, err, flag)
	}
	return json.RawMessage(text), nil
}
